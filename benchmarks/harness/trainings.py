"""Select declared trainings, and run one as a user would."""

import argparse
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.harness.process.memory import peak_bytes
from benchmarks.harness.results import Row, machine_columns
from benchmarks.harness.workloads import SuiteError, Training, tier_from_environment


def train_to_target(config: Any, started: float, folder: str) -> Row:
    """Train to the target return or to the end, and return the columns of the row.

    Args:
        config: a `TrainingConfig`.
        started: `time.time()` at the process's start, so that imports and compiling count.
        folder: the place for the run's folder.
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


def chosen(
    declared: Mapping[str, Training], options: argparse.Namespace, what: str
) -> list[Training]:
    """Return the declared trainings that `--full`, `--agent` and `--env` select.

    A named agent or environment is searched for in all tiers.

    Args:
        declared: the trainings of a suite.
        options: the flags.
        what: the noun for the suite's declarations, for the message.

    Raises:
        SuiteError: no training is declared for them.
    """
    every = declared.values()
    named = options.full or options.agent or options.env
    found = [
        training
        for training in every
        if (named or tier_from_environment() in training.tiers)
        and options.agent in (None, training.agent)
        and options.env in (None, training.env, training.env.removesuffix("-control"))
    ]
    if not found:
        kinds = ", ".join(f"{training.agent} in {training.env}" for training in every)
        raise SuiteError(
            f"suite.toml declares no {what} of {options.agent or 'any agent'} in "
            f"{options.env or 'any environment'}; there are {kinds}."
        )
    return found
