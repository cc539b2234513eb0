"""One call of `myriad tune`: the study, its trials and the conclusion."""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, Self

import optuna
from optuna.trial import FrozenTrial, TrialState

from myriad.ranges import checked
from myriad.signals import interrupts_kept
from myriad.training.interrupts import interrupt_noted
from myriad.tuning.campaign import ENDINGS, Event, OnEvent, run
from myriad.tuning.conclusion import (
    Ensemble,
    best_trials,
    confirm_best,
    evaluate_ensemble,
    validate,
)
from myriad.tuning.objective import Confirmation, Score
from myriad.tuning.settings import TuneSettings
from myriad.tuning.space import SearchSpace
from myriad.tuning.storage import disconnect, storage_errors
from myriad.tuning.study import BEST_CONFIRMED, open_study
from myriad.tuning.workers import run_workers


@dataclasses.dataclass(frozen=True)
class TuneResult:
    """The results of a campaign.

    Attributes:
        settings: the campaign, `completed`.
        space: its search space.
        study: the study, open. Close it, or use the result as a context manager.
        best: the winner; None if no trial was completed. It is the best trial of the confirmation
            on fresh seeds, or without a confirmation the best of the study.
        fields: the winner's fields, as `create_config` takes them.
        confirmation: the best few trials next to the default; None if there was no confirmation.
        validation: the winner's score over `settings.validate` seeds.
        ensemble: the best policies together.
        ended_by: the signal that ended the campaign early, SIGINT or SIGTERM; 0 if none did.
        num_ended: trials that were completed, pruned or failed in this call.
        total_s: seconds of the whole call.
        compile_s: seconds that compiling the trials took, in all processes together.
    """

    settings: TuneSettings
    space: SearchSpace
    study: optuna.Study
    best: FrozenTrial | None
    fields: dict[str, Any]
    confirmation: Confirmation | None
    validation: Score | None
    ensemble: Ensemble | None
    ended_by: int
    num_ended: int
    total_s: float
    compile_s: float

    @property
    def is_interrupted(self) -> bool:
        """Whether a signal ended it early."""
        return self.ended_by != 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        disconnect(self.study._storage)


def load_space(settings: TuneSettings) -> SearchSpace:
    """Return the campaign's space, with the agent's defaults to try first.

    Raises:
        InvalidArgumentError: the file has a mistake, or one of its values can't be used.
    """
    config = settings.config()
    space = SearchSpace.load(settings.agent, config.env, settings.space)
    if not settings.trust:
        space.require_no_code()
    space.require_free(settings.options)
    space.require_usable(settings.fields())
    return space.with_known([space.defaults(config)])


@checked
def tune(settings: TuneSettings, on_event: OnEvent = lambda event: None) -> TuneResult:
    """Search for hyperparameters in trials, and train the best few again to name a winner.

    With `n_jobs` above 1, trials run in several processes. Then call this from a script's
    `if __name__ == "__main__":`. An interrupt or SIGTERM ends it cleanly: running trials are queued
    again, and the result holds the best so far. A second signal, at least a second later, ends it
    at once.

    Args:
        settings: the campaign.
        on_event: called with everything that happens, for the progress.

    Raises:
        InvalidArgumentError: a setting can't be used. No study is made then.
        NotInstalledError: Optuna or a driver is missing.
        WorkersLostError: worker processes were killed again and again.

    Example (of a script)::

        from myriad import configure
        from myriad.tuning import TuneSettings, tune

        configure()
        with tune(TuneSettings(env="bucket-brigade", scenario="easy", n_trials=20)) as result:
            print(result.fields, result.confirmation.verdict)
    """
    start = time.monotonic()
    settings = settings.completed()
    space = load_space(settings)
    compile_s = 0.0
    num_ended = 0

    def hear(event: Event) -> None:
        nonlocal compile_s, num_ended
        compile_s += event.seconds
        num_ended += event.kind in ENDINGS
        on_event(event)

    study = open_study(settings, space)
    try:
        with interrupts_kept(), interrupt_noted() as interrupt, storage_errors(only_theirs=True):
            _tell_trials(study, settings, on_event)
            run_all = run if settings.n_jobs == 1 else run_workers
            run_all(study, settings, space, hear, is_interrupted=interrupt.is_set)
            concluded = _conclude(study, settings, space, on_event, interrupt.is_set)
    except BaseException:
        disconnect(study._storage)
        raise
    return TuneResult(
        settings,
        space,
        study,
        **concluded,
        ended_by=interrupt.number,
        num_ended=num_ended,
        total_s=time.monotonic() - start,
        compile_s=compile_s,
    )


def _tell_trials(study: optuna.Study, settings: TuneSettings, on_event: OnEvent) -> None:
    """Report how many trials a study already has, and their best return."""
    trials = study.get_trials(deepcopy=False)
    if not (num_ended := sum(trial.state.is_finished() for trial in trials)):
        return
    best = math.nan
    if "return" in settings.objectives:
        place = settings.objectives.index("return")
        completed = [trial for trial in trials if trial.state == TrialState.COMPLETE]
        best = max((trial.values[place] for trial in completed), default=math.nan)
    on_event(Event("resumed", value=best, reason=f"{num_ended} trials of it have ended"))


def _conclude(
    study: optuna.Study,
    settings: TuneSettings,
    space: SearchSpace,
    on_event: OnEvent,
    is_interrupted: Callable[[], bool],
) -> dict[str, Any]:
    """Return the conclusion of the trials, as fields of a `TuneResult`."""
    best = next(iter(best_trials(study, settings, 1)), None)
    found: dict[str, Any] = dict.fromkeys(("confirmation", "validation", "ensemble"))
    if best is not None and "return" in settings.objectives and not is_interrupted():
        on_event(Event("confirming"))
        found["confirmation"] = confirmed = confirm_best(study, settings, space, is_interrupted)
        if confirmed is not None and confirmed.candidates:
            number = confirmed.candidates[0].number
            best = next(each for each in study.get_trials(deepcopy=False) if each.number == number)
            study.set_user_attr(BEST_CONFIRMED, number)
    fields = {} if best is None else space.fields(best.params)
    if best is not None and settings.validate and not is_interrupted():
        found["validation"] = validate(fields, settings, space, is_interrupted)
    if best is not None and settings.ensemble > 1 and not is_interrupted():
        found["ensemble"] = evaluate_ensemble(study, settings, space, is_interrupted)
    return {"best": best, "fields": fields, **found}
