"""A run's folder on the disk: its configuration, its metrics line by line, and who may write."""

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from myriad.errors import InvalidArgumentError
from myriad.files import replacing, write_errors_explained
from myriad.training.history import Row

# JSON has no such numbers. metrics.jsonl holds these strings instead, as protobuf's JSON does.
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class RunFolder:
    """A run's folder: `config.toml`, `environment.json`, `metrics.jsonl` and `checkpoints/`."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @classmethod
    def create(cls, path: Path, config_toml: str, environment: Mapping[str, Any]) -> "RunFolder":
        """Make the folder. If several processes make the same one, one of them succeeds.

        Args:
            path: the folder; those above it are made, too.
            config_toml: the text of `config.toml`.
            environment: what `environment.json` holds: hardware, versions, precision.

        Raises:
            InvalidArgumentError: the folder already holds a run, is in use, or can't be written.
        """
        folder = cls(path)
        with write_errors_explained(f"run folder {path}"):
            path.mkdir(parents=True, exist_ok=True)
        with folder.held():
            if (path / "config.toml").exists():
                raise InvalidArgumentError(
                    f"run folder {path} already holds a run: resume it, or name another folder."
                )
            with replacing(path / "environment.json") as new:
                new.write_text(json.dumps(environment, indent=2), encoding="utf-8")
            # The configuration comes last: where it is, the folder is a run.
            with replacing(path / "config.toml") as new:
                new.write_text(config_toml, encoding="utf-8")
        return folder

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep every other process out during the block, even if this one is killed in it.

        Raises:
            InvalidArgumentError: another process holds the folder, or it can't be written.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(self.path / ".lock")
        with write_errors_explained(f"run folder {self.path}"):
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

    def config_toml(self) -> str:
        """Read the configuration.

        Raises:
            InvalidArgumentError: the folder holds no run.
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
            InvalidArgumentError: the line can't be written. The lines before it stay.
        """
        path = self.path / "metrics.jsonl"
        size = path.stat().st_size if path.exists() else 0
        with write_errors_explained(path):
            try:
                with path.open("a", encoding="utf-8") as file:
                    file.write(_line(row))
            except OSError:
                # A full disk may have taken the first half of the line.
                with contextlib.suppress(OSError):
                    os.truncate(path, size)
                raise

    def rows(self, up_to_update: int) -> list[dict[str, Any]]:
        """Return the rows up to an update and drop later ones from the file.

        A resumed run starts at a checkpoint, and writes the later rows again.
        """
        path = self.path / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        rows: list[dict[str, Any]] = []
        for line in lines:
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                break  # A kill cut this line short, so it is the last one.
            if row["update"] > up_to_update:
                break
            rows.append({name: _NON_FINITE.get(value, value) for name, value in row.items()})
        if len(rows) < len(lines):
            with replacing(path) as new:
                new.write_text("".join(map(_line, rows)), encoding="utf-8")
        return rows


def _line(row: Row) -> str:
    shown = {
        name: json.dumps(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
    return json.dumps(shown, allow_nan=False) + "\n"
