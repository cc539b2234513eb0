"""Trials in several processes, one pinned to each core, that share a study's storage.

A process with one core to itself is faster than its share of one process on all of them: nothing
waits for the slower half. The parent hands out trials, starts another worker where one was killed,
and leaves none behind.

Each worker has a connection of its own to the parent, and nothing is shared. A lock or a queue that
several processes share stays locked for good when its holder is killed.
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

# Workers that may end early, with no trial done in between, before the campaign gives up. A trial
# that ends its process each time is given up after four.
_MOST_RESTARTS = 8
# What a worker may take to end cleanly: a call of its program, or a compilation.
_PATIENCE_S = 90.0
_LOOK_S = 0.2

# What a worker asks the parent, who answers with a bool, and what the parent may say at any time.
_MAY_BEGIN = "may another trial begin?"
_STOP = "give your trials back and end"


class WorkersLostError(MyriadError, RuntimeError):
    """The worker processes of a campaign ended by themselves, again and again."""


@dataclasses.dataclass(frozen=True)
class _Refusal:
    """Why a worker can't go on, in a sentence."""

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

    Call it from a script's `if __name__ == "__main__":`, as everything that starts processes.

    Args:
        study: of `open_study`, in a storage that processes can share.
        settings: the campaign, `completed`.
        space: what trials may try.
        on_event: called with everything that happens in the workers.
        is_interrupted: whether to stop now. Trials under way are given back to the study.

    Raises:
        MyriadError: a worker can't go on, or workers were killed again and again.
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
    """A worker process, as its parent sees it.

    Attributes:
        process: the process.
        connection: the parent's end of the connection.
        owner: its signature on trials.
        granted: trials that it was allowed to begin.
    """

    process: Any
    connection: Connection
    owner: dict[str, Any]
    granted: int = 0


class _Pool:
    """The workers of a campaign, by the number of the core that each has to itself."""

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
        """Start as many workers as there are jobs, but no more than trials."""
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
        # Only the worker holds its end now, so the connection ends with it.
        there.close()
        assert process.pid is not None
        self.workers[index] = _Worker(process, here, signature(process.pid))

    def listen(self) -> None:
        """Answer the workers and pass on what they say, for as long as a look may wait."""
        until = time.monotonic() + _LOOK_S
        connected = {each.connection: each for each in self.workers.values()}
        while connected and (left := until - time.monotonic()) > 0:
            for connection in wait(list(connected), timeout=left):
                assert isinstance(connection, Connection)
                if not self._hear(connected[connection]):
                    # It is ending. Without this wait we would ask again and again until it has.
                    connected.pop(connection).process.join(left)

    def _hear(self, worker: _Worker) -> bool:
        """Take what a worker says next; return False where it has ended."""
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
        """Forget the workers that are done, and start another for each that was killed."""
        for index, worker in list(self.workers.items()):
            if worker.process.exitcode is None:
                continue
            # What it said before it ended is still in the connection.
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
        """Let as many trials begin again as a killed worker was allowed to and didn't end.

        The storage knows which it ended. What `fail_stale` returns would not do: another process
        that opens the study may have failed the worker's trials first. And a worker may be killed
        when it was allowed to begin a trial and has not claimed one.
        """
        from myriad.tuning.claims import FAILURE

        self._study.fail_stale()
        claimed, again = self._study.trials_of(worker.owner)
        self._left += worker.granted - (len(claimed) - len(again))
        for trial in again:
            self._on_event(Event("lost", trial.number, reason=trial.user_attrs[FAILURE]))

    def end(self) -> None:
        """End the workers: ask, then insist."""
        self._is_ending = True
        try:
            for worker in self.workers.values():
                with contextlib.suppress(OSError):
                    worker.connection.send(_STOP)
            until = time.monotonic() + _PATIENCE_S
            while time.monotonic() < until and self._any_alive():
                # A worker can't end before somebody has read what it said.
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
    """The parent, as a worker sees it."""

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
        """Whether the parent wants this process to end."""
        while not self._has_stopped and self._connection.poll():
            self._next()
        return self._has_stopped

    def _next(self) -> Any:
        said = self._connection.recv()
        self._has_stopped = self._has_stopped or said == _STOP
        return said


def _work(settings: TuneSettings, space: SearchSpace, core: int, connection: Connection) -> None:
    """Run trials in a worker process."""
    # Where it could not be blocked before.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent()
    if hasattr(os, "sched_setaffinity"):
        # Before JAX counts the cores, for its threads.
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
    """Let processes that start now get no interrupt. The parent asks them to end.

    An interrupt of the terminal reaches all processes, and one that still imports would print a
    traceback. This process gets its own afterwards.
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
    """End this process when the parent is gone, even if that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
