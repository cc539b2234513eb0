"""What the autotuner found, in one readable JSON file that identical machines may share."""

import contextlib
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from myriad import settings
from myriad.errors import InvalidArgumentError
from myriad.files import replacing, write_errors_explained

SCHEMA_VERSION = 1
SECTIONS = ("hardware", "env_profiles", "agent_profiles", "chunk_size_configs")
# What every answer holds. A file with others was changed by hand or by another version.
_ANSWER = {
    "optimal_chunk_size", "throughput_steps_per_s", "throughput_low", "throughput_high",
    "memory_bytes", "validated_at", "candidates",
}  # fmt: skip

Entry = dict[str, Any]


class ProfileCache:
    """The file `autotune_profiles.json`: an object for each of `SECTIONS`, from key to entry.

    Writers take turns by a lock and replace the whole file, so readers need no lock. A file that
    can't be understood is renamed with a warning, and a new one is begun.
    """

    def __init__(self, path: Path | None = None):
        self.path = settings.home() / "autotune_profiles.json" if path is None else path

    def read(self) -> dict[str, dict[str, Entry]]:
        """Return every section."""
        content = self._parse()
        if content is None:
            with self._locked():
                content = self._parse() or self._set_aside()
        return content

    def get(self, section: str, key: str) -> Entry | None:
        """Return an entry, or None."""
        return self.read()[section].get(key)

    def update(self, section: str, key: str, change: Callable[[Entry], Entry]) -> None:
        """Replace an entry by what `change` makes of it, or of `{}` if there is none.

        Nobody else writes between the reading and the writing.
        """
        with self._locked():
            content = self._parse() or self._set_aside()
            content[section][key] = change(content[section].get(key, {}))
            _dump(self.path, content)

    def clear(self) -> None:
        """Forget everything."""
        with self._locked():
            self.path.unlink(missing_ok=True)

    def export(self, path: Path) -> None:
        """Write a copy, for a machine like this one."""
        _dump(path, self.read())

    def table(self) -> str:
        """Return a line per answer: key, chunk size, steps/s, when."""
        answers = self.read()["chunk_size_configs"]
        rows = [
            f"{key:<64} chunk {entry['optimal_chunk_size']:>5,}  "
            f"{entry['throughput_steps_per_s']:>15,.0f} steps/s  {entry['validated_at']}"
            for key, entry in sorted(answers.items())
        ]
        return "\n".join([f"{self.path}: {len(rows)} answers", *rows])

    def _parse(self) -> dict[str, dict[str, Entry]] | None:
        """Return the sections, empty if there is no file, or None if it is not one of ours."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {section: {} for section in SECTIONS}
        except OSError as error:
            raise InvalidArgumentError(
                f"autotune cache {self.path} can't be read: {error.strerror}."
            ) from error
        except ValueError:
            return None
        if not isinstance(content, dict) or content.get("schema_version") != SCHEMA_VERSION:
            return None
        sections = {section: content.get(section, {}) for section in SECTIONS}
        whole = all(
            isinstance(s, dict) and all(isinstance(e, dict) for e in s.values())
            for s in sections.values()
        )
        answered = whole and all(
            entry.keys() >= _ANSWER for entry in sections["chunk_size_configs"].values()
        )
        return sections if answered else None

    def _set_aside(self) -> dict[str, dict[str, Entry]]:
        aside = self.path.with_name(
            f"{self.path.name}.unreadable-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns()}"
        )
        self.path.rename(aside)
        warnings.warn(
            f"{self.path} is no autotune cache of version {SCHEMA_VERSION}; "
            f"it is kept as {aside.name}.",
            stacklevel=3,
        )
        return {section: {} for section in SECTIONS}

    # Without a lock, 4 processes that wrote 50 entries each left 3 of 200.
    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        from filelock import FileLock

        with write_errors_explained(f"autotune cache {self.path}"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path.with_name(f".{self.path.name}.lock"))
            lock.acquire()
        try:
            yield
        finally:
            lock.release()


def _dump(path: Path, content: dict[str, dict[str, Entry]]) -> None:
    with replacing(path) as new, new.open("w", encoding="utf-8") as file:
        json.dump({"schema_version": SCHEMA_VERSION} | content, file, indent=1, sort_keys=True)
