"""One call of `myriad tune`: a study, its trials in one process or several, and the conclusion.

One process per core is faster than one process on all cores, since nothing waits for the slower
half. The processes share the study's storage, and those that are killed are replaced.
"""

import dataclasses
import logging
import math
import multiprocessing
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any, Self

import optuna
from optuna.trial import FrozenTrial, TrialState

from myriad.distributed import interrupt_noted
from myriad.engine.machine import require_usable_jax
from myriad.errors import MyriadError
from myriad.files import say
from myriad.host import core_numbers
from myriad.ranges import checked
from myriad.tuning.confirmation import (
    Confirmation,
    Ensemble,
    confirm_best,
    evaluate_ensemble,
    validate,
)
from myriad.tuning.objective import Programs, Score
from myriad.tuning.settings import TuneSettings
from myriad.tuning.space import SearchSpace, load_space
from myriad.tuning.storage import MOST_RETRIES, disconnect, storage_errors
from myriad.tuning.study import (
    BEST_CONFIRMED,
    FAILURE,
    WORKER,
    Callback,
    TrialLoop,
    best_trials,
    open_study,
    retry,
)

# How many workers may end early, with no trial done in between, before the campaign gives up. A
# trial that ends its process each time is given up after four.
_MOST_RESTARTS = 8
# Seconds that a worker may take to end cleanly, for a call of its program or a compilation.
_PATIENCE_S = 90.0
_LOOK_S = 0.5
_LOG = logging.getLogger(__name__)


class WorkersLostError(MyriadError, RuntimeError):
    """The worker processes of a campaign ended again and again before their trials."""


@dataclasses.dataclass(frozen=True)
class TuneResult:
    """The results of a campaign.

    Attributes:
        settings: the campaign, `completed`.
        space: its search space.
        study: the study, open. Close it, or use the result as a context manager.
        best: the winner; None if no trial was completed. It is the best trial of the confirmation
            on fresh seeds, or without a confirmation the best of the study.
        confirmation: the best few trials next to the default; None if there was no confirmation.
        validation: the winner's score over `settings.validate` seeds.
        ensemble: the best policies together.
        ended_by: the signal that ended the campaign early, SIGINT or SIGTERM; 0 if none did.
        num_ended: trials that were completed, pruned or failed in this call.
        total_s: seconds of the whole call.
        compile_s: how many of them went to each set of programs that compiled in this process.
    """

    settings: TuneSettings
    space: SearchSpace
    study: optuna.Study
    best: FrozenTrial | None
    confirmation: Confirmation | None
    validation: Score | None
    ensemble: Ensemble | None
    ended_by: int
    num_ended: int
    total_s: float
    compile_s: Sequence[float]

    @property
    def fields(self) -> dict[str, Any]:
        """The winner's fields, as `create_config` takes them."""
        return {} if self.best is None else self.space.fields(self.best.params)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        disconnect(self.study._storage)


@checked
def tune(settings: TuneSettings, callbacks: Sequence[Callback] = ()) -> TuneResult:
    """Search for hyperparameters in trials, and train the best few again to name a winner.

    With `n_jobs` above 1, trials run in several processes. Then call this from a script's
    `if __name__ == "__main__":`. An interrupt or SIGTERM ends it cleanly: running trials are queued
    again, and the result holds the best so far. A second signal, at least a second later, ends it
    at once.

    Args:
        settings: the campaign.
        callbacks: as those of `study.optimize`: called in this process with the study and each
            trial that was completed, pruned or failed.

    Raises:
        InvalidArgumentError: a setting can't be used. No study is made then.
        DeviceNotFoundError: JAX's variables name a device that isn't there.
        NotInstalledError: Optuna or a driver is missing.
        WorkersLostError: worker processes were killed again and again.

    Example:
        >>> from myriad.tuning import TuneSettings
        >>> settings = TuneSettings(env="bucket-brigade", scenario="easy", n_trials=20)
        >>> with tune(settings) as result:  # doctest: +SKIP
        ...     print(result.fields, result.confirmation.verdict)
    """
    start = time.monotonic()
    settings = settings.completed()
    space = load_space(settings)
    require_usable_jax()  # Each trial would fail, and the study would keep that.
    programs = Programs(settings, space)
    ended: list[FrozenTrial] = []
    hear: list[Callback] = [lambda study, trial: ended.append(trial), *callbacks]
    study = open_study(settings, space)
    if space.num_shapes > 1:
        _LOG.info(
            "trials that differ in %s compile anew, %d sets of programs at most: to compile one, "
            "give each a single value under [fixed] in a --space of your own",
            " and ".join(space.static),
            space.num_shapes,
        )
    try:
        with interrupt_noted() as interrupt, storage_errors(only_theirs=True):
            ends_at = time.time() + (settings.timeout or math.inf)
            if settings.n_jobs == 1:
                TrialLoop(study, programs, hear, ends_at=ends_at).run(interrupt.is_set)
            else:
                _Workers(study, programs, hear, ends_at).run(interrupt.is_set)
            best = next(iter(best_trials(study, settings)), None)
            confirmation = validation = ensemble = None
            if "return" in settings.objectives:
                confirmation = confirm_best(study, programs, interrupt.is_set)
            if confirmation is not None and confirmation.candidates:
                best = study.trials[confirmation.candidates[0].number]
                study.set_user_attr(BEST_CONFIRMED, best.number)
            if best is not None and settings.validate:
                validation = validate(best, programs, interrupt.is_set)
            if best is not None and settings.ensemble:
                ensemble = evaluate_ensemble(study, programs, interrupt.is_set)
    except BaseException:
        disconnect(study._storage)
        raise
    return TuneResult(
        settings,
        space,
        study,
        best,
        confirmation,
        validation,
        ensemble,
        ended_by=interrupt.number,
        num_ended=len(ended),
        total_s=time.monotonic() - start,
        compile_s=[each.population.compile_s for each in programs.compiled.values()],
    )


