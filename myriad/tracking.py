"""Where a run writes what it finds: its folder, tables for people, and other trackers on request."""

import contextlib
import csv
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from myriad.errors import InvalidArgumentError, NotInstalledError, UnknownNameError

Row = Mapping[str, Any]


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
            NotInstalledError: pandas finds no Parquet library.
        """
        path = Path(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self.to_pandas().to_parquet(temporary)
        except ImportError as error:
            raise NotInstalledError("Parquet needs pyarrow: pip install pyarrow") from error
        temporary.replace(path)


class RunFolder:
    """A run's folder: `config.toml`, `environment.json`, `metrics.jsonl` and `checkpoints/`."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @classmethod
    def create(cls, path: Path, config_toml: str, environment: Mapping[str, Any]) -> "RunFolder":
        """Make the folder.

        Raises:
            InvalidArgumentError: it holds a run already, or is no folder that can be written.
        """
        folder = cls(path)
        if (path / "config.toml").exists():
            raise InvalidArgumentError(f"run folder {path} holds a run already: resume it, or name another folder.")
        try:
            path.mkdir(parents=True, exist_ok=True)
            with replacing(path / "environment.json") as file:
                json.dump(environment, file, indent=2)
            with replacing(path / "config.toml") as file:
                file.write(config_toml)
        except OSError as error:
            raise InvalidArgumentError(f"run folder {path} can't be written: {error.strerror}.") from error
        return folder

    def config_toml(self) -> str:
        """Read the configuration.

        Raises:
            InvalidArgumentError: there is none.
        """
        try:
            return (self.path / "config.toml").read_text(encoding="utf-8")
        except OSError as error:
            raise InvalidArgumentError(f"{self.path} holds no run to resume: {error.strerror}: config.toml.") from error

    def append(self, row: Row) -> None:
        """Add a line to `metrics.jsonl`."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def rows(self, up_to_update: int) -> list[dict[str, Any]]:
        """Return the rows up to an update, and drop those beyond it from the file: they will be written again."""
        path = self.path / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        rows = []
        for line in lines:
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                break  # the line that a kill cut short, and so the last one
            if row["update"] > up_to_update:
                break
            rows.append(row)
        with replacing(path) as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        return rows


class Tracker(Protocol):
    """A place beside the run's folder that a row of metrics also goes to."""

    def log(self, row: Row, step: int) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in the run's folder, for `tensorboard --logdir`."""

    def __init__(self, folder: RunFolder, config: Mapping[str, Any]):
        try:
            from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise NotInstalledError("log_to 'tensorboard' needs tensorboardX: pip install tensorboardX") from error
        self._writer = SummaryWriter(str(folder.path / "tensorboard"))

    def log(self, row: Row, step: int) -> None:
        for name, value in row.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases; `WANDB_MODE=offline` keeps it on this machine."""

    def __init__(self, folder: RunFolder, config: Mapping[str, Any]):
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise NotInstalledError("log_to 'wandb' needs wandb: pip install wandb") from error
        project = os.environ.get("WANDB_PROJECT", "myriad")
        self._run = wandb.init(project=project, name=folder.path.name, dir=str(folder.path), config=dict(config))

    def log(self, row: Row, step: int) -> None:
        self._run.log(dict(row), step=step)

    def close(self) -> None:
        self._run.finish()


TRACKERS = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def make_trackers(names: Sequence[str], folder: RunFolder, config: Mapping[str, Any]) -> list[Tracker]:
    """Build the trackers called `names`; raises UnknownNameError or NotInstalledError."""
    for name in names:
        if name not in TRACKERS:
            raise UnknownNameError("tracker", name, TRACKERS)
    return [TRACKERS[name](folder, config) for name in names]


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
            progress.TextColumn("{task.fields[steps]} steps  {task.fields[rate]}  return {task.fields[score]}"),
            progress.TimeRemainingColumn(),
            console=console.Console(stderr=True),
        )
        self._task = self._bar.add_task("training", total=total_steps, steps="0", rate="", score="-")
        self._bar.start()

    def say(self, sentence: str) -> None:
        """Print a line above the bar."""
        if self._bar is not None:
            self._bar.console.print(sentence, highlight=False)

    def update(self, steps: int, rate: float, score: float | None) -> None:
        """Show how far the run has come."""
        if self._bar is not None and self._task is not None:
            shown = "-" if score is None else f"{score:.1f}"
            self._bar.update(self._task, completed=steps, steps=f"{steps:,}", rate=f"{rate:,.0f}/s", score=shown)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Any]:
    """Open a text file that takes the place of `path` when the block ends well, and never before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
