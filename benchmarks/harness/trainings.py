"""Train one seed in a new process, as a user would."""

import tempfile
import time
from typing import Any

from benchmarks.harness.process import Reply, run
from benchmarks.harness.results import machine_columns
from benchmarks.harness.worker import ChildError, peak_bytes

_TIMEOUT_S = 1_200.0


def trained(fields: dict[str, Any]) -> Reply:
    """Train to the target return or to the end, in a new process with an empty cache.

    Args:
        fields: the training, as `create_config` takes it.

    Returns:
        the columns of its `row`. If it didn't end in an error, also `train_s`, the seconds of its
        updates.
    """
    with tempfile.TemporaryDirectory() as folder:
        request = {"fields": fields, "started": time.time(), "folder": folder}
        try:
            return run(
                "benchmarks.harness.trainings:train_once",
                request,
                timeout_s=_TIMEOUT_S,
                MYRIAD_COMPILATION_CACHE=folder,
            )
        except ChildError as error:
            return {"row": error.columns}


def train_once(fields: dict[str, Any], started: float, folder: str) -> Reply:
    """Train as a user would. The seconds count from `started`. Runs in a child."""
    import myriad

    myriad.configure()
    config = myriad.create_config(**fields)
    results = myriad.train_and_evaluate(config, f"{folder}/run", quiet=True)
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
    return {"row": row, "train_s": timings.train_s}
