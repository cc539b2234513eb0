"""Read files of a limited size with one-sentence errors, and replace files atomically."""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from perfgate.errors import UsageError

# The most bytes that are read of a file: TOML that people write, or results.
_MOST_OF_TOML = 2**22
_MOST_BYTES = 2**26
# A key of 200 parts or more: tomllib takes gigabytes for one of 30,000.
_LONG_KEY = re.compile(r"""(?:\.\s*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')\s*){200}""")


def read_text(file: Path) -> str:
    """Return the text of a regular file.

    Raises:
        ValueError: it is not UTF-8, too large to be read, or a pipe, which would wait for a writer.
    """
    if not file.is_file():
        raise ValueError(f"{file} is not a regular file")
    most = _MOST_OF_TOML if file.suffix == ".toml" else _MOST_BYTES
    if (size := file.stat().st_size) > most:
        raise ValueError(f"it has {size:,} bytes, but may have at most {most:,}")
    return file.read_text(encoding="utf-8")


def read_toml(file: Path, failure: type[Exception] = UsageError) -> dict[str, Any]:
    """Read a TOML file.

    Args:
        file: an existing file. The error names it with its folder.
        failure: the exception to raise if the file is not valid TOML.
    """
    try:
        return _parsed(read_text(file))
    except (ValueError, RecursionError) as error:
        raise failure(f"{file.parent.name}/{file.name} is not valid TOML: {error}.") from None


def _parsed(text: str) -> dict[str, Any]:
    if _LONG_KEY.search(text):
        raise ValueError("a key has more than 200 parts")
    return tomllib.loads(text)


def replace_text(file: Path, text: str) -> None:
    """Replace a file's text atomically: a reader finds the old text or the new one."""
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        part.replace(file)
    except OSError:
        part.unlink(missing_ok=True)
        raise
