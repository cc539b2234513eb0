"""Keep orbax's output off standard error, so that a failed save or restore is one sentence."""

import contextlib
import logging
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

_LOGGERS = ("absl", "asyncio", "concurrent.futures")
# Errors of threads whose event loop ended with the first error.
_LEFT_BEHIND = ("Event loop is closed", "_ssock", "was never awaited")


@contextlib.contextmanager
def orbax_silenced() -> Iterator[None]:
    """Silence all errors of orbax in the block except the one that it raises.

    Threads that it leaves behind after an error fail one by one, even after the block. So after an
    error this process no longer prints what they log, nor their closed event loops, nor their
    coroutines that were never awaited. Everything else is printed as before.
    """
    if _active:
        yield  # It is silent already, after an error or inside another such block.
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
    """Filters Python's reports of errors, and drops those of orbax's threads."""

    def __init__(self):
        self._uncaught = sys.excepthook
        self._unraisable = sys.unraisablehook

    def begin(self) -> None:
        """Start to drop reports."""
        _active.append(self)
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self.passes)
        sys.excepthook = self.uncaught
        sys.unraisablehook = self.unraisable

    def end(self) -> None:
        """Stop dropping reports.

        If another hook was installed over ours, ours must stay, but it passes everything on.
        """
        _active.remove(self)
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self.passes)
        if sys.excepthook == self.uncaught:
            sys.excepthook = self._uncaught
        if sys.unraisablehook == self.unraisable:
            sys.unraisablehook = self._unraisable

    def passes(self, record: logging.LogRecord) -> bool:
        """Return whether a log record is not orbax's."""
        error = record.exc_info[1] if record.exc_info else None
        return not (_is_of_orbax(error) or "orbax" in f"{record.msg} {record.args}")

    def uncaught(self, kind: Any, error: Any, trace: Any) -> None:
        # The error that the block raised is orbax's as well, and must be printed if uncaught.
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
        return False  # Never drop an interrupt.
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    modules = (frame.f_globals.get("__name__", "") for frame in frames)
    return _is_left_behind(error) or any(name.split(".")[0] == "orbax" for name in modules)
