"""Trials in several processes, one pinned to each core, that share a study's storage.

One process per core is faster than one process on all cores, since nothing waits for the slower
half. The parent hands out trials, replaces workers that were killed, and leaves none behind.

Each worker has its own connection to the parent, and workers share nothing. A lock or a queue that
several processes share would stay locked for good if its holder is killed.
"""

import contextlib
import dataclasses
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from myriad.errors import MyriadError
from myriad.host import core_numbers
from myriad.tuning.campaign import ENDINGS, Event, OnEvent, run
from myriad.tuning.settings import TuneSettings
from myriad.tuning.space import SearchSpace

if TYPE_CHECKING:
    from myriad.tuning.claims import TuningStudy

# How many workers may end early, with no trial done in between, before the campaign gives up. A
# trial that ends its process each time is given up after four.
_MOST_RESTARTS = 8
# Seconds that a worker may take to end cleanly, for a call of its program or a compilation.
_PATIENCE_S = 90.0
_LOOK_S = 0.2

# A worker's question to the parent, which answers with a bool, and an order that the parent may
# send at any time.
_MAY_BEGIN = "may another trial begin?"
_STOP = "give your trials back and end"


class WorkersLostError(MyriadError, RuntimeError):
    """The worker processes of a campaign ended again and again before their trials."""


@dataclasses.dataclass(frozen=True)
class _Refusal:
    """A sentence that says why a worker can't continue."""

    reason: str


