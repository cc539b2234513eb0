"""Trials in several processes, one pinned to each core, that share a study's storage.

One process per core is faster than one process on all cores, since nothing waits for the slower
half. The parent hands out permits for trials and replaces workers that were killed.

Each worker has its own connection to the parent. A queue that several processes share would stay
locked for good if its holder is killed.
"""

import contextlib
import dataclasses
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

import optuna

from myriad.errors import MyriadError
from myriad.host import core_numbers
from myriad.tuning.campaign import ENDINGS, Event, OnEvent, run
from myriad.tuning.settings import TuneSettings
from myriad.tuning.space import SearchSpace
from myriad.tuning.storage import MOST_RETRIES, disconnect, storage_errors
from myriad.tuning.study import open_study, retry

# How many workers may end early, with no trial done in between, before the campaign gives up. A
# trial that ends its process each time is given up after four.
_MOST_RESTARTS = 8
# Seconds that a worker may take to end cleanly, for a call of its program or a compilation.
_PATIENCE_S = 90.0
_LOOK_S = 0.2


class WorkersLostError(MyriadError, RuntimeError):
    """The worker processes of a campaign ended again and again before their trials."""


def run_workers(
    study: optuna.Study,
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
        is_interrupted: returns whether to stop now. Running trials are queued again.

    Raises:
        MyriadError: a worker can't continue, or workers were killed again and again.
    """
    pool = _Pool(study, settings, space, on_event)
    ends_at = time.monotonic() + (settings.timeout or math.inf)
    try:
        for index in range(min(settings.n_jobs, settings.n_trials)):
            pool.start(index)
        while pool.workers and not is_interrupted():
            pool.listen()
            if time.monotonic() >= ends_at:
                pool.close_permits()
    finally:
        pool.end()


@dataclasses.dataclass
class _Worker:
    """A worker process, from the parent's side: its core, and the trials that it has asked for."""

    process: Any
    index: int
    trials: set[int] = dataclasses.field(default_factory=set)


class _Pool:
    """The workers of a campaign, by the parent's end of the connection to each."""

    def __init__(
        self, study: optuna.Study, settings: TuneSettings, space: SearchSpace, on_event: OnEvent
    ):
        self.workers: dict[Connection, _Worker] = {}
        self._study = study
        self._settings = settings
        self._space = space
        self._on_event = on_event
        self._context = multiprocessing.get_context("spawn")
        self._permits = self._context.Semaphore(settings.n_trials)
        self._is_ending = False
        self._restarts = 0

    def start(self, index: int) -> None:
        """Start a worker on the core of this index."""
        cores = core_numbers()
        here, there = self._context.Pipe()
        core = cores[index % len(cores)]
        arguments = (self._settings, self._space, core, there, self._permits)
        process = self._context.Process(target=_work, args=arguments, daemon=True)
        with _interrupts_blocked():
            process.start()
        # Now only the worker holds its end, so the connection closes when the worker ends.
        there.close()
        self.workers[here] = _Worker(process, index)

    def close_permits(self) -> None:
        """Let no further trial begin."""
        while self._permits.acquire(block=False):
            pass

    def listen(self) -> None:
        """Pass on the workers' events for a moment, and replace workers that were killed."""
        for connection in wait(list(self.workers), timeout=_LOOK_S):
            assert isinstance(connection, Connection)
            try:
                said = connection.recv()
            except (EOFError, OSError):
                self._replace(connection)
                continue
            if isinstance(said, str):  # why a worker can't continue
                raise WorkersLostError(said)
            trials = self.workers[connection].trials
            if said.kind == "asked":
                trials.add(said.trial)
            elif said.kind in (*ENDINGS, "lost"):
                trials.discard(said.trial)
                self._restarts = 0
            self._on_event(said)

    def _replace(self, connection: Connection) -> None:
        worker = self.workers.pop(connection)
        connection.close()
        worker.process.join()
        if worker.process.exitcode == 0:
            return
        for number in sorted(worker.trials):
            retry(self._study, number, MOST_RETRIES)
            self._permits.release()
            self._on_event(Event("lost", number, reason="its process ended before the trial did"))
        self._restarts += 1
        if self._is_ending:
            return
        if self._restarts > _MOST_RESTARTS:
            raise WorkersLostError(
                f"{self._restarts} worker processes ended before their trials, the last with "
                f"exit code {worker.process.exitcode}; the study keeps all finished trials."
            )
        self.start(worker.index)

    def end(self) -> None:
        """End the workers: ask them first, then kill them."""
        self._is_ending = True
        try:
            for connection in self.workers:
                with contextlib.suppress(OSError):
                    connection.send("give your trials back and end")
            until = time.monotonic() + _PATIENCE_S
            while time.monotonic() < until and self.workers:
                # Keep reading, since a worker can't end before its messages are read.
                with contextlib.suppress(WorkersLostError):
                    self.listen()
        finally:
            for connection, worker in self.workers.items():
                worker.process.kill()
                worker.process.join()
                connection.close()


def _work(
    settings: TuneSettings, space: SearchSpace, core: int, connection: Connection, permits: Any
) -> None:
    """Run trials in a worker process, until the parent says something or is gone."""
    # Ignore the interrupt here, where it couldn't be blocked before the start.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "sched_setaffinity"):
        # Pin the process before JAX counts the cores for its threads.
        os.sched_setaffinity(0, {core})
    from myriad.hardware import configure

    configure(cpu_devices=1)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        try:
            study = open_study(dataclasses.replace(settings, fail_if_exists=False), space)
            stops = connection.poll
            with storage_errors(only_theirs=True):
                run(study, settings, space, connection.send, is_interrupted=stops, permits=permits)
            disconnect(study._storage)
        except MyriadError as error:
            connection.send(str(error))


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
