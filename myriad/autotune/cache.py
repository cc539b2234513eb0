"""The autotuner's results, in one readable JSON file that identical machines may share."""

import contextlib
import dataclasses
import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from myriad import settings
from myriad.autotune.keys import digest
from myriad.autotune.search import Candidate
from myriad.errors import InvalidArgumentError
from myriad.files import holder_of, readable, replacing, write_errors_explained
from myriad.ranges import checked

# Raise it when entries get a new field, since an entry with an unknown field counts as damaged.
SCHEMA_VERSION = 1
_NAME = "autotune_profiles.json"
# The field of each entry's checksum. An entry without it was written by hand.
_CHECKSUM = "checksum"
SECTIONS = ("hardware", "env_profiles", "agent_profiles", "chunk_size_configs")
# The fields of every answer. An entry with others was changed by hand or by another version.
_ANSWER = {
    "optimal_chunk_size": int,
    "throughput_steps_per_s": float,
    "throughput_low": float,
    "throughput_high": float,
    "memory_bytes": int,
    "validated_at": str,
    "candidates": dict,
    "stretch_steps": int,
    "rounds_s": dict,
}
# The fields that an answer may also have. Any other name was changed by a fault.
_ENTRY_NAMES = {*_ANSWER, "details", _CHECKSUM}
_CANDIDATE: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(Candidate)}
# Writing takes milliseconds, so a process that holds the lock for longer is stopped or hangs.
_LOCK_WAIT_S = 30.0

Entry = dict[str, Any]


class ProfileCache:
    """The file `autotune_profiles.json`: an object for each of `SECTIONS`, from key to entry.

    Writers take turns by a lock and replace the whole file, so readers need no lock. A file of this
    name that can't be understood is renamed with a warning, and a new one is started. One of
    another name is refused. An entry that is not Myriad's, or that doesn't match its checksum,
    counts as missing and is replaced.
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
                if _is_entry(section, entry) and _is_whole(entry)
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


def _is_entry(section: str, entry: Any) -> bool:
    if section != "chunk_size_configs":
        return isinstance(entry, dict)
    if not _has(entry, _ANSWER) or not entry.keys() <= _ENTRY_NAMES:
        return False
    if not entry["optimal_chunk_size"] * entry["stretch_steps"]:
        return False
    if not _are_rounds(entry["rounds_s"]):
        return False
    return all(
        _has(candidate, _CANDIDATE) and candidate.keys() == _CANDIDATE.keys()
        for candidate in entry["candidates"].values()
    )


def _are_rounds(rounds: Mapping[str, Any]) -> bool:
    """Tell whether these are chunk sizes and as many seconds of each, as text."""
    try:
        sizes = [int(size) for size in rounds]
        seconds = [[float(sample) for sample in samples.split()] for samples in rounds.values()]
    except (ValueError, AttributeError):
        return False
    samples = list(itertools.chain.from_iterable(seconds))
    return (
        bool(samples)
        and min(sizes) > 0
        and len(set(map(len, seconds))) == 1
        and all(0 < sample <= sys.float_info.max for sample in samples)
    )


def _is_whole(entry: Entry) -> bool:
    rest = {name: value for name, value in entry.items() if name != _CHECKSUM}
    return entry.get(_CHECKSUM, digest(rest)) == digest(rest)


def _has(entry: Any, kinds: Mapping[str, Any]) -> bool:
    """Tell whether an object has these values, each of its type."""
    return isinstance(entry, dict) and all(
        _is_a(kind, entry.get(name)) for name, kind in kinds.items()
    )


def _is_a(kind: Any, value: Any) -> bool:
    """Tell whether a value is of a type. A number is finite and not negative, and no bool."""
    if kind is float:
        return type(value) in (int, float) and 0 <= value <= sys.float_info.max
    return type(value) is kind and (kind is not int or 0 <= value < 2**63)


def _dump(path: Path, content: dict[str, dict[str, Entry]]) -> None:
    signed = {
        section: {key: entry | {_CHECKSUM: digest(entry)} for key, entry in entries.items()}
        for section, entries in content.items()
    }
    with replacing(path) as new, new.open("w", encoding="utf-8") as file:
        json.dump({"schema_version": SCHEMA_VERSION} | signed, file, indent=1, sort_keys=True)
