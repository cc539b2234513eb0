"""Read result files that a killed run, a full disk or a stranger may have damaged.

A reader calls these functions while it reads a file. If one raises `DAMAGE`, the reader leaves that
file out. Values that pass are safe in arithmetic, on a page and as keys.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

from perfgate.files import read_text

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
