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

    Threads that it leaves behind after an error fail one by one, even after the block. So their
    errors stay unsaid in this process from then on. All others are printed as before.
    """
    is_new = _SILENCE.begin()
    try:
        yield
    except BaseException:
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        raise
    if is_new:
        _SILENCE.end()


class _Silence:
    """Stands before Python's reports of errors, and drops those of orbax."""

    def __init__(self):
        self._is_on = False
        self._uncaught = sys.excepthook
        self._unraisable = sys.unraisablehook

    def begin(self) -> bool:
        """Drop them from now on. Return False if that was so before."""
        if self._is_on:
            return False
        self._is_on = True
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self.passes)
        self._uncaught, sys.excepthook = sys.excepthook, self.uncaught
        self._unraisable, sys.unraisablehook = sys.unraisablehook, self.unraisable
        return True

    def end(self) -> None:
        """Print them again."""
        if (sys.excepthook, sys.unraisablehook) != (self.uncaught, self.unraisable):
            return  # Somebody has put a hook of their own before ours, which calls ours.
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self.passes)
        sys.excepthook, sys.unraisablehook = self._uncaught, self._unraisable
        self._is_on = False

    def passes(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not (_is_of_orbax(error) or "orbax" in record.getMessage())

    def uncaught(self, kind: Any, error: Any, trace: Any) -> None:
        if not _is_of_orbax(error):
            self._uncaught(kind, error, trace)

    def unraisable(self, args: "sys.UnraisableHookArgs") -> None:
        if not _is_of_orbax(args.exc_value):
            self._unraisable(args)


_SILENCE = _Silence()


def _is_of_orbax(error: BaseException | None) -> bool:
    if error is None:
        return False
    if any(words in str(error) for words in _LEFT_BEHIND):
        return True
    return any("orbax" in frame.filename for frame in traceback.extract_tb(error.__traceback__))
