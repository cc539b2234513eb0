"""The two ways in which the gate can't give a verdict at all.

UsageError        what was asked for can't be done: exit code 2
PreparationError  a side could not be made ready: exit code 3
"""


class UsageError(Exception):
    """What was asked for can't be done; the message is one sentence for the person who asked."""


class PreparationError(Exception):
    """A side could not be made ready, so nothing can be said about it."""
