"""Read files that may be damaged, and replace files atomically.

A killed run, a full disk or a stranger may have damaged a file of results. Its reader calls
`read_json` and the functions below it, and leaves the file out if one raises `DAMAGE`. Values that
pass are safe in arithmetic, on a page and as keys.
"""

import json
import math
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from perfgate.errors import UsageError

# All errors that reading a file of any content may raise.
DAMAGE = (
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)
# Characters that XML or UTF-8 can't hold.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
# Beyond these limits, ratios and sums would overflow a float.
_LARGEST = 1e60
_SMALLEST = 1e-60


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


def replace_text(file: Path, content: str) -> None:
    """Replace a file's text atomically: a reader finds the old text or the new one."""
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        part.write_text(content, encoding="utf-8", newline="")
        part.replace(file)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file."""
    found = json.loads(read_text(path))
    # This raises if a text holds half a surrogate pair, which no page can hold.
    json.dumps(found, ensure_ascii=False).encode()
    return table(found)


def text(value: Any) -> str:
    """Return a text that can be written to a page."""
    if not isinstance(value, str) or _UNWRITABLE.search(value):
        raise ValueError(f"{value!r} is not a text")
    return value


def number(value: Any, least: float = -_LARGEST, most: float = _LARGEST) -> float:
    """Return a finite number that is small enough for ratios and sums."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    if not least <= value <= most or 0 < abs(value) < _SMALLEST:
        raise ValueError(f"{value!r} is out of range")
    return value


def finite(value: Any) -> float | None:
    """Return a number, or None for None, NaN and the infinities."""
    is_there = value is not None and math.isfinite(value)
    return number(value) if is_there else None


def integer(value: Any, least: int, most: int) -> int:
    """Return an integer within a range."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r} is not an integer from {least} to {most}")
    return value


def table(value: Any) -> dict[str, Any]:
    """Return a JSON object."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return value


def array(value: Any) -> list[Any]:
    """Return a JSON array."""
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not an array")
    return value
