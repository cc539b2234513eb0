"""Signals that ask a training to end: it saves first, and says how to go on."""

import contextlib
import shlex
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from myriad.files import say


class Interrupt(threading.Event):
    """Set by the first signal that asks the process to end, so that the running chunk ends well.

    Attributes:
        number: which signal it was.
    """

    number = 0

    def end(self, said: str) -> None:
        """End as the signal would have ended the process, now that all is saved.

        Raises:
            KeyboardInterrupt: it was an interrupt.
        """
        if self.number == signal.SIGINT:
            raise KeyboardInterrupt(said)
        say(said)
        signal.raise_signal(self.number)


@contextlib.contextmanager
def interrupt_noted() -> Iterator[Interrupt]:
    """Turn the first SIGINT or SIGTERM into a flag. A second one ends the process.

    A signal that is ignored stays ignored, and a SIGTERM that you handle stays yours.
    """
    noted = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread may set handlers, and only it is interrupted.
        yield noted
        return
    previous: dict[int, Any] = {}
    # None is a handler that Python didn't install, and can't put back.
    if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):
        previous[signal.SIGINT] = signal.getsignal(signal.SIGINT)
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        previous[signal.SIGTERM] = signal.SIG_DFL

    def note(number: int, _: Any) -> None:
        noted.number = number
        noted.set()
        restore()

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    for number in previous:
        signal.signal(number, note)
    try:
        yield noted
    finally:
        restore()


def how_to_go_on(done: int, total: int, path: Path) -> str:
    """Return what an interrupted run says.

    Args:
        done: steps that are saved.
        total: steps of the whole run.
        path: the run's folder.
    """
    return (
        f"stopped after {done:,} of {total:,} steps, which are saved; "
        f"`myriad train --resume {shlex.quote(str(path))}` goes on"
    )
