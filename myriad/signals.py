"""Handlers of SIGINT.

The command line needs them before anything else, so this module imports nothing heavy.
"""

import math
import signal
import time
from typing import Any

# The same signal within this time counts once, since it may reach a process both from its launcher
# and through its process group.
IN_A_ROW_S = 1.0


def end_at_once() -> None:
    """Let an interrupt kill the process while modules load, when nothing has been done yet.

    A module written in C may turn the exception into another one: an interrupted import of jaxlib
    raises an `ImportError`. A SIGINT that is ignored stays so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_once() -> None:
    """After `end_at_once`, have several interrupts in a row raise one `KeyboardInterrupt`."""
    last_s = -math.inf

    def handle(*_: Any) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s >= IN_A_ROW_S:  # Otherwise the previous one is still being handled.
            last_s = now_s
            raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, handle)
