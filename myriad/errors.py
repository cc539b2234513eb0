"""Every error Myriad raises on purpose, and the one sentence that each must be.

    MyriadError
    ├── InvalidArgumentError    (ValueError)    names the field, the value and what would be right
    │   ├── UnknownNameError    (ValueError)    a name nobody registered; lists the known ones and the closest
    │   └── FaultyEnvironmentError (ValueError) an environment that breaks the contract; a sentence for each fault
    ├── BackendStartedError     (RuntimeError)  an XLA option given after JAX has read its options
    ├── DivergedError           (ArithmeticError)  a NaN stopped a training; says where
    ├── DeviceNotFoundError     (RuntimeError)  a platform was asked for that this machine lacks
    └── NotInstalledError       (ImportError)   an optional library is needed; names the command that installs it

Each is also the built-in that a caller would expect, so `except ValueError` keeps working.
"""

import difflib
from collections.abc import Iterable


class MyriadError(Exception):
    """Base of all errors raised on purpose by Myriad."""


class InvalidArgumentError(MyriadError, ValueError):
    """A value that can't be used."""


class UnknownNameError(InvalidArgumentError):
    """A name that is not registered.

    Example:
        >>> str(UnknownNameError("environment", "cartpol", ["cartpole-control", "snake"]))
        "unknown environment 'cartpol'; did you mean 'cartpole-control'? Known: cartpole-control,
        snake."
    """

    def __init__(self, kind: str, name: object, known: Iterable[str], aliases: Iterable[str] = ()):
        known = sorted(known)
        close = difflib.get_close_matches(str(name), [*known, *aliases], n=1, cutoff=0.4)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        super().__init__(f"unknown {kind} {name!r}{hint} Known: {', '.join(known) or 'none'}.")


class FaultyEnvironmentError(InvalidArgumentError):
    """An environment that breaks the contract of `Environment`; `faults` holds a sentence for each way it does."""

    def __init__(self, name: str, faults: Iterable[str]):
        self.faults = list(faults)
        super().__init__(
            "\n".join(
                [f"{name} has {len(self.faults)} fault(s):", *(f"- {x}" for x in self.faults)]
            )
        )


class BackendStartedError(MyriadError, RuntimeError):
    """An option came after JAX's backend had started and could no longer take effect."""


class DivergedError(MyriadError, ArithmeticError):
    """A training came to a NaN."""


class DeviceNotFoundError(MyriadError, RuntimeError):
    """The platform asked for is not on this machine."""


class NotInstalledError(MyriadError, ImportError):
    """An optional library is needed for what was asked."""
