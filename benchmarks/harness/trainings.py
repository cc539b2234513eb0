"""Train one seed in a new process, as a user would."""

import tempfile
import time
from typing import Any

from benchmarks.harness.process import Reply, run
from benchmarks.harness.results import machine_columns
from benchmarks.harness.worker import ChildError, peak_bytes

_TIMEOUT_S = 1_200.0


def trained(fields: dict[str, Any], cache: str | None = None, **options: Any) -> Reply:
    """Train to the target return or to the end, in a new process.

    Args:
        fields: the training, as `create_config` takes it.
        cache: the folder of compiled programs; by default an empty one.
        **options: `cpu_devices` of `myriad.configure`, `profile_chunks` of `train_and_evaluate`.

    Returns:
        the columns of its `row`. If it didn't end in an error, also `train_s`, the seconds of its
        updates, and `loop_s`, those of all but compiling.
    """
    request = {"fields": fields, "started": time.time(), **options}
    with tempfile.TemporaryDirectory() as folder:
        try:
            return run(
                "benchmarks.harness.trainings:train_once",
                request | {"folder": folder},
                timeout_s=_TIMEOUT_S,
                MYRIAD_COMPILATION_CACHE=cache or folder,
            )
        except ChildError as error:
            return {"row": error.columns}


def train_once(
    fields: dict[str, Any],
    started: float,
    folder: str,
    cpu_devices: int | None = None,
    profile_chunks: int = 0,
) -> Reply:
    """Train as a user would. The seconds count from `started`. Runs in a child."""
    import myriad

    myriad.configure(cpu_devices)
    results = myriad.train_and_evaluate(
        myriad.create_config(**fields),
        f"{folder}/run",
        quiet=True,
        profile_chunks=profile_chunks,
    )
    seconds = time.time() - started
    last = results.evaluations[-1]
    timings = results.timings
    target = results.config.target_return
    reached = target is None or results.stopped == "target"
    missed = f"the return was {last['return']:.1f} after {last['steps']:,} steps, short of {target}"
    rate = timings.steps_per_s
    row = machine_columns() | {
        "num_envs": results.config.num_envs,
        "scan_chunk_size": results.config.scan_chunk_size,
        "num_steps": last["steps"],
        **dict.fromkeys(("steps_per_s", "steps_per_s_low", "steps_per_s_high"), rate),
        "run_s": seconds,
        "samples": 1,
        "compile_s": timings.compile_s,
        "peak_bytes": peak_bytes(),
        "status": "ok" if reached else "failed",
        "reason": "" if reached else missed,
    }
    loop_s = timings.total_s - timings.compile_s
    return {"row": row, "train_s": timings.train_s, "loop_s": loop_s}
