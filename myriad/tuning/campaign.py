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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import TrialState

from myriad.tuning.objective import Boundary
from myriad.tuning.settings import TuneSettings
from myriad.tuning.space import SearchSpace
from myriad.tuning.storage import HEARTBEAT_S
from myriad.tuning.study import FAILURE, MEMORY, STANDARD_ERROR, retry
from myriad.tuning.trainings import Programs, Shape, Source, Training, train_all

# Trials that are asked for ahead, to find some that share a program. More of them would make the
# sampler draw without the results of the trials before.
_AHEAD = 4

# The events that end a trial for good, and the trial's state.
ENDINGS = {
    "completed": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


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
    ends_at = time.monotonic() + (settings.timeout or math.inf)
    trials = _Trials(study, settings, space, programs, on_event, permits, ends_at)
    with trials.alive():
        train_all(programs, trials, is_interrupted)


@dataclasses.dataclass
class _Trials(Source):
    """The trials of a study as a source of trainings: those that wait, and those that run."""

    study: optuna.Study
    settings: TuneSettings
    space: SearchSpace
    programs: Programs
    on_event: OnEvent
    permits: Any
    ends_at: float
    waiting: list[Training] = dataclasses.field(default_factory=list)
    running: list[Training] = dataclasses.field(default_factory=list)

    @contextlib.contextmanager
    def alive(self) -> Iterator[None]:
        """Record heartbeats in the block, and then queue again the trials that have not ended."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(HEARTBEAT_S):
                # If the database is unreachable for a while, the campaign reports it.
                with contextlib.suppress(Exception):
                    self._beat([*self.running, *self.waiting])
            self.study._storage.remove_session()

        beating = threading.Thread(target=beat, daemon=True)
        beating.start()
        try:
            yield
        finally:
            ended.set()
            beating.join()
            for training in [*self.running, *self.waiting]:
                retry(self.study, training.origin.number)

    def _beat(self, trainings: Sequence[Training]) -> None:
        storage: Any = self.study._storage
        if hasattr(storage, "record_heartbeat"):  # only databases have it
            for training in trainings:
                storage.record_heartbeat(training.origin._trial_id)

    def take(self, shape: Shape | None) -> Training | None:
        while time.monotonic() < self.ends_at:
            shapes = [self.programs.shape(each.fields) for each in self.waiting]
            wanted = shape
            if shape is None and shapes:
                count = Counter(shapes)
                wanted = max(count, key=lambda each: (count[each], self.programs.has(each)))
            if wanted in shapes:
                training = self.waiting.pop(shapes.index(wanted))
                self.running.append(training)
                self.on_event(Event("started", training.origin.number))
                return training
            most = 1 if shape is None else _AHEAD
            if len(self.waiting) >= most or not self.permits.acquire(False):  # noqa: FBT003
                return None
            self._ask()
        return None

    def _ask(self) -> None:
        """Ask for a trial, first for those of processes that have fallen silent."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna knows only the heartbeats of its own loop.
            optuna.storages.fail_stale_trials(self.study)
            trial = self.study.ask()
        training = Training({}, tuple(self.settings.seeds()), origin=trial)
        self.waiting.append(training)
        self._beat([training])
        self.on_event(Event("asked", trial.number))
        # Two processes may get one trial of an SQLite file, which locks no rows.
        with self._unless_lost(training):
            try:
                training.fields = self.space.suggest(trial)
            except (ValueError, TypeError) as error:
                # Queued parameters may not belong to this space.
                self.failed(training, f"its parameters are not of this space: {error}")
            else:
                trial.set_user_attr("seeds", list(training.seeds))

    def admits(self, training: Training, num_bytes: int) -> bool:
        limit_gib = self.settings.max_memory_gib
        over = -math.inf if limit_gib is None else num_bytes - limit_gib * 2**30
        with self._unless_lost(training):
            # A trial that begins again has them already, and a constraint can be set only once.
            if MEMORY not in training.origin.user_attrs:
                training.origin.set_user_attr(MEMORY, num_bytes)
                if math.isfinite(over):
                    training.origin.set_constraint(MEMORY, over)
            if over <= 0:
                return True
            self._end(training, Event("pruned", reason="it needs too much memory"))
        return False

    def compiling(self, training: Training) -> None:
        self.on_event(Event("compiling", training.origin.number))

    def compiled(self, training: Training, seconds: float) -> None:
        self.on_event(Event("compiled", training.origin.number, seconds=seconds))

    def evaluated(self, training: Training, boundary: Boundary, *, is_last: bool) -> bool:
        trial, score, steps = training.origin, training.score, boundary.steps[-1]
        assert score is not None
        prunes = self.settings.objectives == ("return",)
        with self._unless_lost(training):
            with warnings.catch_warnings():
                # A trial that begins again, after a crash of another one, has the same values.
                warnings.filterwarnings("ignore", message="The reported value is ignored")
                for step in boundary.steps if prunes else ():
                    trial.report(score.value, step)
            is_pruned = prunes and not is_last and trial.should_prune()
            event = Event("evaluated", trial.number, steps, score.value, score.standard_error)
            self.on_event(event)
            if not is_pruned and not is_last:
                return True
            trial.set_user_attr(STANDARD_ERROR, score.standard_error)
            trial.set_user_attr("by_seed", list(score.by_seed))
            trial.set_user_attr("steps", steps)
            if score.num_unfinished:
                trial.set_user_attr("unfinished_episodes", score.num_unfinished)
            kind = "pruned" if is_pruned else "completed"
            # The time of all seeds together, which train one after another on a CPU.
            rate = steps * len(training.seeds) / max(training.train_s, 1e-9)
            known = {"return": score.value, "train_s": training.train_s, "steps_per_s": rate}
            values = None if is_pruned else [known[name] for name in self.settings.objectives]
            self._end(training, dataclasses.replace(event, kind=kind), values)
            return not is_pruned
        return False

    def failed(self, training: Training, reason: str) -> None:
        with self._unless_lost(training):
            training.origin.set_user_attr(FAILURE, reason)
            self._end(training, Event("failed", reason=reason))

    def put_back(self, training: Training) -> None:
        self.waiting.insert(0, training)
        self.running.remove(training)

    def _end(self, training: Training, event: Event, values: list[float] | None = None) -> None:
        state = ENDINGS.get(event.kind, TrialState.FAIL)
        self.study.tell(training.origin, values, state, skip_if_finished=True)
        (self.running if training in self.running else self.waiting).remove(training)
        self.on_event(dataclasses.replace(event, trial=training.origin.number))

    @contextlib.contextmanager
    def _unless_lost(self, training: Training) -> Iterator[None]:
        """Leave a trial that has ended to the other process that ended it."""
        try:
            yield
        except UpdateFinishedTrialError:
            self.permits.release()
            self._end(training, Event("lost", reason="another process took it"))
