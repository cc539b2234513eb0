"""The autotuner's results, in one readable JSON file that identical machines may share."""

import contextlib
import hashlib
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from myriad import settings
from myriad.errors import InvalidArgumentError
from myriad.files import regular, replacing, user_path, write_errors_explained
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

    Writers take turns by a lock and replace the whole file, so readers need no lock. Entries of
    another version, or that don't match their checksum, count as missing and are replaced. A file
    that is no cache is refused.
    """

    @checked
    def __init__(self, path: str | Path | None = None):
        self.path = settings.home() / _NAME if path is None else user_path(path)
        self._gave_up = False

    def read(self) -> dict[str, dict[str, Entry]]:
        """Return every section.

        Raises:
            InvalidArgumentError: the file can't be read or is no cache.
        """
        try:
            content = json.loads(regular(self.path).read_text(encoding="utf-8"))
            version = content["schema_version"]
            found = {section: content.get(section, {}).items() for section in SECTIONS}
        except FileNotFoundError:
            return {section: {} for section in SECTIONS}
        except OSError as error:
            says = f"autotune cache {self.path} can't be read: {error.strerror}."
            raise InvalidArgumentError(says) from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            says = f"{self.path} is not an autotune cache; remove it or name another file."
            raise InvalidArgumentError(says) from None
        return {
            section: {
                key: entry
                for key, entry in entries
                if isinstance(entry, dict) and entry.pop(_CHECKSUM, None) == digest(entry)
                if version == SCHEMA_VERSION
            }
            for section, entries in found.items()
        }

    def get(self, section: str, key: str) -> Entry | None:
        """Return an entry, or None."""
        return self.read()[section].get(key)

    def update(self, section: str, key: str, entry: Entry) -> None:
        """Add an entry, or replace it.

        If a process holds the lock for too long, or the file can't be written, there is a warning,
        and nothing is kept.
        """
        if self._gave_up:
            return
        try:
            with self._locked():
                content = self.read()
                content[section][key] = entry
                _dump(self.path, content)
        except InvalidArgumentError as error:
            # Only warn: the measurement itself is worth more than its place in the cache.
            self._gave_up = True
            warnings.warn(
                f"{str(error).removesuffix('.')}; what is found is not kept.", stacklevel=3
            )

    def clear(self) -> None:
        """Remove all entries.

        Raises:
            InvalidArgumentError: another process holds the lock, or the file can't be removed or is
                no cache.
        """
        self.read()
        with self._locked(), write_errors_explained(f"autotune cache {self.path}"):
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
                says = f"autotune cache {self.path} is locked by another process."
                raise InvalidArgumentError(says) from error
        try:
            yield
        finally:
            lock.release()


def digest(value: Any) -> str:
    """Return eight hexadecimal digits that stand for a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def _dump(path: Path, content: dict[str, dict[str, Entry]]) -> None:
    signed = {
        section: {key: entry | {_CHECKSUM: digest(entry)} for key, entry in entries.items()}
        for section, entries in content.items()
    }
    with replacing(path) as new, new.open("w", encoding="utf-8") as file:
        json.dump({"schema_version": SCHEMA_VERSION} | signed, file, indent=1, sort_keys=True)
