"""Keep orbax's own noise from standard error: a failed save or restore is said in one sentence."""

import contextlib
import logging
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

_LOGGERS = ("absl", "asyncio", "concurrent.futures")
# What threads say whose event loop ended with the first error.
_LEFT_BEHIND = ("Event loop is closed", "_ssock", "was never awaited")


@contextlib.contextmanager
def orbax_silenced() -> Iterator[None]:
    """Print nothing of the errors that orbax meets in the block besides the one that it raises.

    Threads that it leaves behind after an error fail one by one, even after the block. So what they
    log, their closed event loops and coroutines that nobody awaited stay unsaid in this process
    from then on. Everything else is printed as before.
    """
    if _active:
        yield  # It is silent, after an error or around this block.
        return
    silence = _Silence()
    silence.begin()
    try:
        yield
    except BaseException:
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        raise
    silence.end()


class _Silence:
    """Stands before Python's reports of errors, and drops those of orbax's threads."""

    def __init__(self):
        self._uncaught = sys.excepthook
        self._unraisable = sys.unraisablehook

    def begin(self) -> None:
        """Drop them from now on."""
        _active.append(self)
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self.passes)
        sys.excepthook = self.uncaught
        sys.unraisablehook = self.unraisable

    def end(self) -> None:
        """Print them again. A hook before which somebody has put another one stays, and passes."""
        _active.remove(self)
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self.passes)
        if sys.excepthook == self.uncaught:
            sys.excepthook = self._uncaught
        if sys.unraisablehook == self.unraisable:
            sys.unraisablehook = self._unraisable

    def passes(self, record: logging.LogRecord) -> bool:
        """Return whether a line of a log is not orbax's."""
        error = record.exc_info[1] if record.exc_info else None
        return not (_is_of_orbax(error) or "orbax" in f"{record.msg} {record.args}")

    def uncaught(self, kind: Any, error: Any, trace: Any) -> None:
        # What the block raised comes from orbax too, and must be printed if nobody caught it.
        if not (self in _active and _is_left_behind(error)):
            self._uncaught(kind, error, trace)

    def unraisable(self, args: "sys.UnraisableHookArgs") -> None:
        if not (self in _active and _is_of_orbax(args.exc_value)):
            self._unraisable(args)


_active: list[_Silence] = []


def _is_left_behind(error: BaseException | None) -> bool:
    return isinstance(error, Exception) and any(words in str(error) for words in _LEFT_BEHIND)


def _is_of_orbax(error: BaseException | None) -> bool:
    if not isinstance(error, Exception):
        return False  # An interrupt is nobody's noise.
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    modules = (frame.f_globals.get("__name__", "") for frame in frames)
    return _is_left_behind(error) or any(name.split(".")[0] == "orbax" for name in modules)