def run_workers(
    study: "TuningStudy",
    settings: TuneSettings,
    space: SearchSpace,
    on_event: OnEvent = lambda event: None,
    *,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> None:
    """Run trials in `settings.n_jobs` processes until there are `n_trials` more.

    Call it from a script's `if __name__ == "__main__":`, like everything that starts processes.

    Args:
        study: the study, from `open_study`, in a storage that processes can share.
        settings: the campaign, `completed`.
        space: the search space.
        on_event: called with everything that happens in the workers.
        is_interrupted: returns whether to stop now. Running trials are given back to the study.

    Raises:
        MyriadError: a worker can't continue, or workers were killed again and again.
    """
    pool = _Pool(study, settings, space, on_event)
    try:
        pool.start()
        while pool.workers and not is_interrupted():
            pool.listen()
            pool.replace_ended()
    finally:
        try:
            pool.end()
        finally:
            study.fail_stale()


@dataclasses.dataclass
class _Worker:
    """A worker process, from the parent's side.

    Attributes:
        process: the process.
        connection: the parent's end of the connection.
        owner: its signature on trials.
        granted: number of trials that it was allowed to begin.
    """

    process: Any
    connection: Connection
    owner: dict[str, Any]
    granted: int = 0


class _Pool:
    """The workers of a campaign, by the number of each worker's own core."""

    def __init__(
        self, study: "TuningStudy", settings: TuneSettings, space: SearchSpace, on_event: OnEvent
    ):
        self.workers: dict[int, _Worker] = {}
        self._study = study
        self._settings = settings
        self._space = space
        self._on_event = on_event
        self._left = settings.n_trials
        self._is_ending = False
        self._restarts = 0
        self._ends_at = time.monotonic() + (settings.timeout or math.inf)

    def start(self) -> None:
        """Start as many workers as there are jobs, but not more than trials."""
        for index in range(min(self._settings.n_jobs, max(1, self._settings.n_trials))):
            self._start_worker(index)

    def _start_worker(self, index: int) -> None:
        from myriad.tuning.claims import signature

        cores = core_numbers()
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        arguments = (self._settings, self._space, cores[index % len(cores)], there)
        process = context.Process(target=_work, args=arguments, daemon=True)
        with _interrupts_blocked():
            process.start()
        # Now only the worker holds its end, so the connection closes when the worker ends.
        there.close()
        assert process.pid is not None
        self.workers[index] = _Worker(process, here, signature(process.pid))

    def listen(self) -> None:
        """Answer the workers and pass on their events, for at most `_LOOK_S` seconds."""
        until = time.monotonic() + _LOOK_S
        connected = {each.connection: each for each in self.workers.values()}
        while connected and (left := until - time.monotonic()) > 0:
            for connection in wait(list(connected), timeout=left):
                assert isinstance(connection, Connection)
                if not self._hear(connected[connection]):
                    # The worker is ending. Without this wait, the loop would spin until it has.
                    connected.pop(connection).process.join(left)

    def _hear(self, worker: _Worker) -> bool:
        """Read a worker's next message. Return False if the worker has ended."""
        try:
            said = worker.connection.recv()
            if said == _MAY_BEGIN:
                worker.connection.send(self._grant(worker))
                return True
        except (EOFError, OSError):
            return False
        if isinstance(said, _Refusal):
            raise WorkersLostError(said.reason)
        if said.kind in ENDINGS:
            self._restarts = 0
        self._on_event(said)
        return True

    def _grant(self, worker: _Worker) -> bool:
        if self._left <= 0 or self._is_ending or time.monotonic() >= self._ends_at:
            return False
        self._left -= 1
        worker.granted += 1
        return True

    def replace_ended(self) -> None:
        """Remove workers that are done, and replace those that were killed."""
        for index, worker in list(self.workers.items()):
            if worker.process.exitcode is None:
                continue
            # Its last messages may still be in the connection.
            while worker.connection.poll() and self._hear(worker):
                pass
            worker.connection.close()
            del self.workers[index]
            if worker.process.exitcode == 0:
                continue
            self._restarts += 1
            self._take_back(worker)
            if self._restarts > _MOST_RESTARTS:
                raise WorkersLostError(
                    f"{self._restarts} worker processes ended before their trials, the last with "
                    f"exit code {worker.process.exitcode}; the study keeps all finished trials."
                )
            self._start_worker(index)

    def _take_back(self, worker: _Worker) -> None:
        """Allow as many new trials as a killed worker was allowed to begin and didn't end.

        The storage knows which trials it ended. The result of `fail_stale` wouldn't do, since
        another process that opens the study may have failed the worker's trials first. And a worker
        may be killed after it was allowed to begin a trial, but before it claims one.
        """
        from myriad.tuning.claims import FAILURE

        self._study.fail_stale()
        claimed, again = self._study.trials_of(worker.owner)
        self._left += worker.granted - (len(claimed) - len(again))
        for trial in again:
            self._on_event(Event("lost", trial.number, reason=trial.user_attrs[FAILURE]))

    def end(self) -> None:
        """End the workers: ask them first, then kill them."""
        self._is_ending = True
        try:
            for worker in self.workers.values():
                with contextlib.suppress(OSError):
                    worker.connection.send(_STOP)
            until = time.monotonic() + _PATIENCE_S
            while time.monotonic() < until and self._any_alive():
                # Keep reading, since a worker can't end before its messages are read.
                with contextlib.suppress(WorkersLostError):
                    self.listen()
        finally:
            for worker in self.workers.values():
                if worker.process.is_alive():
                    worker.process.kill()
                worker.process.join()
                worker.connection.close()

    def _any_alive(self) -> bool:
        return any(each.process.is_alive() for each in self.workers.values())


class _Parent:
    """The parent, from a worker's side."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._has_stopped = False

    def tell(self, said: Event | _Refusal) -> None:
        self._connection.send(said)

    def may_begin(self) -> bool:
        """Ask whether another trial may begin."""
        self._connection.send(_MAY_BEGIN)
        return self._next() is True

    def has_stopped(self) -> bool:
        """Return whether the parent wants this process to end."""
        while not self._has_stopped and self._connection.poll():
            self._next()
        return self._has_stopped

    def _next(self) -> Any:
        said = self._connection.recv()
        self._has_stopped = self._has_stopped or said == _STOP
        return said


def _work(settings: TuneSettings, space: SearchSpace, core: int, connection: Connection) -> None:
    """Run trials in a worker process."""
    # Ignore the interrupt here, where it couldn't be blocked before the start.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent()
    if hasattr(os, "sched_setaffinity"):
        # Pin the process before JAX counts the cores for its threads.
        os.sched_setaffinity(0, {core})
    from myriad.hardware import configure
    from myriad.tuning.study import open_study

    configure(cpu_devices=1)
    parent = _Parent(connection)
    try:
        with open_study(dataclasses.replace(settings, fail_if_exists=False), space) as study:
            run(
                study,
                settings,
                space,
                parent.tell,
                is_interrupted=parent.has_stopped,
                claim=parent.may_begin,
            )
    except MyriadError as error:
        parent.tell(_Refusal(str(error)))


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block interrupts in processes that start now, since the parent asks them to end.

    An interrupt of the terminal reaches all processes, and one that is still importing would print
    a traceback. This process gets its own interrupt afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """End this process when the parent is gone, even if the parent was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
