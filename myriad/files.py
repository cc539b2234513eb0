"""Writing files: a reader finds the old one or the new one, and never half of either."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from myriad.errors import InvalidArgumentError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write to, whose file takes the place of `path` when the block succeeds.

    The temporary file lies beside `path`, has the same ending and is gone after a failure.

    Raises:
        InvalidArgumentError: the file can't be written.

    Example (of a script)::

        with replacing(Path("results.json")) as new:
            new.write_text("{}")
    """
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    with write_errors_explained(path):
        try:
            yield temporary
            with temporary.open("rb+") as file:
                # The content must reach the disk before the name does, or a crash leaves an empty
                # file under the new name.
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


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
