"""Trials in several processes, one pinned to each core, that share a study's storage.

A process with one core to itself is faster than its share of one process on all of them: nothing
waits for the slower half. The parent hands out trials, starts another worker where one was killed,
and leaves none behind.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from myriad.errors import MyriadError
from myriad.tuning.campaign import Event, OnEvent, run
from myriad.tuning.settings import TuneSettings
from myriad.tuning.space import SearchSpace

if TYPE_CHECKING:
    from myriad.tuning.claims import TuningStudy

# Workers that may be killed before the campaign gives up.
_MOST_RESTARTS = 3
# What a worker may take to end cleanly: a call of its program, or a compilation.
_PATIENCE_S = 90.0
_LOOK_S = 0.2


class WorkersLostError(MyriadError, RuntimeError):
    """The worker processes of a campaign ended by themselves, again and again."""


@dataclasses.dataclass(frozen=True)
class _Shared:
    """What the parent and its workers share.

    Attributes:
        left: trials that may still begin.
        stopping: set when workers are to give their trials back and end.
        events: what happens, and a sentence from a worker that can't go on.
    """

    left: Any
    stopping: Any
    events: Any

    def claim(self) -> bool:
        with self.left.get_lock():
            self.left.value -= 1
            return self.left.value >= 0


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
    context = multiprocessing.get_context("spawn")
    shared = _Shared(context.Value("q", settings.n_trials), context.Event(), context.Queue())
    cores = sorted(_usable_cores())
    workers: dict[int, Any] = {}

    def start(index: int) -> None:
        core = cores[index % len(cores)]
        arguments = (settings, space, core, shared)
        workers[index] = context.Process(target=_work, args=arguments, daemon=True)
        workers[index].start()

    restarts = 0
    try:
        for index in range(min(settings.n_jobs, max(1, settings.n_trials))):
            start(index)
        while workers:
            _pass_on(shared, on_event)
            if is_interrupted():
                return
            for index, worker in list(workers.items()):
                if worker.exitcode is None:
                    continue
                del workers[index]
                if worker.exitcode == 0:
                    continue
                restarts += 1
                # What it was working on is queued again, so as many may begin again.
                lost = study.fail_stale()
                with shared.left.get_lock():
                    shared.left.value = max(0, shared.left.value) + len(lost)
                for trial in lost:
                    on_event(Event("failed", trial.number, reason="its process was killed"))
                if restarts > _MOST_RESTARTS:
                    raise WorkersLostError(
                        f"{restarts} worker processes were killed, the last with exit code "
                        f"{worker.exitcode}; the study keeps all finished trials."
                    )
                start(index)
        _pass_on(shared, on_event)
    finally:
        _end(workers, shared, on_event)
        study.fail_stale()


def _pass_on(shared: _Shared, on_event: OnEvent) -> None:
    """Pass on what workers say, for as long as a look at them may wait."""
    until = time.monotonic() + _LOOK_S
    while (left := until - time.monotonic()) > 0:
        try:
            said = shared.events.get(timeout=left)
        except queue.Empty:
            return
        if isinstance(said, str):
            raise WorkersLostError(said)
        on_event(said)


def _end(workers: dict[int, Any], shared: _Shared, on_event: OnEvent) -> None:
    """End the workers: ask, then insist."""
    shared.stopping.set()
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until and any(each.is_alive() for each in workers.values()):
        # A worker can't end before somebody has read what it said.
        with contextlib.suppress(WorkersLostError):
            _pass_on(shared, on_event)
    for worker in workers.values():
        if worker.is_alive():
            worker.kill()
        worker.join()


def _usable_cores() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _work(settings: TuneSettings, space: SearchSpace, core: int, shared: _Shared) -> None:
    """Run trials in a worker process."""
    # An interrupt of the terminal reaches all processes. The parent asks this one to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent()
    if hasattr(os, "sched_setaffinity"):
        # Before JAX counts the cores, for its threads.
        os.sched_setaffinity(0, {core})
    from myriad.hardware import configure
    from myriad.tuning.study import open_study

    configure(cpu_devices=1)
    try:
        with open_study(dataclasses.replace(settings, fail_if_exists=False), space) as study:
            run(
                study,
                settings,
                space,
                shared.events.put,
                is_interrupted=shared.stopping.is_set,
                claim=shared.claim,
            )
    except MyriadError as error:
        shared.events.put(str(error))


def _end_with_parent() -> None:
    """End this process when the parent is gone, even if that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
