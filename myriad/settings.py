"""Where Myriad keeps things on this machine, each place moved or switched off by an environment variable."""

import os
from pathlib import Path

_OFF = ("off", "0", "false", "no", "")


def home() -> Path:
    """Return the folder of what outlives a run: `MYRIAD_HOME`, or `~/.myriad`."""
    return Path(os.environ.get("MYRIAD_HOME") or Path.home() / ".myriad")


def compilation_cache() -> Path | None:
    """Return the folder of compiled programs, or None where `MYRIAD_COMPILATION_CACHE` is off, 0, false, no or empty.

    By default `$XDG_CACHE_HOME/myriad/xla`; any other value of `MYRIAD_COMPILATION_CACHE` is the
    folder itself.
    """
    value = os.environ.get("MYRIAD_COMPILATION_CACHE")
    if value is None:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "myriad" / "xla"
    return None if value.lower() in _OFF else Path(value)


def xla_flags() -> list[str]:
    """Return what `XLA_FLAGS` asks of XLA, sorted: the same options in another order are the same."""
    return sorted(os.environ.get("XLA_FLAGS", "").split())
