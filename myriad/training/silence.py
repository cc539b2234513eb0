"""Keep orbax's own noise from standard error: a failed save or restore is said in one sentence."""

import contextlib
import functools
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

_LOGGERS = ("absl", "asyncio", "concurrent.futures")
# What threads say whose event loop ended with the first error.
_LEFT_BEHIND = ("Event loop is closed", "_ssock", "was never awaited")


@contextlib.contextmanager
def orbax_silenced() -> Iterator[None]:
    """Print nothing of the errors that orbax meets in the block besides the one that it raises.

    Threads that it leaves behind fail one by one, even after the block. So what they say stays
    unsaid after an error. Other errors are printed as before.
    """
    _drop_what_is_left_behind()
    loud = [logger for name in _LOGGERS if not (logger := logging.getLogger(name)).disabled]
    for logger in loud:
        logger.disabled = True
    try:
        yield
    except BaseException:
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        raise
    for logger in loud:
        logger.disabled = False


@functools.cache
def _drop_what_is_left_behind() -> None:
    """Have Python print neither uncaught nor unraisable errors of threads that orbax left.

    Done once and never undone, since those threads outlive every block.
    """
    uncaught = sys.excepthook
    unraisable = sys.unraisablehook

    def say_uncaught(kind: Any, error: Any, traceback: Any) -> None:
        if not _is_left_behind(error):
            uncaught(kind, error, traceback)

    def say_unraisable(args: "sys.UnraisableHookArgs") -> None:
        if not _is_left_behind(args.exc_value):
            unraisable(args)

    sys.excepthook = say_uncaught
    sys.unraisablehook = say_unraisable


def _is_left_behind(error: BaseException | None) -> bool:
    return any(words in str(error) for words in _LEFT_BEHIND)
