"""A whole training as a user runs it, in a process of its own: seconds to a return, and a row."""

import time
from typing import Any

from benchmarks.harness.memory import peak_bytes
from benchmarks.harness.results import Row, machine_columns


def train_to_target(config: Any, started: float, folder: str) -> Row:
    """Train until the target return or the end, and return the columns of the row.

    Args:
        config: a `TrainingConfig`.
        started: `time.time()` as the process began, so that imports and compiling count.
        folder: for the run's folder.
    """
    import myriad

    results = myriad.train_and_evaluate(config, f"{folder}/run", quiet=True)
    seconds = time.time() - started
    last = results.evaluations[-1]
    timings = results.timings
    target = config.target_return
    reached = target is None or results.stopped == "target"
    missed = f"the return was {last['return']:.1f} after {last['steps']:,} steps, short of {target}"
    return machine_columns() | {
        "num_envs": results.config.num_envs,
        "scan_chunk_size": results.config.scan_chunk_size,
        "num_steps": last["steps"],
        "steps_per_s": timings.steps_per_s,
        "steps_per_s_low": timings.steps_per_s,
        "steps_per_s_high": timings.steps_per_s,
        "run_s": seconds,
        "samples": 1,
        "compile_s": timings.compile_s,
        "peak_bytes": peak_bytes(),
        "status": "ok" if reached else "failed",
        "reason": "" if reached else missed,
    }
