"""A run's folder on disk: its configuration, its lock, and its rows, one for each evaluation."""

import contextlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from myriad.errors import InvalidArgumentError
from myriad.files import read_text, regular, replacing, write_errors_explained
from myriad.training.loop import Report, whole

Row = Mapping[str, Any]

# JSON has no such numbers. metrics.jsonl holds these strings instead, as protobuf's JSON does.
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

# The temporary names that `replacing` gives the first files of a run until they are whole.
_TEMPORARY = re.compile(r"\.(config\.\d+\.toml|environment\.\d+\.json)")


class RunFolder:
    """A run's folder.

    It holds `config.toml`, `environment.json`, `metrics.jsonl`, `monitor.jsonl` and `checkpoints/`.
    """

    def __init__(self, path: Path):
        self.path = path

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @classmethod
    def create(cls, path: Path, config_toml: str, environment: Mapping[str, Any]) -> "RunFolder":
        """Make the folder. If several processes make the same one, only one of them succeeds.

        Args:
            path: the folder. Missing parents are made, too.
            config_toml: the text of `config.toml`.
            environment: what `environment.json` holds: hardware, versions, precision.

        Raises:
            InvalidArgumentError: the folder already holds a run or anything else, is in use, or
                can't be written.
        """
        folder = cls(path)
        with write_errors_explained(f"run folder {path}"):
            path.mkdir(parents=True, exist_ok=True)
            _require_own(path)
        with folder.held():
            if (path / "config.toml").exists():
                raise InvalidArgumentError(
                    f"run folder {path} already holds a run: name another folder, or resume it."
                )
            with replacing(path / "environment.json") as new:
                new.write_text(json.dumps(environment, indent=2), encoding="utf-8")
            # The configuration comes last, since its presence makes the folder a run.
            with replacing(path / "config.toml") as new:
                new.write_text(config_toml, encoding="utf-8")
        return folder

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder during the block. The lock also ends if the process is killed.

        Raises:
            InvalidArgumentError: another process holds the folder, or it can't be written.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(self.path / ".lock")
        with write_errors_explained(self.path / ".lock"):
            try:
                lock.acquire(timeout=0)
            except Timeout as error:
                raise InvalidArgumentError(
                    f"run folder {self.path} is in use by another process: "
                    "wait until it ends, or name another folder."
                ) from error
        try:
            yield
        finally:
            lock.release()

    def _require_run(self) -> None:
        """Raise if the folder is gone, so that nothing is written in its place."""
        if not (self.path / "config.toml").exists():
            raise InvalidArgumentError(
                f"run folder {self.path} was removed or moved while the run trained; if you moved "
                "it, resume it by its new name."
            )

    def config_toml(self) -> str:
        """Read the configuration.

        Raises:
            InvalidArgumentError: the folder holds no run, or the file can't be read.
        """
        return read_text(self.path / "config.toml")

    def environment(self) -> dict[str, Any]:
        """Read `environment.json`.

        Raises:
            InvalidArgumentError: the file can't be read.
        """
        path = self.path / "environment.json"
        text = read_text(path)
        try:
            return {**json.loads(text)}
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidArgumentError(f"{path} is damaged: {error}.") from None

    @property
    def metrics(self) -> Path:
        """The file of rows, one line of JSON each."""
        return self.path / "metrics.jsonl"

    def append(self, row: Row, file: str = "metrics.jsonl") -> None:
        """Add a line to a file of rows. A resumed run appends to the same file.

        Raises:
            InvalidArgumentError: the line can't be written. The lines before it stay.
        """
        self._require_run()
        path = self.path / file
        size = path.stat().st_size if path.exists() else 0
        with write_errors_explained(path):
            try:
                with path.open("a+b") as rows:
                    rows.seek(max(0, size - 1))
                    # If the process was killed, the last line may lack its end.
                    is_whole = rows.read(1) in (b"", b"\n")
                    rows.write(b"" if is_whole else b"\n")
                    rows.write(lines_of([row]).encode())
            except OSError:
                # A full disk may have accepted only the first part of the line, so cut it off.
                with contextlib.suppress(OSError):
                    os.truncate(path, size)
                raise

    def flush(self) -> None:
        """Wait until the rows are on the disk, before a checkpoint is written.

        Raises:
            InvalidArgumentError: they can't be written.
        """
        self._require_run()
        if self.metrics.exists():
            with write_errors_explained(self.metrics), self.metrics.open("rb+") as file:
                os.fsync(file.fileno())

    def go_back_to(self, rows: Sequence[Row]) -> bool:
        """Cut `metrics.jsonl` back to the rows of the checkpoint from which the run resumes.

        The resumed run writes the later rows again. If the file is missing or empty, it is made
        again from the checkpoint.

        Returns:
            whether the file was made again.

        Raises:
            InvalidArgumentError: the file contradicts the checkpoint. It stays as it is.
        """
        kept = lines_of(rows).encode()
        try:
            found = regular(self.metrics).read_bytes()
        except FileNotFoundError:
            found = b""
        except OSError as error:
            raise InvalidArgumentError(
                f"{self.metrics} can't be read: {error.strerror}."
            ) from error
        if found and not found.startswith(kept):
            raise InvalidArgumentError(
                f"{self.metrics} is damaged: it doesn't begin with the rows of the checkpoint; "
                "move the file away, and resuming makes it again from the checkpoint."
            )
        if found != kept:
            with replacing(self.metrics) as new:
                new.write_bytes(kept)
        return not found and bool(kept)

    def discard(self) -> None:
        """Remove the folder of a run that has not trained yet, unless it holds anything else."""
        with contextlib.suppress(OSError):
            paths = list(self.path.iterdir())
            if all(map(_is_of_new_run, paths)):
                for path in paths:
                    path.unlink()
                self.path.rmdir()


