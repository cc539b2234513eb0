"""The two ways in which the gate can't give a verdict at all.

UsageError        what was asked for can't be done: exit code 2
PreparationError  a side could not be made ready: exit code 3
"""

import difflib
from collections.abc import Iterable


class UsageError(Exception):
    """What was asked for can't be done; the message is one sentence for the person who asked."""


class PreparationError(Exception):
    """A side could not be made ready, so nothing can be said about it."""


def closest(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that refuses a name: the one that was meant, or all of them."""
    known = tuple(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}."
