"""Make a row of `metrics.jsonl`: the results of a window between two evaluations."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from myriad.counters import whole
from myriad.training.loop import PARTS, Report


def row_of_window(
    programs: Any, done: int, report: Report, returns: np.ndarray, ended: np.ndarray
) -> dict[str, Any]:
    """Return the figures of a window and of the evaluation at its end.

    Args:
        programs: the programs that trained, `CompiledTraining` or a `Population`.
        done: updates done.
        report: the window's report, in the host's memory.
        returns: the returns of the evaluation's episodes, `[E]`.
        ended: whether each episode ended, `[E]`.
    """
    window = done % programs.eval_every or programs.eval_every
    episodes = whole(report.num_episodes)
    row: dict[str, Any] = {
        "update": done,
        "steps": done * programs.steps_per_update,
        "episodes": episodes,
    }
    if episodes:
        row["return"] = float(report.return_sum) / episodes
    row |= {name: float(total) / window for name, total in report.metric_sums.items()}
    return row | {
        "eval_return": float(np.mean(returns, dtype=np.float64)),
        "eval_return_std": float(np.std(returns, dtype=np.float64)),
        "eval_unfinished": int((~ended).sum()),
    }


def training_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a row that is about the training."""
    return {name: value for name, value in row.items() if not name.startswith("eval_")}


def evaluation_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a row that is about the evaluation."""
    placed = {name: row[name] for name in ("seed", "update", "steps") if name in row}
    measured = {
        name.removeprefix("eval_"): value for name, value in row.items() if name.startswith("eval_")
    }
    return placed | measured


def bad_parts(report: Report) -> str | None:
    """Say where a report contains a NaN or an infinity, or return None."""
    bad = [part for part, is_bad in zip(PARTS, report.is_bad, strict=True) if is_bad]
    if not bad:
        return None
    metrics = [name for name, value in report.metric_sums.items() if not math.isfinite(value)]
    return f"{', '.join(bad)} ({', '.join(metrics)})" if metrics else ", ".join(bad)
