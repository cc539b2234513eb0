"""The two errors that keep the gate from giving a verdict.

UsageError        the gate can't do what the user asked for: exit code 2
PreparationError  a side could not be prepared: exit code 3
"""

import difflib
from collections.abc import Iterable

_MOST_NAMES = 20


class UsageError(Exception):
    """The gate can't do what the user asked for. The message says why in one sentence."""


class PreparationError(Exception):
    """A side could not be prepared, so there is nothing to compare."""


def closest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the closest known one, or all of them."""
    known = tuple(known)
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    return f"it has {', '.join(known[:_MOST_NAMES])}{more}."
