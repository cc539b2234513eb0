"""Every error that Myriad raises on purpose. Its message is one sentence.

    MyriadError
    ├── InvalidArgumentError (ValueError)      names the field, its value and what is allowed
    │   ├── UnknownNameError (ValueError)      lists the known names and the closest one
    │   ├── FaultyEnvironmentError (ValueError)  has a sentence for each fault
    │   └── FaultyAgentError (ValueError)        likewise
    ├── BackendStartedError (RuntimeError)     an XLA option came after JAX had read its options
    ├── DivergedError (ArithmeticError)        a NaN or an infinity stopped a training
    ├── DeviceNotFoundError (RuntimeError)     you asked for a platform that this machine lacks
    └── NotInstalledError (ImportError)        names the command that installs the library

Each error is also the built-in that you would expect, so `except ValueError` keeps working.

An `EnvironmentWarning`, an `AgentWarning` and a `ShortTrainingWarning` are not errors: the training
runs as you asked.
"""

import difflib
import re
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

__all__ = [
    "AgentWarning",
    "BackendStartedError",
    "DeviceNotFoundError",
    "DivergedError",
    "EnvironmentWarning",
    "FaultyAgentError",
    "FaultyEnvironmentError",
    "InvalidArgumentError",
    "MyriadError",
    "NotInstalledError",
    "ShortTrainingWarning",
    "UnknownNameError",
]

# How much of a value an error message repeats.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = 12


def shown(value: Any) -> str:
    """Return a value for a message: as Python writes it, but short and on one line.

    The password of an address is left out.
    """
    if isinstance(value, str | PurePath):
        value = without_passwords(str(value))
    try:
        text = " ".join(_SHORT.repr(value).split())
        # A space has a dtype, too, but no number of axes. A class of numbers describes its own.
        ndim = getattr(value, "ndim", 0)
        is_array = isinstance(ndim, int) and ndim > 0
        return f"{text} of {value.dtype} {list(value.shape)}" if is_array else text
    except Exception:  # noqa: BLE001 (the `__repr__` of your own value may raise anything)
        return f"a value of type {type(value).__name__}"


def without_passwords(text: str) -> str:
    """Return a text in which stars replace the password of every address."""
    text = re.sub(r"(:/+[^/@:\s]*):[^@\s]*@", r"\1:***@", text)
    return re.sub(r"(?i)\b(password|passwd|pwd)=[^&\s'\"]*", r"\1=***", text)


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the name that you probably meant: one that is similar or contains yours."""
    by_lower = {each.lower(): each for each in known}
    given = name[:80].lower()
    alike = difflib.get_close_matches(given, by_lower, n=1)
    alike += [each for each in by_lower if len(given) > 2 and given in each]
    return by_lower[alike[0]] if alike else None


class EnvironmentWarning(UserWarning):
    """`check_env` found something that doesn't keep an environment from training."""


class AgentWarning(UserWarning):
    """`check_agent` found something that doesn't keep an agent from training."""


class ShortTrainingWarning(UserWarning):
    """A training is so short that it can't be expected to learn anything."""


# What pip installs. The names myriad and myriad-jax are other people's.
DISTRIBUTION = "myriad-rl"


class MyriadError(Exception):
    """Base of all errors raised on purpose by Myriad. Each is a built-in error, too.

    Example:
        >>> from myriad import make_env
        >>> try:
        ...     make_env("cartpole-control", gravty=3.7)
        ... except MyriadError as error:
        ...     print(str(error).partition(" Known")[0])
        unknown field 'gravty' of cartpole-control; did you mean 'gravity'?
    """


class InvalidArgumentError(MyriadError, ValueError):
    """A value that can't be used.

    Args:
        words: the sentence; or the name of the argument, the rule that it breaks and, if there is
            one to show, its value.

    Attributes:
        field: the name of the argument, if it was given.
        value: its value, if it was given.

    Example:
        >>> error = InvalidArgumentError("seed", "must be an integer", 0.5)
        >>> str(error), error.field, error.value
        ('seed must be an integer, but got 0.5.', 'seed', 0.5)
    """

    def __init__(self, *words: Any):
        super().__init__(*words)
        self.field: str | None = words[0] if len(words) > 1 else None
        self.value = words[2] if len(words) > 2 else None

    def __str__(self) -> str:
        if len(self.args) < 3:
            return " ".join(self.args)
        field, rule, value = self.args
        return f"{field} {rule}, but got {shown(value)}."

    def renamed(self, names: Mapping[str, str]) -> "InvalidArgumentError":
        """Return the error with the argument's name replaced by yours, from yours by Myriad's."""
        field, *rest = self.args
        return InvalidArgumentError(names[field], *rest) if rest and field in names else self


class UnknownNameError(InvalidArgumentError):
    """A name that is not registered.

    Args:
        kind: the kind of thing that it should name.
        name: the name that you gave.
        known: the names that exist.
        aliases: other names that you may have meant.
        owner: the owner of the names, for the message.

    Example:
        >>> str(UnknownNameError("agent", "pppo", ["dqn", "ppo"]))
        "unknown agent 'pppo'; did you mean 'ppo'? Known: dqn, ppo."
    """

    def __init__(
        self,
        kind: str,
        name: object,
        known: Iterable[str],
        aliases: Iterable[str] = (),
        *,
        owner: str = "",
    ):
        known = sorted(known)
        close = closest(str(name), [*known, *aliases])
        hint = f"; did you mean {close!r}?" if close else "."
        of = f" of {owner}" if owner else ""
        super().__init__(
            f"unknown {kind} {shown(name)}{of}{hint} Known: {', '.join(known) or 'none'}."
        )
        self.field, self.value = kind, name


class FaultyEnvironmentError(InvalidArgumentError):
    """An environment that breaks the contract of `Environment`. Its `faults` are sentences."""

    def __init__(self, name: str, faults: Iterable[str]):
        self.faults = list(faults)
        lines = [f"{name} has {len(self.faults)} fault(s):", *(f"- {x}" for x in self.faults)]
        super().__init__("\n".join(lines))


class FaultyAgentError(FaultyEnvironmentError):
    """An agent that breaks the contract of `Learner`. It has `faults`, too."""


class BackendStartedError(MyriadError, RuntimeError):
    """An option was set after JAX's backend had started, so it can't take effect."""


class DivergedError(MyriadError, ArithmeticError):
    """A training has a NaN, or an infinity where the agent can't learn from one."""


class DeviceNotFoundError(MyriadError, RuntimeError):
    """The machine lacks the platform that you asked for."""


class NotInstalledError(MyriadError, ImportError):
    """A feature needs an optional library that can't be imported.

    Args:
        feature: what needs it, as the message begins.
        library: its name.
        extra: our extra that installs it. None if its own name does.
    """

    def __init__(self, feature: str, library: str, extra: str | None = None):
        command = f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install {library}"
        super().__init__(f"{feature} needs {library}, which can't be imported: {command}")
