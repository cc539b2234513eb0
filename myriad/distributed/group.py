"""Messages between the processes of one training.

All processes call the same methods in the same order, so a message is identified by its number.
"""

import atexit
import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax

from myriad.distributed import gloo
from myriad.distributed.store import Store
from myriad.distributed.watch import KNOWN_S, Watch
from myriad.errors import DivergedError, InvalidArgumentError, MyriadError, ProcessLostError
from myriad.launch import INTERRUPTED, LOST, REFUSED

Result = TypeVar("Result")

# How many messages are kept. No process is further behind than the next step of a training.
_KEPT = 1_000
_LONGEST = 80


class Processes:
    """This process among those of one training. If it is alone, no method waits.

    Args:
        store: the store that the processes share; None if this process is alone.
        process_id: the number of this process.
        count: how many processes there are.
        host: the host of process 0.

    Attributes:
        process_id: the number of this process, from 0.
        count: how many processes there are.
    """

    def __init__(
        self, store: Store | None = None, process_id: int = 0, count: int = 1, host: str = ""
    ):
        self.process_id = process_id
        self.count = count
        self._store = store if count > 1 else None
        self._watch = None if self._store is None else Watch(self._store, process_id, count, host)
        self._messages = 0
        self._has_told = False
        # An error that every process has raised.
        self._shared: MyriadError | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and decides."""
        return self.process_id == 0

    def broadcast(self, value: Any) -> Any:
        """Return the value of process 0, which must be JSON. The others' values don't count."""
        if self._store is None:
            return value
        name = self._next()
        if self.is_first:
            self._store.set(name, value)
            return value
        return self._store.wait_for(name)

    def all_gather(self, value: Any) -> list[Any]:
        """Return the values of all processes, in the order of their numbers."""
        if self._store is None:
            return [value]
        name = self._next()
        self._store.set(f"{name}/{self.process_id}", value)
        return [self._store.wait_for(f"{name}/{number}") for number in range(self.count)]

    def together(self, function: Callable[[], Result]) -> Result:
        """Call a function in every process, and fail in all if it fails in one.

        Raises:
            MyriadError: the function raised it in this process.
            InvalidArgumentError: the function raised an error in another process.
        """
        if self._store is None:
            return function()
        result: Any = None
        own: MyriadError | None = None
        try:
            result = function()
        except MyriadError as error:
            own = error
        problems = self.all_gather(None if own is None else str(own))
        for number, problem in enumerate(problems):
            if problem is not None:
                self._shared = own or InvalidArgumentError(f"process {number}: {problem}")
                raise self._shared
        return result

    def on_first(self, function: Callable[[], Result]) -> Result | None:
        """Call a function only in process 0, and fail in all processes if it fails there.

        Returns:
            the result of the function; None in the other processes.
        """
        return self.together(lambda: function() if self.is_first else None)

    def require_alike(self, facts: Mapping[str, Any]) -> None:
        """Raise unless all processes have the same facts.

        Pass the most important facts first, since one may follow from another.

        Raises:
            InvalidArgumentError: a fact differs. The message names the process and the first such
                fact.
        """
        first, *others = self.all_gather(dict(facts))
        for number, theirs in enumerate(others, 1):
            for name in [*first, *sorted(theirs.keys() - first.keys())]:
                if theirs.get(name) != first.get(name):
                    self._shared = InvalidArgumentError(
                        f"process {number} has {name} = {_short(theirs.get(name))}, but process 0 "
                        f"has {_short(first.get(name))}: start all processes alike."
                    )
                    raise self._shared

    def interrupt(self, number: int) -> None:
        """Tell process 0 that a signal asked this process to end."""
        if self._store is not None:
            self._store.set(f"interrupt/{self.process_id}", number)

    def interrupted(self) -> int:
        """Return the signal that asked any process to end, as process 0 knows it, or 0."""
        return 0 if self._watch is None else self._watch.signal

    def go_on_with(self, run_folder: Path) -> None:
        """Name the run's folder, once it has a checkpoint from which to resume."""
        if self._watch is not None:
            self._watch.run_folder = run_folder

    def undo_with(self, undo: Callable[[], None] | None) -> None:
        """From now on, have process 0 call `undo` if another process ends all of them."""
        if self._watch is not None:
            self._watch.undo = undo

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """End the other processes as well if this one fails in the block."""
        try:
            yield
        except BaseException as error:
            self._tell(error)
            raise

    def leave(self) -> None:
        """Wait until all processes are here. After that, none needs another one.

        Processes also do this when they exit. After its own error, a process waits for nobody.
        """
        if self._watch is None:
            return
        if not self._has_told:
            self.all_gather(None)  # If a process is gone, the watch ends those that wait here.
        self._watch.close()
        self._watch = None
        if not self._has_told:
            jax.distributed.shutdown()

    def _tell(self, error: BaseException) -> None:
        """Tell the others that this process ends, unless all come to the same error."""
        if self._watch is None or self._has_told:
            return  # The others know already, or no longer need this process.
        if error is self._shared or isinstance(error, DivergedError):
            return
        self._has_told = True
        if _is_of_connection(error):
            # The watch needs a while to find out which process is lost, and then ends this one.
            self._watch.suspect()
            time.sleep(KNOWN_S)
        self._watch.end_others(_reason(error), _exit_code(error))

    def _next(self) -> str:
        self._messages += 1
        old = self._messages - _KEPT
        if self._store is not None and self.is_first and old > 0:
            self._store.forget(f"message/{old}")
        return f"message/{self._messages}"


_alone = Processes()
_all: Processes | None = None


def processes() -> Processes:
    """Return this process among those that `configure(distributed=...)` has met."""
    global _all  # noqa: PLW0603 (JAX has one such service for the whole process)
    if not jax.distributed.is_initialized():
        return _alone
    if _all is None:
        _all = Processes(*Store.of_jax())
        if jax.default_backend() == "cpu":  # Looking up the backend starts the threads.
            gloo.give_way()
        # A process that ends before the others would look lost to them.
        atexit.register(_all.leave)
    return _all


def _is_of_connection(error: BaseException) -> bool:
    """Return whether an error says that a connection to another process broke."""
    said = str(error)
    return isinstance(error, ProcessLostError) or any(
        name in said for name in ("Gloo", "NCCL", "coordination service")
    )


def _reason(error: BaseException) -> str:
    """Return why this process ends, for the messages of the others."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return f"it got {signal.Signals(_exit_code(error) - 128).name}"
    return str(error).rstrip(".") or type(error).__name__


def _exit_code(error: BaseException) -> int:
    """Return the exit code of processes that end by an error of one of them."""
    if isinstance(error, SystemExit):
        return int(error.code or 0)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    # A restart would fail again if something is wrong with the training or the disk.
    return REFUSED if isinstance(error, MyriadError | OSError) else LOST


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
