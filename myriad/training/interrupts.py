"""Signals that ask a training to end. It saves a checkpoint first and says how to resume."""

import contextlib
import shlex
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from myriad import distributed
from myriad.envs import OBJECT
from myriad.files import say
from myriad.signals import IN_A_ROW_S
from myriad.training.config import TrainingConfig, names_of_code


class Interrupt(threading.Event):
    """Set by the first signal that asks the process to end, so that the running chunk can finish.

    Attributes:
        number: which signal it was.
    """

    number = 0


class SharedInterrupt(Interrupt):
    """A signal to any of several processes. JAX has all of them see it between the same chunks."""

    def __init__(self):
        super().__init__()
        self._checks = 0
        self._is_seen = False

    def set(self) -> None:
        """Have JAX tell all processes. It handles SIGTERM."""
        signal.raise_signal(signal.SIGTERM)

    def is_set(self) -> bool:
        """Return whether all processes end. Each must call this equally often."""
        from jax.experimental.multihost_utils import reached_preemption_sync_point

        self._checks += 1
        self._is_seen = self._is_seen or reached_preemption_sync_point(self._checks)
        return self._is_seen


@contextlib.contextmanager
def interrupt_noted() -> Iterator[Interrupt]:
    """Turn the first SIGINT or SIGTERM into a flag. A later one ends the process.

    The same signal again within a second is taken for the first one.
    A signal that is ignored stays ignored, and your own handler of SIGTERM stays in place.
    """
    noted = SharedInterrupt() if distributed.count() > 1 else Interrupt()
    noted_at = 0.0
    previous: dict[int, Any] = {}
    # Only the main thread may set handlers, and only the main thread is interrupted.
    if threading.current_thread() is threading.main_thread():
        # None stands for a handler that Python didn't install and can't put back.
        if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):
            previous[signal.SIGINT] = signal.getsignal(signal.SIGINT)
        if distributed.count() == 1 and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            previous[signal.SIGTERM] = signal.SIG_DFL

    def note(number: int, _: Any) -> None:
        nonlocal noted_at
        if not noted.number:
            noted.number = number
            noted_at = time.monotonic()
            noted.set()
        elif number != noted.number or time.monotonic() - noted_at >= IN_A_ROW_S:
            restore()
            signal.raise_signal(number)

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    for number in previous:
        signal.signal(number, note)
    try:
        yield noted
    finally:
        restore()


def end_interrupted(number: int, done: int, total: int, path: Path, config: TrainingConfig) -> None:
    """Say how to go on, and end as the signal would have ended the process.

    Args:
        number: the signal; 0 if another process got it.
        done: steps that are saved.
        total: steps of the whole run.
        path: the run's folder.
        config: the training.

    Raises:
        KeyboardInterrupt: it was an interrupt.
    """
    several = " --distributed" if distributed.count() > 1 else ""
    trust = " --trust" if names_of_code(config.fields()) else ""
    again = f"myriad train{several} --resume {shlex.quote(str(path))}{trust}"
    if config.env.startswith(OBJECT):
        again = f"resume({str(path)!r}, env=...)"
    said = f"stopped after {done:,} of {total:,} steps, which are saved; `{again}` goes on"
    says = [said] if distributed.is_first() else []
    if several:
        jax.distributed.shutdown()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if number == signal.SIGINT:
        raise KeyboardInterrupt(*says)
    for sentence in says:
        say(sentence)
    signal.raise_signal(number or signal.SIGTERM)