def lines_of(rows: Sequence[Row]) -> str:
    """Return rows as `metrics.jsonl` holds them."""
    return "".join(map(_line, rows))


def rows_of(text: str) -> list[dict[str, Any]]:
    """Read the rows that `lines_of` wrote."""
    rows = map(json.loads, text.splitlines())
    return [{name: _NON_FINITE.get(value, value) for name, value in row.items()} for row in rows]


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


def training_of(row: Row) -> Any:
    """Return what tells the trainings of a run apart: the seed, or values of the grid and the seed.

    It is None if there is only one.

    Example:
        >>> training_of({"seed": 3, "update": 8}), training_of({"agent.gamma": 0.9, "seed": 3})
        (3, (0.9, 3))
    """
    point = tuple(value for name, value in row.items() if name.startswith("agent."))
    return (*point, row.get("seed")) if point else row.get("seed")


def significant(value: float) -> str:
    """Return a number with four digits, or with all those before its point.

    Example:
        >>> [significant(value) for value in (475.0, 0.0123456, -12345.6)]
        ['475', '0.01235', '-12346']
    """
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def _is_record(path: Path) -> bool:
    """Return whether a run wrote this `environment.json`."""
    try:
        return "versions" in json.loads(regular(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def _is_of_new_run(path: Path) -> bool:
    """Return whether this is a file of a run that has not trained yet."""
    return (
        path.name in (".lock", "config.toml")
        or _TEMPORARY.fullmatch(path.name) is not None
        or (path.name == "environment.json" and _is_record(path))
    )


def _require_own(path: Path) -> None:
    """Refuse a folder that holds files which no run wrote."""
    # List the folder only once: files of another process that makes it may come and go.
    foreign = {each.name for each in path.iterdir() if not _is_of_new_run(each)}
    lock = path / ".lock"
    if lock.exists() and (not lock.is_file() or lock.stat().st_size):
        foreign.add(lock.name)  # Our locks are empty. Taking this one would erase its content.
    if foreign and not (path / "config.toml").exists():
        raise InvalidArgumentError(
            f"run folder {path} holds {min(foreign)}, which no run wrote: "
            "name a new or an empty folder."
        )


def _line(row: Row) -> str:
    shown = {
        name: json.dumps(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
    return json.dumps(shown, allow_nan=False) + "\n"
