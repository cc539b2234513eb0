"""Signals that ask a training to end. It saves a checkpoint first and says how to resume."""

import contextlib
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from myriad.distributed import Processes
from myriad.files import say
from myriad.launch import how_to_resume
from myriad.signals import IN_A_ROW_S, end_by_signal


class Interrupt(threading.Event):
    """Set by the first signal that asks the process to end, so that the running chunk can finish.

    Attributes:
        number: which signal it was.
        restore: reinstalls the handlers that were there before.
    """

    number = 0
    restore: Callable[[], None] = staticmethod(lambda: None)

    def end(self, said: str) -> None:
        """End as the signal would have ended the process, now that all is saved.

        Raises:
            KeyboardInterrupt: it was an interrupt.
        """
        _end_as(self.number, said)


@contextlib.contextmanager
def interrupt_noted() -> Iterator[Interrupt]:
    """Turn the first SIGINT or SIGTERM into a flag. A later one ends the process.

    The same signal again within a second is taken for the first one.
    A signal that is ignored stays ignored, and your own handler of SIGTERM stays in place.
    """
    noted = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread may set handlers, and only the main thread is interrupted.
        yield noted
        return
    previous: dict[int, Any] = {}
    # None stands for a handler that Python didn't install and can't put back.
    if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):
        previous[signal.SIGINT] = signal.getsignal(signal.SIGINT)
    if (ours := signal.getsignal(signal.SIGTERM)) in (signal.SIG_DFL, end_by_signal):
        previous[signal.SIGTERM] = ours
    noted_at = 0.0

    def note(number: int, _: Any) -> None:
        nonlocal noted_at
        if not noted.is_set():
            noted.number = number
            noted_at = time.monotonic()
            noted.set()
        elif number != noted.number or time.monotonic() - noted_at >= IN_A_ROW_S:
            restore()
            signal.raise_signal(number)

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    noted.restore = restore
    for number in previous:
        signal.signal(number, note)
    try:
        yield noted
    finally:
        restore()


class SharedInterrupt:
    """An interrupt of any process of a training, which all processes see at the same chunk.

    Args:
        own: the interrupt of this process.
        group: the processes.

    Attributes:
        number: which signal it was, once all processes have seen it.
    """

    def __init__(self, own: Interrupt, group: Processes):
        self._own = own
        self._all = group
        self._told = False
        self.number = 0

    def is_set(self) -> bool:
        """Return whether all processes end. Each must call this equally often."""
        if self._own.number and not self._told:
            self._told = True
            self._all.interrupt(self._own.number)
        if not self.number:
            self.number = self._all.broadcast(self._own.number or self._all.interrupted())
        return self.number != 0

    def end(self, said: str) -> None:
        """End as the signal would have ended the process, now that all is saved.

        Raises:
            KeyboardInterrupt: it was an interrupt.
        """
        # No process may leave before all are here, or the others would take it for lost.
        self._all.leave()
        self._own.restore()
        _end_as(self.number, said if self._all.is_first else "")


@contextlib.contextmanager
def shared_interrupt(group: Processes) -> Iterator[SharedInterrupt]:
    """Do what `interrupt_noted` does, for all processes of a training."""
    with interrupt_noted() as own:
        yield SharedInterrupt(own, group)


def _end_as(number: int, said: str) -> None:
    """End the process as a signal would have."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt(*filter(None, [said]))
    if said:
        say(said)
    signal.raise_signal(number)


def how_to_go_on(done: int, total: int, path: Path, num_processes: int = 1) -> str:
    """Return the sentence that an interrupted run prints.

    Args:
        done: steps that are saved.
        total: steps of the whole run.
        path: the run's folder.
        num_processes: how many processes trained.
    """
    saved = f"stopped after {done:,} of {total:,} steps, which are saved"
    if num_processes > 1:
        return f"{saved}{how_to_resume(path)}"
    return f"{saved}; `myriad train --resume {shlex.quote(str(path))}` goes on"
