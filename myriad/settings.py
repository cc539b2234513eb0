"""Where Myriad keeps things on this machine. Environment variables move them or turn them off."""

import os
from collections.abc import Iterable
from pathlib import Path

_OFF = ("off", "0", "false", "no", "")
_LEFT_OUT = "MYRIAD_WITHOUT_XLA_OPTIONS"


def home() -> Path:
    """Return the folder of what is kept between runs: `MYRIAD_HOME`, or `~/.myriad`."""
    return Path(os.environ.get("MYRIAD_HOME") or Path.home() / ".myriad")


def compilation_cache() -> Path | None:
    """Return the folder of compiled programs, or None if you turned it off.

    `MYRIAD_COMPILATION_CACHE` names the folder; off, 0, false, no or nothing turns it off. By
    default it is `$XDG_CACHE_HOME/myriad/xla`, and that is below `~/.cache` if you set none.
    """
    value = os.environ.get("MYRIAD_COMPILATION_CACHE")
    if value is None:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "myriad" / "xla"
    return None if value.lower() in _OFF else Path(value)


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
