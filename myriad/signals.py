"""What a process does at SIGINT, and at SIGTERM before there is anything to save.

The command line needs it before anything else, so this module loads nothing heavy.
"""

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

# Within so many seconds the same signal is one and the same: it may come to a process by its
# launcher and by its group.
IN_A_ROW_S = 1.0


class Interrupts:
    """Raises `KeyboardInterrupt` once for several SIGINTs in a row, and loses none."""

    def __init__(self):
        self._last_s = -math.inf

    def install(self) -> None:
        """Handle SIGINT, unless it is ignored."""
        sys.unraisablehook = self.repeat
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self.handle)

    def handle(self, *_: Any) -> None:
        """Raise, but not into the way out of the one before."""
        now_s = time.monotonic()
        if now_s - self._last_s >= IN_A_ROW_S:
            self._last_s = now_s
            raise KeyboardInterrupt

    def repeat(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Raise an interrupt again that Python drops, as it does in JAX's garbage collection.

        Python would print a traceback and go on.
        """
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            # By then the callback has returned, so that this one is raised.
            threading.Timer(0.05, self._again).start()
        elif isinstance(unraisable.exc_value, _EndedBySignal):
            number = unraisable.exc_value.number
            threading.Timer(0.05, os.kill, [os.getpid(), number]).start()
        else:
            sys.__unraisablehook__(unraisable)

    def _again(self) -> None:
        self._last_s = -math.inf
        os.kill(os.getpid(), signal.SIGINT)


class _EndedBySignal(SystemExit):
    def __init__(self, number: int):
        super().__init__(128 + number)
        self.number = number


def end_by_signal(number: int, _: Any) -> None:
    """Handle a signal before there is anything to save, so that other processes hear of it.

    Raises:
        SystemExit: always, with a shell's code for a process that this signal ended.
    """
    raise _EndedBySignal(number)


@contextlib.contextmanager
def interrupts_kept() -> Iterator[None]:
    """Lose no interrupt in the block, whoever handles them.

    If you have set `sys.unraisablehook`, it stays as it is, and interrupts may get lost.
    """
    if sys.unraisablehook is not sys.__unraisablehook__:
        yield
        return
    repeat = Interrupts().repeat
    sys.unraisablehook = repeat
    try:
        yield
    finally:
        if sys.unraisablehook is repeat:
            sys.unraisablehook = sys.__unraisablehook__


@contextlib.contextmanager
def interrupts_end_at_once() -> Iterator[None]:
    """Let an interrupt kill the process while its modules load. Nothing has been done yet.

    An exception may not come out of a module written in C as what it was: an interrupted import of
    jaxlib is an `ImportError`.
    """
    previous = signal.getsignal(signal.SIGINT)
    if not isinstance(getattr(previous, "__self__", None), Interrupts):
        yield  # They are ignored, or the process is somebody else's.
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
