"""Where Myriad keeps things on this machine. Environment variables move them or turn them off."""

import os
from collections.abc import Iterable
from pathlib import Path

from myriad.errors import InvalidArgumentError

_OFF = ("off", "0", "false", "no", "")
_LEFT_OUT = "MYRIAD_WITHOUT_XLA_OPTIONS"


def home() -> Path:
    """Return the folder of what is kept between runs: `MYRIAD_HOME`, or `~/.myriad`.

    Raises:
        InvalidArgumentError: `MYRIAD_HOME` is not set, and the user has no home folder.
    """
    if named := os.environ.get("MYRIAD_HOME"):
        return Path(named)
    if (user := _user_home()) is None:
        raise InvalidArgumentError(
            "this user has no home folder to keep results in: set MYRIAD_HOME to a folder."
        )
    return user / ".myriad"


def compilation_cache() -> Path | None:
    """Return the folder of compiled programs, or None if you turned it off.

    `MYRIAD_COMPILATION_CACHE` names the folder; off, 0, false, no or nothing turns it off. By
    default it is `$XDG_CACHE_HOME/myriad/xla`, and that is below `~/.cache` if you set none. A user
    without a home folder has no default.
    """
    value = os.environ.get("MYRIAD_COMPILATION_CACHE")
    if value is not None:
        return None if value.lower() in _OFF else Path(value)
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches) / "myriad" / "xla"
    user = _user_home()
    return None if user is None else user / ".cache" / "myriad" / "xla"


def _user_home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # A container may run under a user that its system doesn't know.
        return None


def xla_flags() -> list[str]:
    """Return the options in `XLA_FLAGS`, sorted, since their order means nothing."""
    return sorted(os.environ.get("XLA_FLAGS", "").split())


def left_out_xla_options() -> list[str]:
    """Return the options in `MYRIAD_WITHOUT_XLA_OPTIONS`, names with commas between them."""
    return [name.strip() for name in os.environ.get(_LEFT_OUT, "").split(",") if name.strip()]


def leave_out_xla_options(names: Iterable[str]) -> None:
    """Name options in `MYRIAD_WITHOUT_XLA_OPTIONS`, for this process and its children."""
    if left_out := list(dict.fromkeys(names)):
        os.environ[_LEFT_OUT] = ",".join(left_out)
