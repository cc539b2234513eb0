"""Handlers of SIGINT.

The command line needs them before anything else, so this module imports nothing heavy.
"""

import contextlib
import math
import signal
import time
from collections.abc import Iterator
from typing import Any

# The same signal within this time counts once, since it may reach a process both from its launcher
# and through its process group.
IN_A_ROW_S = 1.0


class Interrupts:
    """Raises one `KeyboardInterrupt` for several SIGINTs in a row."""

    def __init__(self):
        self._last_s = -math.inf

    def install(self) -> None:
        """Handle SIGINT, unless it is ignored."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self.handle)

    def handle(self, *_: Any) -> None:
        """Raise, unless the previous interrupt is still being handled."""
        now_s = time.monotonic()
        if now_s - self._last_s >= IN_A_ROW_S:
            self._last_s = now_s
            raise KeyboardInterrupt


@contextlib.contextmanager
def interrupts_end_at_once() -> Iterator[None]:
    """Let an interrupt kill the process while modules load, when nothing has been done yet.

    A module written in C may turn the exception into another one: an interrupted import of jaxlib
    raises an `ImportError`.
    """
    previous = signal.getsignal(signal.SIGINT)
    if not isinstance(getattr(previous, "__self__", None), Interrupts):
        yield  # Interrupts are ignored, or the caller handles them.
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
