"""Whole trainings, each of one seed in a new process, as a user would start it."""

import math
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness.process import Reply, run
from benchmarks.harness.registry import OURS
from benchmarks.harness.results import ResultsFile, Row, machine_columns
from benchmarks.harness.tables import markdown
from benchmarks.harness.worker import ChildError, peak_bytes

_TIMEOUT_S = 1_200.0


def trained(
    fields: dict[str, Any], file: ResultsFile, about: dict[str, Any], *, may_miss: bool = False
) -> Row:
    """Train to the target return or to the end, in a new process with an empty cache.

    `about` describes the training in the raw samples, and its `arm` is a column of the row, too.
    With `may_miss` a training that falls short of its target is no failure. The returned row has as
    `train_s` the seconds of its updates, None if it ended in an error.
    """
    with tempfile.TemporaryDirectory() as folder:
        request = {"fields": fields, "started": time.time(), "folder": folder}
        target = "benchmarks.harness.trainings:train_once"
        try:
            reply = run(target, request, timeout_s=_TIMEOUT_S, MYRIAD_COMPILATION_CACHE=folder)
        except ChildError as error:
            reply = {"row": error.columns}
    named = {"library": OURS, "env": fields["env"], "agent": fields["agent"]}
    row = named | {"arm": about.get("arm", "")} | reply["row"]
    train_s = reply.get("train_s")
    if may_miss and train_s is not None:
        row["status"] = "ok"
    file.add([row], about | {"seed": fields["seed"], "train_s": train_s or "", "columns": row})
    return file.rows[-1] | {"train_s": train_s}


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


def trainings_table(what: Sequence[str], groups: Mapping[tuple[str, ...], Sequence[Row]]) -> str:
    """Return a line for the seeds of each training, which `what` names the columns of."""
    headers = [*what, "reached", "s from start, median (least to most)", "compiling, s"]
    headers += ["training, s", "steps", "steps/s", "peak, MiB"]
    return markdown(headers, [[*name, *_cells(rows)] for name, rows in groups.items()])


def _cells(rows: Sequence[Row]) -> list[str]:
    done = [row for row in rows if row["status"] == "ok" and not row["reason"]]
    missed = len(rows) - len(done)
    reached = f"{len(done)} of {len(rows)}"
    # If half of the seeds missed, all have no median, and that of the others would look too good.
    if missed >= len(done):
        return [reached, "not reached by half of them", *"-----"]
    seconds = sorted([*(row["run_s"] for row in done), *[math.inf] * missed])
    compile_s, train_s, steps, rate = (
        statistics.median(row[name] for row in done)
        for name in ("compile_s", "train_s", "num_steps", "steps_per_s")
    )
    most = "never" if missed else f"{seconds[-1]:.2f}"
    return [
        reached,
        f"{statistics.median(seconds):.2f} ({seconds[0]:.2f} to {most})",
        f"{compile_s:.2f}",
        f"{train_s:.2f}",
        f"{steps:,.0f}",
        f"{rate:,.0f}",
        f"{max(row['peak_bytes'] for row in done) / 2**20:,.0f}",
    ]
