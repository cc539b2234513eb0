"""Write files so that a reader finds the old file or the new one, and read only regular ones."""

import contextlib
import errno
import os
import sys
import tempfile
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

from myriad.errors import InvalidArgumentError, without_passwords

# Seconds between two lines on how long something takes.
_EVERY_S = 10.0


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write to. If the block succeeds, its file replaces `path`.

    The temporary file lies next to `path`, has the same ending and is removed after a failure. A
    link stays a link, and its target is replaced. A device or another special file is written to
    directly.

    Raises:
        InvalidArgumentError: the file can't be written.
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


def user_path(path: str | Path, argument: str = "path") -> Path:
    """Return a path that a user gave. Its first `~` or `~NAME` is a home folder, if there is one.

    Args:
        path: the path.
        argument: the name by which the user gave it.

    Raises:
        InvalidArgumentError: it is empty, has a control character, with which a terminal that
            prints the path would do something else, or is not UTF-8, which orbax can't write.
    """
    # Cs is what Python puts in place of bytes that are not UTF-8.
    if not str(path) or any(unicodedata.category(each) in ("Cc", "Cs") for each in str(path)):
        rule = "must be a name in UTF-8 without control characters"
        raise InvalidArgumentError(argument, rule, str(path))
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path's raises if there is none.


def require_free(path: Path, *, force: bool) -> None:
    """Refuse to replace a file, unless it is empty or the user asked for it.

    Raises:
        InvalidArgumentError: the file holds something, and `force` is False.
    """
    if not force and path.is_file() and path.stat().st_size:
        raise InvalidArgumentError(f"{path} exists: name another file, or replace it by --force.")


def unwritable(folder: Path) -> str | None:
    """Say why nothing can be written below a folder, which need not exist yet, or return None."""
    try:
        there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        return f"can't be written: {error.strerror}"
    return None


def read_text(path: Path) -> str:
    """Read a file of text.

    Raises:
        InvalidArgumentError: the file is missing, not a regular file or not UTF-8.
    """
    try:
        return regular(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        # A ValueError means bytes that are not UTF-8, or a null character in the name.
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidArgumentError(f"{path} can't be read: {reason}.") from error


def regular(path: Path) -> Path:
    """Return the path of a regular file. Reading a pipe could wait for ever, so it is refused.

    Raises:
        OSError: a folder, a pipe or a device is there.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is a folder, a device or a pipe, not a file", str(path))
    return path


def say(sentence: str) -> None:
    """Print to standard error, without passwords. If it is closed or full, print nothing."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{without_passwords(sentence)}\n")
            sys.stderr.flush()


@contextlib.contextmanager
def announced(what: str, tell: Callable[[str], None] = say) -> Iterator[None]:
    """Say at once what the block does, while it runs how long so far, and at its end how long.

    Args:
        what: the words, such as `compiling`.
        tell: prints a line; by default to standard error.
    """
    start = time.perf_counter()
    tell(f"{what} ...")
    with seconds_shown(what, tell):
        yield
    tell(f"{what}: {time.perf_counter() - start:.1f} s")


@contextlib.contextmanager
def seconds_shown(what: str, tell: Callable[[str], None] = say) -> Iterator[None]:
    """Say every ten seconds how long the block has taken so far."""
    start = time.perf_counter()
    ended = threading.Event()

    def count() -> None:
        while not ended.wait(_EVERY_S):
            tell(f"{what}: {time.perf_counter() - start:.0f} s so far")

    counter = threading.Thread(target=count, daemon=True)
    counter.start()
    try:
        yield
    finally:
        ended.set()
        counter.join()


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
