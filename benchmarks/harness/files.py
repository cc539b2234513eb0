"""Write files atomically: a reader finds the old content or the new one, never a part.

All files of the suites are written here. The package has its own writer, but suites also run on
older commits, which lack it.
"""

import contextlib
import csv
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, and move it to `path` if the block succeeds.

    Raises:
        InvalidArgumentError: the file can't be written.
    """
    from myriad.errors import InvalidArgumentError

    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        raise InvalidArgumentError(
            f"{path} can't be written: {error.strerror or error}."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def require_free(path: Path, *, force: bool) -> None:
    """Refuse to replace a file or its samples, unless it is empty or `force` is set.

    Raises:
        InvalidArgumentError: the file holds something.
    """
    from myriad.errors import InvalidArgumentError

    for each in (path, samples_beside(path)):
        if not force and each.is_file() and each.stat().st_size:
            raise InvalidArgumentError(
                f"{each} exists: name another file, or replace it by --force."
            )


def samples_beside(path: Path) -> Path:
    """Return the file of the command and the raw samples beside a CSV file."""
    return path.with_name(f"{path.stem}_samples.json")


def make_folder(folder: Path) -> None:
    """Create a folder for results, unless it exists.

    Raises:
        InvalidArgumentError: it can't be created.
    """
    from myriad.errors import InvalidArgumentError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgumentError(
            f"can't create the folder {folder} for the results: {error.strerror}."
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, with unchanged line endings."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8", newline="")


def write_rows(path: Path, kind: type[Any], rows: Sequence[Any]) -> None:
    """Write dataclasses of one type to a CSV file, with a line for each."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [item.name for item in fields(kind)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    write_text(path, text.getvalue())