@dataclasses.dataclass
class _Workers:
    """Processes that run trials, one pinned to each core. They share permits for trials.

    A worker gives its trials to the others when it gets SIGTERM or its parent is gone.
    """

    study: optuna.Study
    programs: Programs
    callbacks: Sequence[Callback]
    ends_at: float

    def __post_init__(self):
        self._context = multiprocessing.get_context("spawn")
        self._permits: Any = None
        # The processes, each with its core. Their trials carry their names.
        self._workers: dict[Any, int] = {}
        self._names: set[str] = set()
        self._seen: set[int] = set()
        self._starts = 0  # since a trial ended

    def run(self, is_interrupted: Callable[[], bool]) -> None:
        """Run trials in `n_jobs` processes until there are `n_trials` more.

        Raises:
            WorkersLostError: workers ended again and again before their trials.
        """
        settings, cores = self.programs.settings, core_numbers()
        try:
            while left := settings.n_trials - len(self._seen):
                # A killed worker takes its permits along. So what is left is counted anew once all
                # permits are used.
                self._permits = self._context.Semaphore(left)
                count = min(settings.n_jobs, left)
                _LOG.info("%d processes start, each compiles the programs that it needs", count)
                for index in range(count):
                    self._start(cores[index % len(cores)])
                while self._workers and not is_interrupted():
                    wait([process.sentinel for process in self._workers], timeout=_LOOK_S)
                    for process in [each for each in self._workers if each.exitcode is not None]:
                        core = self._workers.pop(process)
                        self._give_back(process.name)
                        if process.exitcode != 0:  # It ended before its trials.
                            said = "a worker process ended with exit code %d, "
                            said += "and another one takes its place"
                            _LOG.warning(said, process.exitcode)
                            self._start(core)
                    self._hear()
                if is_interrupted() or time.time() >= self.ends_at:
                    return
        finally:
            self._end()
            self._hear()

    def _start(self, core: int) -> None:
        self._starts += 1
        if self._starts > self.programs.settings.n_jobs + _MOST_RESTARTS:
            raise WorkersLostError(
                "worker processes ended again and again before their trials; the study keeps all "
                "finished trials."
            )
        name = secrets.token_hex(8)
        self._names.add(name)
        own = (self.programs.settings, self.programs.space, core, self._permits, self.ends_at)
        process = self._context.Process(target=_work, name=name, args=own, daemon=True)
        # An interrupt of the terminal reaches all processes, and one that is still importing would
        # print a traceback. A process inherits what is blocked. The parent asks it to end.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._workers[process] = core

    def _hear(self) -> None:
        """Call the callbacks with the trials that workers ended since."""
        for trial in self.study.get_trials(deepcopy=False):
            if trial.number in self._seen or trial.user_attrs.get(WORKER) not in self._names:
                continue
            # A trial that failed for no reason of its own is tried again.
            is_failed = trial.state == TrialState.FAIL and FAILURE in trial.user_attrs
            if trial.state in (TrialState.COMPLETE, TrialState.PRUNED) or is_failed:
                self._seen.add(trial.number)
                self._starts = 0
                for callback in self.callbacks:
                    callback(self.study, trial)

    def _give_back(self, name: str) -> None:
        """Queue the trials again that a worker left unfinished."""
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if trial.user_attrs.get(WORKER) == name:
                _LOG.info("trial %d is run again, since its process ended", trial.number)
                retry(self.study, trial.number, MOST_RETRIES)

    def _end(self) -> None:
        """End the workers: ask them first, then kill them."""
        for process in self._workers:
            process.terminate()
        until = time.monotonic() + _PATIENCE_S
        for process in self._workers:
            process.join(max(0.0, until - time.monotonic()))
            process.kill()
            process.join()
            self._give_back(process.name)


def _work(
    settings: TuneSettings, space: SearchSpace, core: int, permits: Any, ends_at: float
) -> None:
    """Run trials in a worker process, until it gets SIGTERM or its parent is gone."""
    if hasattr(os, "sched_setaffinity"):
        # Pin the process before JAX counts the cores for its threads.
        os.sched_setaffinity(0, {core})
    from myriad.engine.machine import configure

    configure(cpu_devices=1)
    parent: Any = multiprocessing.parent_process()
    name = multiprocessing.current_process().name
    try:
        with interrupt_noted() as interrupt, storage_errors(only_theirs=True):
            study = open_study(dataclasses.replace(settings, fail_if_exists=False), space)
            loop = TrialLoop(study, Programs(settings, space), (), permits, ends_at, name)
            loop.run(lambda: interrupt.is_set() or not parent.is_alive())
            disconnect(study._storage)
    except MyriadError as error:
        say(str(error))
        sys.exit(1)
    sys.exit(interrupt.number)
