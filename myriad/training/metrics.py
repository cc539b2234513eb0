"""The metrics of a training: a row for each window between two evaluations, and their history."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from myriad.errors import NotInstalledError
from myriad.files import replacing, user_path
from myriad.training.loop import PARTS, Report, whole

__all__ = ["History"]

Row = Mapping[str, Any]


class History(Sequence[Row]):
    """The rows of a training in order, each a mapping from column to number.

    A row may lack a column. Its cell is then empty in every file.
    """

    def __init__(self, rows: Sequence[Row]):
        self._rows = [dict(row) for row in rows]

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        """Return a table of the rows. Of more than ten, the first and the last five."""
        rows = self._rows if len(self) <= 10 else [*self._rows[:5], {}, *self._rows[-5:]]
        cells = [
            [_cell(row.get(name, "" if row else "...")) for name in self.columns] for row in rows
        ]
        table = [self.columns, *cells]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ("  ".join(map(str.rjust, row, widths)) for row in table)
        return "\n".join(lines) if self.columns else "no rows yet"

    @property
    def columns(self) -> list[str]:
        """Every column, in the order of first appearance."""
        return list(dict.fromkeys(name for row in self._rows for name in row))

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self._rows, columns=pd.Index(self.columns))

    def to_csv(self, path: str | Path) -> None:
        """Write a CSV file.

        Raises:
            InvalidArgumentError: the file can't be written. An older one stays as it was.
        """
        with (
            replacing(user_path(path)) as new,
            new.open("w", encoding="utf-8", newline="") as file,
        ):
            writer = csv.DictWriter(file, self.columns)
            writer.writeheader()
            writer.writerows(self._rows)

    def to_parquet(self, path: str | Path) -> None:
        """Write a Parquet file.

        Raises:
            InvalidArgumentError: the file can't be written. An older one stays as it was.
            NotInstalledError: pyarrow is not installed.
        """
        try:
            with replacing(user_path(path)) as new, new.open("wb") as file:
                self.to_pandas().to_parquet(file, engine="pyarrow")
        except ImportError as error:
            raise NotInstalledError("Parquet", "pyarrow", "track") from error


def _cell(value: Any) -> str:
    """Return a number as people read it: whole numbers with commas."""
    if isinstance(value, int):
        return f"{value:,}"
    return significant(value) if isinstance(value, float) else str(value)


def significant(value: float) -> str:
    """Return a number with four digits, or with all those before its point.

    Example:
        >>> [significant(value) for value in (475.0, 0.0123456, -12345.6)]
        ['475', '0.01235', '-12346']
    """
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def training_of(row: Row) -> Any:
    """Return what tells the trainings of a run apart: the seed, or values of the grid and the seed.

    It is None if there is only one.

    Example:
        >>> training_of({"seed": 3, "update": 8}), training_of({"agent.gamma": 0.9, "seed": 3})
        (3, (0.9, 3))
    """
    point = tuple(value for name, value in row.items() if name.startswith("agent."))
    return (*point, row.get("seed")) if point else row.get("seed")


def row_of_window(
    done: int,
    steps: int,
    window: int,
    report: Report,
    returns: np.ndarray,
    ended: np.ndarray,
    infos: Mapping[str, np.ndarray],
) -> dict[str, Any]:
    """Return the figures of a window and of the evaluation at its end.

    Args:
        done: updates done.
        steps: steps of all environments of the training by then.
        window: updates in the window.
        report: the window's report, in the host's memory.
        returns: the returns of the evaluation's episodes, `[E]`.
        ended: whether each episode ended, `[E]`.
        infos: the scalars of `info` at each episode's last step, each `[E]`.
    """
    episodes = whole(report.num_episodes)
    row: dict[str, Any] = {
        "update": done,
        "steps": steps,
        "episodes": episodes,
    }
    if episodes:
        row["return"] = float(report.return_sum) / episodes
    row |= {name: float(total) / window for name, total in report.metric_sums.items()}
    row |= {
        "eval_return": float(np.mean(returns, dtype=np.float64)),
        "eval_return_std": float(np.std(returns, dtype=np.float64)),
        "eval_unfinished": int((~ended).sum()),
    }
    of_info = {name: float(np.mean(each, dtype=np.float64)) for name, each in infos.items()}
    return row | {f"eval_info/{name}": mean for name, mean in of_info.items()}


def training_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a row that is about the training."""
    return {name: value for name, value in row.items() if not name.startswith("eval_")}


def evaluation_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a row that is about the evaluation."""
    placed = {name: value for name, value in row.items() if name.startswith("agent.")}
    placed |= {name: row[name] for name in ("seed", "update", "steps") if name in row}
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
