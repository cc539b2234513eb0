"""What the processes of one training tell each other.

All of them do the same in the same order, so a message is known by its number.
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

# Messages that are kept. No process is further behind than the next step of a training.
_KEPT = 1_000
_LONGEST = 80


class Processes:
    """This process among those of one training. Alone, all is said at once and nothing waits.

    Args:
        store: what they share; None if this process is alone.
        process_id: its number.
        count: how many there are.
        host: that of process 0.

    Attributes:
        process_id: its number, from 0.
        count: how many there are.
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
        # An error that every process has come to.
        self._shared: MyriadError | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and decides."""
        return self.process_id == 0

    def broadcast(self, value: Any) -> Any:
        """Return what process 0 gives, which JSON must hold; the others' values don't count."""
        if self._store is None:
            return value
        name = self._next()
        if self.is_first:
            self._store.set(name, value)
            return value
        return self._store.wait_for(name)

    def all_gather(self, value: Any) -> list[Any]:
        """Return what each process gives, in the order of their numbers."""
        if self._store is None:
            return [value]
        name = self._next()
        self._store.set(f"{name}/{self.process_id}", value)
        return [self._store.wait_for(f"{name}/{number}") for number in range(self.count)]

    def together(self, function: Callable[[], Result]) -> Result:
        """Call a function in every process, and fail in all if it fails in one.

        Raises:
            MyriadError: what the function raised here.
            InvalidArgumentError: what it raised in another process.
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
        """Call a function in process 0 alone, and fail in all processes if it fails there.

        Returns:
            what it returned; None in the others.
        """
        return self.together(lambda: function() if self.is_first else None)

    def require_alike(self, facts: Mapping[str, Any]) -> None:
        """Refuse to go on unless all processes have the same facts.

        The most important ones come first, since a fact may follow from another one.

        Raises:
            InvalidArgumentError: one differs. The message names the process and the first fact.
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
        """Name the folder that has a checkpoint, from which the training can go on."""
        if self._watch is not None:
            self._watch.run_folder = run_folder

    def undo_with(self, undo: Callable[[], None] | None) -> None:
        """Have process 0 call `undo` if another process ends all of them from now on."""
        if self._watch is not None:
            self._watch.undo = undo

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Let the other processes end, too, if this one fails in the block."""
        try:
            yield
        except BaseException as error:
            self._tell(error)
            raise

    def leave(self) -> None:
        """Wait until all processes come here, and part: afterwards none needs another one.

        They do so at their end, too. After an error of its own a process waits for nobody.
        """
        if self._watch is None:
            return
        if not self._has_told:
            self.all_gather(None)  # the watch ends those that wait for one that is gone
        self._watch.close()
        self._watch = None
        if not self._has_told:
            jax.distributed.shutdown()

    def _tell(self, error: BaseException) -> None:
        """Tell the others that this process ends, unless all come to the same error."""
        if self._watch is None or self._has_told:
            return  # They know, or have parted.
        if error is self._shared or isinstance(error, DivergedError):
            return
        self._has_told = True
        if _is_of_connection(error):
            # It takes a while to know which process that was. Then the watch ends this one.
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
        if jax.default_backend() == "cpu":  # which starts them
            gloo.give_way()
        # One that ended before the others would seem lost to them.
        atexit.register(_all.leave)
    return _all


def _is_of_connection(error: BaseException) -> bool:
    """Return whether an error says that a connection to another process broke."""
    said = str(error)
    return isinstance(error, ProcessLostError) or any(
        name in said for name in ("Gloo", "NCCL", "coordination service")
    )


def _reason(error: BaseException) -> str:
    """Return why a process ends, for the others."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return f"it got {signal.Signals(_exit_code(error) - 128).name}"
    return str(error).rstrip(".") or type(error).__name__


def _exit_code(error: BaseException) -> int:
    """Return the exit code of processes that end by an error of one of them."""
    if isinstance(error, SystemExit):
        return int(error.code or 0)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    # What is wrong with a training or a disk is wrong again when it is started anew.
    return REFUSED if isinstance(error, MyriadError | OSError) else LOST


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
