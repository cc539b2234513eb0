"""A campaign: it asks Optuna for trials, trains them side by side and reports their evaluations.

`run(study, settings, space, on_event=...)` runs trials in this process until `n_trials` more are
done. `on_event` gets an `Event` for everything that happens, for the progress. `is_interrupted` is
called about twice a second. When it returns True, running trials are given back to the study and
`run` returns. `claim` is called before every trial and may say that there are enough, by which
several processes share `n_trials`.
"""

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from myriad.tuning.objective import Boundary
from myriad.tuning.settings import TuneSettings
from myriad.tuning.space import SearchSpace
from myriad.tuning.trainings import Programs, Shape, Training, train_all

if TYPE_CHECKING:
    import optuna

    from myriad.tuning.claims import TuningStudy

# Trials that are asked for ahead, to find some that share a program. More of them would make the
# sampler draw without the results of the trials before.
_AHEAD = 4

_TAKEN = "another process took it"

# Seconds between two checks for trials of machines that have fallen silent.
_LOOK_S = 60.0

EventKind = Literal[
    "resumed",
    "compiling",
    "compiled",
    "started",
    "evaluated",
    "completed",
    "pruned",
    "failed",
    "lost",
    "confirming",
]

# The events that end a trial for good.
ENDINGS = ("completed", "pruned", "failed")


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened in a campaign.

    Attributes:
        kind: resumed (a study that has trials), compiling and compiled (a trial's programs, which
            others of its shape share), confirming (the best train again), or what became of a
            trial. One that is lost runs again.
        trial: the trial's number; None for a study.
        step: the step count, over all environments, under which the evaluation is reported.
        value: the mean return of the evaluation, or the best one of a study.
        standard_error: the standard error of the value.
        seconds: the seconds of compiling.
        reason: why a trial failed or was lost, or what a study already has.
    """

    kind: EventKind
    trial: int | None = None
    step: int = 0
    value: float = math.nan
    standard_error: float = math.nan
    seconds: float = 0.0
    reason: str = ""


OnEvent = Callable[[Event], None]


def run(
    study: "TuningStudy",
    settings: TuneSettings,
    space: SearchSpace,
    on_event: OnEvent = lambda event: None,
    *,
    is_interrupted: Callable[[], bool] = lambda: False,
    claim: Callable[[], bool] | None = None,
) -> None:
    """Run trials in this process until there are `n_trials` more.

    A trial that has a NaN or crashes is FAILED, with the reason in its user attribute `failure`.
    The other trials continue.

    Args:
        study: the study, from `open_study`.
        settings: the campaign, `completed`.
        space: the search space.
        on_event: called with everything that happens.
        is_interrupted: returns whether to stop now. Running trials are given back to the study.
        claim: returns whether another trial may begin; by default until there are `n_trials`.
    """
    programs = Programs(settings, space, settings.num_seeds)
    claim = claim or _counted(settings.n_trials)
    trials = _Trials(study, settings, space, programs, on_event, claim)
    try:
        train_all(programs, trials, is_interrupted)
    except KeyboardInterrupt:
        trials.give_back("it was interrupted")
        raise
    except BaseException as error:
        trials.give_back(f"its process ended by {type(error).__name__}")
        raise
    # If all went well, no trial is left to give back.
    trials.give_back("it was interrupted" if is_interrupted() else "the time was over")


class _Trials:
    """The trials of a study as a source of trainings."""

    def __init__(
        self,
        study: "TuningStudy",
        settings: TuneSettings,
        space: SearchSpace,
        programs: Programs,
        on_event: OnEvent,
        claim: Callable[[], bool],
    ):
        self._study = study
        self._settings = settings
        self._space = space
        self._programs = programs
        self._on_event = on_event
        self._claim = claim
        self._reported: set[tuple[int, int]] = set()
        self._waiting: list[Training] = []
        self._running: list[Training] = []
        self._ends_at = time.monotonic() + (settings.timeout or math.inf)
        self._looks_at = time.monotonic() + _LOOK_S
        self._seeds = tuple(settings.seeds())

    def take(self, shape: Shape | None) -> Training | None:
        if self._is_over():
            return None
        while not (fits := self._fitting(shape)):
            if not self._ask(most=1 if shape is None else _AHEAD):
                return None
        self._waiting.remove(fits[0])
        self._running.append(fits[0])
        self._on_event(Event("started", fits[0].origin.number))
        return fits[0]

    def _fitting(self, shape: Shape | None) -> list[Training]:
        """Return the waiting trials of a shape, or of the one that most of them have."""
        shapes = [self._programs.shape(each.fields) for each in self._waiting]
        if shape is None and shapes:
            count = Counter(shapes)
            shape = max(count, key=lambda each: (count[each], self._programs.has(each)))
        return [each for each, its in zip(self._waiting, shapes, strict=True) if its == shape]

    def _is_over(self) -> bool:
        return time.monotonic() >= self._ends_at

    def _ask(self, most: int) -> bool:
        """Ask for another trial, unless as many are waiting, or there are enough."""
        if len(self._waiting) >= most or self._is_over() or not self._claim():
            return False
        self._look_for_silent()
        trial = self._study.ask()
        try:
            fields = self._space.suggest(trial)
        except (ValueError, TypeError) as error:
            # Queued parameters may not belong to this space.
            self._fail(trial, f"its parameters are not of this space: {error}")
            return True
        trial.set_user_attr("seeds", list(self._seeds))
        self._waiting.append(Training(fields, self._seeds, origin=trial))
        return True

    def _look_for_silent(self) -> None:
        """Queue the trials of machines that have fallen silent, once a minute."""
        if time.monotonic() >= self._looks_at:
            self._study.fail_stale()
            self._looks_at = time.monotonic() + _LOOK_S

    def admits(self, training: Training, num_bytes: int) -> bool:
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        limit_gib = self._settings.max_memory_gib
        over = -math.inf if limit_gib is None else num_bytes - limit_gib * 2**30
        trial = training.origin
        try:
            self._note_memory(trial, num_bytes, over)
            if over > 0:
                self._study.tell(trial, state=TrialState.PRUNED)
        except UpdateFinishedTrialError:
            self._lose(training)
            return False
        if over > 0:
            self._running.remove(training)
            self._on_event(Event("pruned", trial.number, reason="it needs too much memory"))
        return over <= 0

    def _note_memory(self, trial: "optuna.Trial", num_bytes: int, over: float) -> None:
        from myriad.tuning.claims import MEMORY

        if MEMORY in trial.user_attrs:
            return  # The trial begins again, and a constraint can be set only once.
        trial.set_user_attr(MEMORY, num_bytes)
        if math.isfinite(over):
            trial.set_constraint(MEMORY, over)

    def compiling(self, training: Training) -> None:
        self._on_event(Event("compiling", training.origin.number))

    def compiled(self, training: Training, seconds: float) -> None:
        self._on_event(Event("compiled", training.origin.number, seconds=seconds))

    def evaluated(self, training: Training, boundary: Boundary, *, is_last: bool) -> bool:
        from optuna.exceptions import UpdateFinishedTrialError

        try:
            self._report(training, boundary)
            is_pruned = self._prunes and not is_last and training.origin.should_prune()
            if is_pruned or is_last:
                self._tell(training, boundary, is_pruned=is_pruned)
        except UpdateFinishedTrialError:
            self._lose(training)
            return False
        self._tell_event("evaluated", training, boundary)
        if is_pruned or is_last:
            self._running.remove(training)
            self._tell_event("pruned" if is_pruned else "completed", training, boundary)
        return not is_pruned

    @property
    def _prunes(self) -> bool:
        return self._settings.objectives == ("return",)

    def _report(self, training: Training, boundary: Boundary) -> None:
        from myriad.tuning.claims import STANDARD_ERROR

        trial, score = training.origin, training.score
        assert score is not None
        # A trial that begins again, after a crash of another one, has the same values again.
        new = [step for step in boundary.steps if (trial.number, step) not in self._reported]
        if self._prunes:
            for step in new:
                trial.report(score.value, step)
                self._reported.add((trial.number, step))
        trial.set_user_attr(STANDARD_ERROR, score.standard_error)

    def _lose(self, training: Training) -> None:
        """Leave a trial to another process, which took it while this one was silent."""
        self._running.remove(training)
        self._on_event(Event("lost", training.origin.number, reason=_TAKEN))

    def _tell(self, training: Training, boundary: Boundary, *, is_pruned: bool) -> None:
        from optuna.trial import TrialState

        trial, score = training.origin, training.score
        assert score is not None
        trial.set_user_attr("by_seed", list(score.by_seed))
        trial.set_user_attr("steps", boundary.steps[-1])
        if score.num_unfinished:
            trial.set_user_attr("unfinished_episodes", score.num_unfinished)
        if is_pruned:
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            self._study.tell(trial, self._values(training, boundary.steps[-1]))

    def _values(self, training: Training, steps: int) -> list[float]:
        assert training.score is not None
        # The time of all seeds together, which train one after another on a CPU.
        train_s = max(training.train_s, 1e-9)
        known: Mapping[str, float] = {
            "return": training.score.value,
            "train_s": training.train_s,
            "steps_per_s": steps * len(training.seeds) / train_s,
        }
        return [known[name] for name in self._settings.objectives]

    def _tell_event(self, kind: EventKind, training: Training, boundary: Boundary) -> None:
        score = training.score
        assert score is not None
        number = training.origin.number
        self._on_event(Event(kind, number, boundary.steps[-1], score.value, score.standard_error))

    def failed(self, training: Training, reason: str) -> None:
        self._running.remove(training)
        self._fail(training.origin, reason)

    def _fail(self, trial: "optuna.Trial", reason: str) -> None:
        """End a trial as FAILED, and keep the reason."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        from myriad.tuning.claims import FAILURE

        try:
            trial.set_user_attr(FAILURE, reason)
            self._study.tell(trial, state=TrialState.FAIL)
        except UpdateFinishedTrialError:
            self._on_event(Event("lost", trial.number, reason=_TAKEN))
            return
        self._on_event(Event("failed", trial.number, reason=reason))

    def put_back(self, training: Training) -> None:
        self._waiting.insert(0, training)
        self._running.remove(training)

    def give_back(self, reason: str) -> None:
        """Give the trials that have not ended back to the study, which queues them again."""
        for training in [*self._running, *self._waiting]:
            self._study.give_back(training.origin, reason)
        self._running.clear()
        self._waiting.clear()


def _counted(n_trials: int) -> Callable[[], bool]:
    left = n_trials

    def claim() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    return claim
