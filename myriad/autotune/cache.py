"""The autotuner's results, in one readable JSON file that identical machines may share."""

import contextlib
import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from myriad import settings
from myriad.errors import InvalidArgumentError
from myriad.files import holder_of, readable, replacing, write_errors_explained
from myriad.ranges import checked

# Raise it when entries change.
SCHEMA_VERSION = 1
_NAME = "autotune_profiles.json"
# The field of each entry's checksum.
_CHECKSUM = "checksum"
SECTIONS = ("hardware", "env_profiles", "agent_profiles", "chunk_size_configs")
# Writing takes milliseconds, so a process that holds the lock for longer is stopped or hangs.
_LOCK_WAIT_S = 30.0

Entry = dict[str, Any]


class ProfileCache:
    """The file `autotune_profiles.json`: an object for each of `SECTIONS`, from key to entry.

    Writers take turns by a lock and replace the whole file, so readers need no lock. A file of this
    name that can't be understood is renamed with a warning, and a new one is started. One of
    another name is refused. An entry that doesn't match its checksum counts as missing and is
    replaced.
    """

    @checked
    def __init__(self, path: str | Path | None = None):
        self.path = settings.home() / _NAME if path is None else Path(path)
        self._gave_up = False

    def read(self) -> dict[str, dict[str, Entry]]:
        """Return every section."""
        content = self._parse()
        if content is None:
            try:
                with self._locked():
                    content = self._parse() or self._set_aside()
            except InvalidArgumentError as error:
                _warn(error, "what it holds is not used")
                content = {section: {} for section in SECTIONS}
        return content

    def get(self, section: str, key: str) -> Entry | None:
        """Return an entry, or None."""
        return self.read()[section].get(key)

    def update(self, section: str, key: str, change: Callable[[Entry], Entry]) -> None:
        """Replace an entry by the result of `change` on it, or on `{}` if there is none.

        No other process writes between the read and the write. If a process holds the lock for too
        long, or the file can't be written, there is a warning, and nothing is kept.
        """
        if self._gave_up:
            return
        try:
            with self._locked():
                content = self._parse() or self._set_aside()
                content[section][key] = change(content[section].get(key, {}))
                _dump(self.path, content)
        except InvalidArgumentError as error:
            # Only warn: the measurement itself is worth more than its place in the cache.
            self._gave_up = True
            _warn(error, "what is found is not kept")

    def clear(self) -> None:
        """Remove all entries.

        Raises:
            InvalidArgumentError: another process holds the lock, or the file can't be removed or is
                not ours.
        """
        if self.path.name != _NAME:
            self._parse()
        try:
            with self._locked(), write_errors_explained(f"autotune cache {self.path}"):
                self.path.unlink(missing_ok=True)
        except _LockedError as error:
            raise InvalidArgumentError(f"{error}; try again when it has ended.") from error

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
        """Return the sections, empty if there is no file, or None if ours is damaged."""
        sections = self._sections()
        if sections is None and self.path.name != _NAME:
            raise InvalidArgumentError(
                f"autotune cache {self.path} is not one of version {SCHEMA_VERSION}; "
                "name another file."
            )
        return sections

    def _sections(self) -> dict[str, dict[str, Entry]] | None:
        try:
            content = json.loads(readable(self.path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {section: {} for section in SECTIONS}
        except OSError as error:
            raise InvalidArgumentError(
                f"autotune cache {self.path} can't be read: {error.strerror}."
            ) from error
        except (ValueError, RecursionError):
            return None
        if not isinstance(content, dict) or content.get("schema_version") != SCHEMA_VERSION:
            return None
        sections = {section: content.get(section, {}) for section in SECTIONS}
        if not all(isinstance(entries, dict) for entries in sections.values()):
            return None
        return {
            section: {
                key: {name: value for name, value in entry.items() if name != _CHECKSUM}
                for key, entry in entries.items()
                if isinstance(entry, dict) and entry.get(_CHECKSUM) == _checksum(entry)
            }
            for section, entries in sections.items()
        }

    def _set_aside(self) -> dict[str, dict[str, Entry]]:
        aside = self.path.with_name(
            f"{self.path.name}.unreadable-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns()}"
        )
        self.path.rename(aside)
        warnings.warn(
            f"{self.path} is not an autotune cache of version {SCHEMA_VERSION}; "
            f"it is kept as {aside.name}.",
            stacklevel=3,
        )
        return {section: {} for section in SECTIONS}

    # Without a lock, only 3 of 200 entries survived when 4 processes wrote 50 each.
    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        from filelock import FileLock, Timeout

        path = self.path.with_name(f".{self.path.name}.lock")
        lock = FileLock(path)
        with write_errors_explained(f"autotune cache {self.path}"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=_LOCK_WAIT_S)
            except Timeout as error:
                raise _LockedError(
                    f"autotune cache {self.path} is locked by {holder_of(path)} "
                    f"(waited {_LOCK_WAIT_S:g} s)"
                ) from error
        try:
            yield
        finally:
            lock.release()


class _LockedError(InvalidArgumentError):
    """Another process held the lock for longer than we wait."""


def _warn(error: InvalidArgumentError, consequence: str) -> None:
    """Warn of what is wrong with the cache's file, and of the consequence."""
    warnings.warn(f"{str(error).removesuffix('.')}; {consequence}.", stacklevel=3)


def digest(value: Any) -> str:
    """Return eight hexadecimal digits that stand for a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def _checksum(entry: Entry) -> str:
    return digest({name: value for name, value in entry.items() if name != _CHECKSUM})


def _dump(path: Path, content: dict[str, dict[str, Entry]]) -> None:
    signed = {
        section: {key: entry | {_CHECKSUM: _checksum(entry)} for key, entry in entries.items()}
        for section, entries in content.items()
    }
    with replacing(path) as new, new.open("w", encoding="utf-8") as file:
        json.dump({"schema_version": SCHEMA_VERSION} | signed, file, indent=1, sort_keys=True)
