"""Writing files: a reader finds the old one or the new one, and never half of either."""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from myriad.errors import InvalidArgumentError, without_passwords

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write to, whose file takes the place of `path` when the block succeeds.

    The temporary file lies beside `path`, has the same ending and is gone after a failure. A link
    stays one, and its target is replaced. What is no regular file, such as a device, is written to.

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
    temporary = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
    with write_errors_explained(path):
        try:
            yield temporary
            with temporary.open("rb+") as file:
                # The content must reach the disk before the name does, or a crash leaves an empty
                # file under the new name.
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


def unwritable(folder: Path) -> str | None:
    """Return why nothing can be written below a folder, which need not be there yet.

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
        return None if os.access(there, os.W_OK | os.X_OK) else "can't be written"
    return "can't be made"


def read_text(path: Path) -> str:
    """Read a file of text.

    Raises:
        InvalidArgumentError: it is missing, no regular file, or not UTF-8.
    """
    try:
        return regular(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        # Beside bytes that are no UTF-8, a name that holds a null character.
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidArgumentError(f"{path} can't be read: {reason}.") from error


def regular(path: Path) -> Path:
    """Return a path that can be read without waiting. A pipe may have nobody who writes to it.

    Raises:
        OSError: a folder, a pipe or a device is there.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is a folder, a device or a pipe, not a file", str(path))
    return path


def say(sentence: str) -> None:
    """Print to standard error, without passwords. If it is closed or full, nothing is said."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{without_passwords(sentence)}\n")
            sys.stderr.flush()


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False, wait: bool = True) -> Iterator[bool]:
    """Lock a folder against others who lock it, until the block ends. Nothing is written.

    Args:
        path: the folder.
        shared: allow other shared locks beside this one.
        wait: until others have let go of it.

    Yields:
        False if the folder is gone or somebody else holds it. Where the system or the file system
        knows no locks, that is never found out.
    """
    with contextlib.ExitStack() as opened:
        yield _lock(path, opened, shared=shared, wait=wait)


def _lock(path: Path, opened: contextlib.ExitStack, *, shared: bool, wait: bool) -> bool:
    if fcntl is None:
        return True
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        folder = os.open(path, os.O_RDONLY)
        opened.callback(os.close, folder)
        fcntl.flock(folder, kind if wait else kind | fcntl.LOCK_NB)
    except (FileNotFoundError, BlockingIOError):
        return False
    except OSError:
        return True
    return True


def holder_of(lock: Path) -> str:
    """Name the process that holds a locked file, as far as the system tells."""
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
        # An error of a library may hold several lines, and no `strerror`.
        reason = error.strerror or str(error).partition("\n")[0]
        raise InvalidArgumentError(f"{what} can't be written: {reason}.") from error
