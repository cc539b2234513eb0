"""Read files with one-sentence errors, and replace files atomically."""

import os
import tomllib
from pathlib import Path
from typing import Any

from perfgate.errors import UsageError


def read_text(file: Path) -> str:
    """Return the text of a regular file.

    Raises:
        ValueError: it is not UTF-8, or a pipe, which would wait for a writer.
    """
    if not file.is_file():
        raise ValueError(f"{file} is not a regular file")
    return file.read_text(encoding="utf-8")


def read_toml(file: Path, failure: type[Exception] = UsageError) -> dict[str, Any]:
    """Read a TOML file.

    Args:
        file: an existing file. The error names it with its folder.
        failure: the exception to raise if the file is not valid TOML.
    """
    try:
        return tomllib.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise failure(f"{file.parent.name}/{file.name} is not valid TOML: {error}.") from None


def replace_text(file: Path, text: str) -> None:
    """Replace a file's text atomically: a reader finds the old text or the new one."""
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        part.replace(file)
    except OSError:
        part.unlink(missing_ok=True)
        raise
