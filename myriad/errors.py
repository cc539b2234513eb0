"""Every error that Myriad raises on purpose. Its message is one sentence.

    MyriadError
    ├── InvalidArgumentError (ValueError)      names the field, the value and what would be right
    │   ├── UnknownNameError (ValueError)      lists the known names and the closest one
    │   └── FaultyEnvironmentError (ValueError)  has a sentence for each fault
    ├── BackendStartedError (RuntimeError)     an XLA option came after JAX had read its options
    ├── DivergedError (ArithmeticError)        a NaN or an infinity stopped a training
    ├── DeviceNotFoundError (RuntimeError)     you asked for a platform that this machine lacks
    └── NotInstalledError (ImportError)        names the command that installs the library

A `ShortTrainingWarning` is no error: the training runs as you asked for.

Each is also the built-in that you would expect, so `except ValueError` keeps working.
"""

import difflib
from collections.abc import Iterable


class ShortTrainingWarning(UserWarning):
    """A training is so short that it can't be expected to learn anything."""


class MyriadError(Exception):
    """Base of all errors raised on purpose by Myriad."""


class InvalidArgumentError(MyriadError, ValueError):
    """A value that can't be used."""


class UnknownNameError(InvalidArgumentError):
    """A name that is not registered.

    Example:
        >>> str(UnknownNameError("agent", "pppo", ["dqn", "ppo"]))
        "unknown agent 'pppo'; did you mean 'ppo'? Known: dqn, ppo."
    """

    def __init__(self, kind: str, name: object, known: Iterable[str], aliases: Iterable[str] = ()):
        known = sorted(known)
        close = difflib.get_close_matches(str(name), [*known, *aliases], n=1, cutoff=0.4)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        super().__init__(f"unknown {kind} {name!r}{hint} Known: {', '.join(known) or 'none'}.")


class FaultyEnvironmentError(InvalidArgumentError):
    """An environment that breaks the contract of `Environment`.

    Attributes:
        faults: a sentence for each fault.
    """

    def __init__(self, name: str, faults: Iterable[str]):
        self.faults = list(faults)
        lines = [f"{name} has {len(self.faults)} fault(s):", *(f"- {x}" for x in self.faults)]
        super().__init__("\n".join(lines))


class BackendStartedError(MyriadError, RuntimeError):
    """An option came after JAX's backend had started and could no longer take effect."""


class DivergedError(MyriadError, ArithmeticError):
    """A training came to a NaN, or to an infinity where none can be learned from."""


class DeviceNotFoundError(MyriadError, RuntimeError):
    """The platform asked for is not on this machine."""


class NotInstalledError(MyriadError, ImportError):
    """An optional library is needed for what was asked."""
