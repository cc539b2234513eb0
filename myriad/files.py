"""Write files so that a reader finds the old file or the new one, and read none without a limit."""

import contextlib
import errno
import os
import re
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from myriad.errors import InvalidArgumentError, without_passwords

# The most bytes that are read of each kind of file, and of all others.
_MOST_BYTES = {".env": 2**15, ".json": 2**26, ".csv": 2**26, ".jsonl": 2**30}
_MOST_OF_OTHERS = 2**22
_LONG_KEY = re.compile(r"""(?:\.\s*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')\s*){200}""")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write to. If the block succeeds, its file replaces `path`.

    The temporary file lies next to `path`, has the same ending and is removed after a failure. A
    link stays a link, and its target is replaced. A device or another special file is written to
    directly.

    Raises:
        InvalidArgumentError: the file can't be written.

    Example (of a script)::

        with replacing(Path("results.json")) as new:
            new.write_text("{}")
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with write_errors_explained(path):
            yield target
        return
    temporary = target.with_name(f".{target.stem}.{os.getpid()}{path.suffix}")
    with write_errors_explained(path):
        try:
            yield temporary
            with temporary.open("rb+") as file:
                # The content must reach the disk before the rename does, or a crash could leave an
                # empty file under the final name.
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


def require_free(path: Path, *, force: bool) -> None:
    """Refuse to replace a file, unless it is empty or the user asked for it.

    Raises:
        InvalidArgumentError: the file holds something, and `force` is False.
    """
    if not force and path.is_file() and path.stat().st_size:
        raise InvalidArgumentError(f"{path} exists: name another file, or replace it by --force.")


def unwritable(folder: Path) -> str | None:
    """Say why nothing can be written below a folder, which need not exist yet, or return None.

    Example:
        >>> unwritable(Path("/dev/null/results"))
        "can't be made, since /dev/null is no folder"
    """
    for there in (folder, *folder.absolute().parents):
        try:
            there.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return f"can't be used: {error.strerror}"
        if not there.is_dir():
            return f"can't be made, since {there} is no folder"
        try:
            tempfile.TemporaryFile(dir=there).close()
        except OSError as error:
            return f"can't be written: {error.strerror}"
        return None
    return "can't be made"


def read_text(path: Path) -> str:
    """Read a file of text.

    Raises:
        InvalidArgumentError: the file is missing, too large, not a regular file or not UTF-8.
    """
    try:
        return readable(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        # A ValueError means bytes that are not UTF-8, or a null character in the name.
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidArgumentError(f"{path} can't be read: {reason}.") from error


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML, but no key of many parts: tomllib takes gigabytes for one of 30,000.

    Raises:
        ValueError: the text is not TOML, or has such a key.
    """
    if _LONG_KEY.search(text):
        raise ValueError("a key has more than 200 parts")
    return tomllib.loads(text)


def readable(path: Path) -> Path:
    """Return the path of a regular file that is small enough for its kind to be read whole.

    Raises:
        OSError: it isn't there, too large, a folder, a pipe or a device.
    """
    size = regular(path).stat().st_size
    most = _MOST_BYTES.get(path.suffix or path.name, _MOST_OF_OTHERS)
    if size > most:
        reason = f"it has {size:,} bytes, but may have at most {most:,}"
        raise OSError(errno.EFBIG, reason, str(path))
    return path


def regular(path: Path) -> Path:
    """Return the path of a regular file. Reading a pipe could wait for ever, so it is refused.

    Raises:
        OSError: a folder, a pipe or a device is there.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is a folder, a device or a pipe, not a file", str(path))
    return path


def identity(path: Path) -> tuple[int, int] | None:
    """Return what distinguishes a file or folder from another of its name, or None without one.

    Once one is removed, the next may get its numbers: `watched` prevents that.
    """
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether the folder is still in its place.

    It is not once the folder was removed, moved or replaced, even by one of the same content.

    Raises:
        OSError: the folder isn't there or can't be opened.
    """
    held = identity(folder)
    # While it is open, its numbers are not given to a folder made in its place.
    opened = os.open(folder, os.O_RDONLY)
    try:
        yield lambda: identity(folder) == held
    finally:
        os.close(opened)


def say(sentence: str) -> None:
    """Print to standard error, without passwords. If it is closed or full, print nothing."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{without_passwords(sentence)}\n")
            sys.stderr.flush()


@contextlib.contextmanager
def announced(what: str, say: Callable[[str], None] = say) -> Iterator[None]:
    """Say at once what the block does, and at its end how long it took.

    Args:
        what: the words, such as `compiling`.
        say: prints a line; by default to standard error.
    """
    start = time.perf_counter()
    say(f"{what} ...")
    yield
    say(f"{what}: {time.perf_counter() - start:.1f} s")


def holder_of(lock: Path) -> str:
    """Name the process that holds a locked file, if the system tells."""
    try:
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        status = lock.stat()
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
        file = f"{device}:{status.st_ino}"
        number = next(words[4] for words in held if words[1] == "FLOCK" and words[5] == file)
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, StopIteration, IndexError):
        return "another process"
    return f"process {number}, which is stopped" if state == "T" else f"process {number}"


@contextlib.contextmanager
def write_errors_explained(what: object) -> Iterator[None]:
    """Turn an `OSError` of the block into a sentence that says that `what` can't be written.

    Raises:
        InvalidArgumentError: the block raised an `OSError`.
    """
    try:
        yield
    except OSError as error:
        # A library's error may have several lines and no `strerror`.
        reason = error.strerror or str(error).partition("\n")[0]
        raise InvalidArgumentError(f"{what} can't be written: {reason}.") from error
