"""The ask-and-tell loop of a campaign: Optuna draws trials, and those of one shape train together.

`run` is called in each process that runs trials. It records heartbeats, which Optuna does only in
its own loop, so that the trials of a killed process are tried again.
"""

import contextlib
import dataclasses
import math
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import TrialState

from myriad.tuning.objective import Boundary
from myriad.tuning.settings import TuneSettings
from myriad.tuning.space import SearchSpace
from myriad.tuning.study import FAILURE, MEMORY, STANDARD_ERROR, retry
from myriad.tuning.trainings import Programs, Shape, Source, Training, train_all

# Trials that are asked for ahead, to find some that share a program. More of them would make the
# sampler draw without the results of the trials before.
_AHEAD = 4

# The events that end a trial for good.
ENDINGS = ("completed", "pruned", "failed")


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened in a campaign.

    Attributes:
        kind: resumed (a study that has trials), confirming (the best train again), compiling and
            compiled (a trial's programs, which others of its shape share), or what became of a
            trial: asked, started, evaluated, completed, pruned, failed or lost. One that is lost
            runs again.
        trial: the trial's number; None for a study.
        step: the step count, over all environments, under which the evaluation is reported.
        value: the mean return of the evaluation, or the best one of a study.
        standard_error: the standard error of the value.
        seconds: the seconds of compiling.
        reason: why a trial failed or was lost, or what a study already has.
    """

    kind: str
    trial: int | None = None
    step: int = 0
    value: float = math.nan
    standard_error: float = math.nan
    seconds: float = 0.0
    reason: str = ""


OnEvent = Callable[[Event], None]


def run(
    study: optuna.Study,
    settings: TuneSettings,
    space: SearchSpace,
    on_event: OnEvent = lambda event: None,
    *,
    is_interrupted: Callable[[], bool] = lambda: False,
    permits: Any = None,
) -> None:
    """Run trials in this process until there are `n_trials` more.

    A trial that has a NaN or crashes is FAILED, with the reason in its user attribute `failure`.
    The other trials continue.

    Args:
        study: the study, from `open_study`.
        settings: the campaign, `completed`.
        space: the search space.
        on_event: called with everything that happens.
        is_interrupted: returns whether to stop now. Running trials are queued again.
        permits: a semaphore that processes share, with a permit for each trial.
    """
    programs = Programs(settings, space, settings.num_seeds)
    permits = permits or threading.Semaphore(settings.n_trials)
    trials = _Trials(study, settings, space, programs, on_event, permits)
    with trials.alive():
        train_all(programs, trials, is_interrupted)


class _Trials(Source):
    """The trials of a study as a source of trainings."""

    def __init__(
        self,
        study: optuna.Study,
        settings: TuneSettings,
        space: SearchSpace,
        programs: Programs,
        on_event: OnEvent,
        permits: Any,
    ):
        self._study = study
        self._storage: Any = study._storage
        self._has_heartbeats = hasattr(study._storage, "record_heartbeat")  # only databases have
        self._settings = settings
        self._space = space
        self._programs = programs
        self._on_event = on_event
        self._permits = permits
        self._prunes = settings.objectives == ("return",)
        self._reported: set[tuple[int, int]] = set()
        self._waiting: list[Training] = []
        self._running: list[Training] = []
        self._ends_at = time.monotonic() + (settings.timeout or math.inf)

    @contextlib.contextmanager
    def alive(self) -> Iterator[None]:
        """Record heartbeats in the block, and then queue again the trials that have not ended."""
        ended = threading.Event()
        beating = threading.Thread(target=self._beat, args=(ended,), daemon=True)
        beating.start()
        try:
            yield
        finally:
            ended.set()
            beating.join()
            for training in [*self._running, *self._waiting]:
                retry(self._study, training.origin.number)

    def _beat(self, ended: threading.Event) -> None:
        while self._has_heartbeats and not ended.wait(self._storage.get_heartbeat_interval()):
            for training in [*self._running, *self._waiting]:
                # If the database is unreachable for a while, the campaign reports it.
                with contextlib.suppress(Exception):
                    self._storage.record_heartbeat(training.origin._trial_id)
        self._storage.remove_session()

    def take(self, shape: Shape | None) -> Training | None:
        while time.monotonic() < self._ends_at:
            shapes = [self._programs.shape(each.fields) for each in self._waiting]
            wanted = shape
            if shape is None and shapes:
                count = Counter(shapes)
                wanted = max(count, key=lambda each: (count[each], self._programs.has(each)))
            if wanted in shapes:
                training = self._waiting.pop(shapes.index(wanted))
                self._running.append(training)
                self._on_event(Event("started", training.origin.number))
                return training
            if len(self._waiting) >= (1 if shape is None else _AHEAD):
                return None
            if not self._permits.acquire(False):  # noqa: FBT003 (two kinds name it differently)
                return None
            self._ask()
        return None

    def _ask(self) -> None:
        """Ask for a trial, first for those of processes that have fallen silent."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna knows only the heartbeats of its own loop.
            optuna.storages.fail_stale_trials(self._study)
            trial = self._study.ask()
        training = Training({}, tuple(self._settings.seeds()), origin=trial)
        self._waiting.append(training)
        if self._has_heartbeats:
            self._storage.record_heartbeat(trial._trial_id)
        self._on_event(Event("asked", trial.number))
        # Two processes may get one trial of an SQLite file, which locks no rows.
        with self._unless_lost(training):
            try:
                training.fields = self._space.suggest(trial)
            except (ValueError, TypeError) as error:
                # Queued parameters may not belong to this space.
                self.failed(training, f"its parameters are not of this space: {error}")
            else:
                trial.set_user_attr("seeds", list(training.seeds))

    def admits(self, training: Training, num_bytes: int) -> bool:
        limit_gib = self._settings.max_memory_gib
        over = -math.inf if limit_gib is None else num_bytes - limit_gib * 2**30
        with self._unless_lost(training):
            # A trial that begins again has them already, and a constraint can be set only once.
            if MEMORY not in training.origin.user_attrs:
                training.origin.set_user_attr(MEMORY, num_bytes)
                if math.isfinite(over):
                    training.origin.set_constraint(MEMORY, over)
            if over <= 0:
                return True
            self._tell(training, TrialState.PRUNED)
            self._end(training, Event("pruned", reason="it needs too much memory"))
        return False

    def compiling(self, training: Training) -> None:
        self._on_event(Event("compiling", training.origin.number))

    def compiled(self, training: Training, seconds: float) -> None:
        self._on_event(Event("compiled", training.origin.number, seconds=seconds))

    def evaluated(self, training: Training, boundary: Boundary, *, is_last: bool) -> bool:
        trial, score, steps = training.origin, training.score, boundary.steps[-1]
        assert score is not None
        with self._unless_lost(training):
            for step in boundary.steps if self._prunes else ():
                # A trial that begins again, after a crash of another one, has the same values.
                if (trial.number, step) not in self._reported:
                    trial.report(score.value, step)
                    self._reported.add((trial.number, step))
            trial.set_user_attr(STANDARD_ERROR, score.standard_error)
            is_pruned = self._prunes and not is_last and trial.should_prune()
            if is_pruned or is_last:
                trial.set_user_attr("by_seed", list(score.by_seed))
                trial.set_user_attr("steps", steps)
                if score.num_unfinished:
                    trial.set_user_attr("unfinished_episodes", score.num_unfinished)
                values = None if is_pruned else self._values(training, steps)
                self._tell(training, TrialState.PRUNED if is_pruned else None, values)
            event = Event("evaluated", trial.number, steps, score.value, score.standard_error)
            self._on_event(event)
            if is_pruned or is_last:
                kind = "pruned" if is_pruned else "completed"
                self._end(training, dataclasses.replace(event, kind=kind))
            return not is_pruned
        return False

    def _values(self, training: Training, steps: int) -> list[float]:
        assert training.score is not None
        # The time of all seeds together, which train one after another on a CPU.
        train_s = max(training.train_s, 1e-9)
        known = {
            "return": training.score.value,
            "train_s": training.train_s,
            "steps_per_s": steps * len(training.seeds) / train_s,
        }
        return [known[name] for name in self._settings.objectives]

    def failed(self, training: Training, reason: str) -> None:
        with self._unless_lost(training):
            training.origin.set_user_attr(FAILURE, reason)
            self._tell(training, TrialState.FAIL)
            self._end(training, Event("failed", reason=reason))

    def put_back(self, training: Training) -> None:
        self._waiting.insert(0, training)
        self._running.remove(training)

    def _tell(
        self, training: Training, state: TrialState | None, values: list[float] | None = None
    ) -> None:
        self._study.tell(training.origin, values, state, skip_if_finished=True)

    def _end(self, training: Training, event: Event) -> None:
        (self._running if training in self._running else self._waiting).remove(training)
        self._on_event(dataclasses.replace(event, trial=training.origin.number))

    @contextlib.contextmanager
    def _unless_lost(self, training: Training) -> Iterator[None]:
        """Leave a trial that has ended to the other process that ended it."""
        try:
            yield
        except UpdateFinishedTrialError:
            self._permits.release()
            self._end(training, Event("lost", reason="another process took it"))
