"""Where a run writes what it finds: its folder, tables for people, a line of progress."""

import contextlib
import csv
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from myriad.errors import InvalidArgumentError, NotInstalledError

Row = Mapping[str, Any]

# What JSON has no numbers for goes into metrics.jsonl as these strings, which protobuf's JSON uses,
# too.
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Table(Sequence[Row]):
    """Rows of one history, each a mapping from column to number; columns that a row lacks are empty."""

    def __init__(self, rows: Sequence[Row]):
        self._rows = [dict(row) for row in rows]

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"Table({len(self)} rows of {', '.join(self.columns)})"

    @property
    def columns(self) -> list[str]:
        """Every column, in the order in which they first appear."""
        return list(dict.fromkeys(name for row in self._rows for name in row))

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self._rows, columns=pd.Index(self.columns))

    def to_csv(self, path: str | Path) -> None:
        """Write a CSV file, atomically."""
        with replacing(Path(path)) as file:
            writer = csv.DictWriter(file, self.columns)
            writer.writeheader()
            writer.writerows(self._rows)

    def to_parquet(self, path: str | Path) -> None:
        """Write a Parquet file, atomically.

        Raises:
            NotInstalledError: pyarrow is not there.
        """
        try:
            with replacing(Path(path), binary=True) as file:
                self.to_pandas().to_parquet(file, engine="pyarrow")
        except ImportError as error:
            raise NotInstalledError("Parquet needs pyarrow: pip install pyarrow") from error


class RunFolder:
    """A run's folder: `config.toml`, `environment.json`, `metrics.jsonl` and `checkpoints/`."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @classmethod
    def create(cls, path: Path, config_toml: str, environment: Mapping[str, Any]) -> "RunFolder":
        """Make the folder; of several processes that make the same one, one does and the others are refused.

        Raises:
            InvalidArgumentError: it holds a run already, is in use, or is no folder that can be
                written.
        """
        folder = cls(path)
        with explained(f"run folder {path}"):
            path.mkdir(parents=True, exist_ok=True)
        with folder.held():
            if (path / "config.toml").exists():
                raise InvalidArgumentError(
                    f"run folder {path} holds a run already: resume it, or name another folder."
                )
            with replacing(path / "environment.json") as file:
                json.dump(environment, file, indent=2)
            with replacing(path / "config.toml") as file:
                file.write(config_toml)
        return folder

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep every other process out while the block runs; the system lets go even after `kill -9`.

        Raises:
            InvalidArgumentError: another process is in, or the folder can't be written.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(self.path / ".lock")
        with explained(f"run folder {self.path}"):
            try:
                lock.acquire(timeout=0)
            except Timeout as error:
                raise InvalidArgumentError(
                    f"run folder {self.path} is in use by another process: wait for its end, or name another folder."
                ) from error
        try:
            yield
        finally:
            lock.release()

    def config_toml(self) -> str:
        """Read the configuration.

        Raises:
            InvalidArgumentError: there is none.
        """
        try:
            return (self.path / "config.toml").read_text(encoding="utf-8")
        except OSError as error:
            raise InvalidArgumentError(
                f"{self.path} holds no run to resume: {error.strerror}: config.toml."
            ) from error

    def append(self, row: Row) -> None:
        """Add a line to `metrics.jsonl`.

        Raises:
            InvalidArgumentError: the line can't be written; those before it are as they were.
        """
        path = self.path / "metrics.jsonl"
        size = path.stat().st_size if path.exists() else 0
        with explained(path):
            try:
                with path.open("a", encoding="utf-8") as file:
                    file.write(_line(row))
            except OSError:
                with contextlib.suppress(OSError):
                    os.truncate(path, size)  # what a full disk took of the line
                raise

    def rows(self, up_to_update: int) -> list[dict[str, Any]]:
        """Return the rows up to an update, and drop those beyond it from the file: they will be written again."""
        path = self.path / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        rows: list[dict[str, Any]] = []
        for line in lines:
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                break  # the line that a kill cut short, and so the last one
            if row["update"] > up_to_update:
                break
            rows.append({name: _NON_FINITE.get(value, value) for name, value in row.items()})
        if len(rows) < len(lines):
            with replacing(path) as file:
                file.writelines(map(_line, rows))
        return rows


class Progress:
    """A live line on standard error, where that is a terminal: steps, steps/s, return, time left."""

    def __init__(self, total_steps: int, *, quiet: bool):
        self._bar, self._task, self._total = None, None, total_steps
        if quiet or not sys.stderr.isatty():
            return
        from rich import console, progress

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn(
                "{task.fields[steps]} steps  {task.fields[rate]}  return {task.fields[score]}"
            ),
            progress.TimeRemainingColumn(),
            console=console.Console(stderr=True),
        )
        self._task = self._bar.add_task(
            "training", total=total_steps, steps="0", rate="", score="-"
        )
        self._bar.start()

    def say(self, sentence: str) -> None:
        """Print a line above the bar."""
        if self._bar is not None:
            self._bar.console.print(sentence, highlight=False)

    def update(self, steps: int, rate: float, score: float | None) -> None:
        """Show how far the run has come."""
        if self._bar is not None and self._task is not None:
            shown = "-" if score is None else f"{score:.1f}"
            self._bar.update(
                self._task, completed=steps, steps=f"{steps:,}", rate=f"{rate:,.0f}/s", score=shown
            )

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextlib.contextmanager
def replacing(path: Path, *, binary: bool = False) -> Iterator[Any]:
    """Open a file that takes the place of `path` when the block ends well, and never before.

    Raises:
        InvalidArgumentError: it can't be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with explained(path):
        try:
            with (
                temporary.open("wb")
                if binary
                else temporary.open("w", encoding="utf-8", newline="") as file
            ):
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


@contextlib.contextmanager
def explained(what: object) -> Iterator[None]:
    """Turn what the system says against writing `what` into a sentence."""
    try:
        yield
    except OSError as error:
        raise InvalidArgumentError(
            f"{what} can't be written: {error.strerror or error}."
        ) from error


def _line(row: Row) -> str:
    shown = {
        k: json.dumps(v) if isinstance(v, float) and not math.isfinite(v) else v
        for k, v in row.items()
    }
    return json.dumps(shown, allow_nan=False) + "\n"
