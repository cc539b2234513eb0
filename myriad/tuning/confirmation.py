"""The end of a campaign: its best trials are trained again, on fresh seeds.

A winner must differ from the agent's defaults by more than luck.
"""

import dataclasses
import logging
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial

from myriad.tuning.objective import CONFIDENCE, Programs, Score, Shape, Training
from myriad.tuning.study import best_trials

# The distance between the seeds of the trials, of the confirmation and of the validation.
FRESH_SEEDS = 1_000
VALIDATION_SEEDS = 2_000
# How many trials are trained again, and on how many fresh seeds at least.
_BEST_FEW, _LEAST_SEEDS = 3, 5
_NOT_DISTINGUISHABLE = "not distinguishable from the default"
_LOG = logging.getLogger(__name__)

IsInterrupted = Callable[[], bool]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A trial's configuration that was trained again on fresh seeds.

    Attributes:
        number: the number of the trial.
        score: the score on the fresh seeds.
        difference: its mean minus the default's.
        low: the lower end of the difference's interval, which holds for all candidates at once.
        high: the upper end.
        verdict: whether it is better or worse than the default, by whether the interval excludes 0.
    """

    number: int
    score: Score
    difference: float
    low: float
    high: float
    verdict: str


@dataclasses.dataclass(frozen=True)
class Confirmation:
    """The best few trials, trained again on fresh seeds beside the default.

    Attributes:
        default: the score of the agent's defaults; None if they failed.
        candidates: the trials, best first by their scores on the fresh seeds. If the default
            failed, no difference from it is known.
        seeds: the fresh seeds.
    """

    default: Score | None
    candidates: tuple[Candidate, ...]
    seeds: tuple[int, ...]

    @property
    def winner(self) -> Candidate | None:
        """The best trial that is better than the default, or None if no trial is."""
        return next((each for each in self.candidates if each.verdict == "better"), None)

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if self.default is None and not self.winner:
            return "the default failed on fresh seeds, so nothing is compared with it"
        if not self.candidates:
            return "no trial could be trained again on fresh seeds"
        best = self.winner or self.candidates[0]
        says = {"better": "better than the default by", "worse": "worse by"}
        return (
            f"trial {best.number} is {says.get(best.verdict, f'{best.verdict}:')} "
            f"{best.difference:.4g} ({best.low:.4g} to {best.high:.4g})"
        )


def confirm_best(
    study: optuna.Study, programs: Programs, is_interrupted: IsInterrupted
) -> Confirmation | None:
    """Train the best few trials and the agent's defaults again, on fresh seeds.

    Returns:
        the confirmation, or None if no trial was completed or the confirmation was interrupted.
    """
    settings, space = programs.settings, programs.space
    best = best_trials(study, settings)[:_BEST_FEW]
    if not best or is_interrupted():
        return None
    _LOG.info("the best trials train again beside the default, on fresh seeds")
    # None stands for the default.
    fields: dict[Any, Mapping[str, Any]] = {None: space.defaults(settings.config())}
    fields |= {trial.number: space.fields(trial.params) for trial in best}
    # Whole groups of as many seeds as a trial has.
    count = -(-_LEAST_SEEDS // settings.num_seeds) * settings.num_seeds
    seeds = [settings.seed + FRESH_SEEDS + index for index in range(count)]
    scores = train_again(programs, fields, seeds, is_interrupted)
    if scores is None:
        return None
    return confirm(scores.pop(None, None), scores, seeds)


def confirm(
    default: Score | None, scores: Mapping[int, Score], seeds: Sequence[int]
) -> Confirmation:
    """Compare candidates with the default, by Welch's interval of the means over seeds.

    All intervals hold together with 95% confidence. Each has its share of the error (Bonferroni),
    so that trying more candidates doesn't make a lucky one a winner.

    Args:
        default: the default's score; None if it failed.
        scores: the candidates' scores by number, on as many seeds.
        seeds: the fresh seeds.
    """
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(scores))
    candidates = []
    for number, score in sorted(scores.items(), key=lambda item: -item[1].value):
        difference, low, high = math.nan, -math.inf, math.inf
        if default is not None:
            difference = score.value - default.value
            low, high = difference_interval(score.by_seed, default.by_seed, confidence)
        verdict = "better" if low > 0 else "worse" if high < 0 else _NOT_DISTINGUISHABLE
        candidates.append(Candidate(number, score, difference, low, high, verdict))
    return Confirmation(default, tuple(candidates), tuple(seeds))


def difference_interval(
    first: Sequence[float], second: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return Welch's interval of a difference of means.

    It is infinite if either side has fewer than two values.

    Example:
        >>> difference_interval([5.0, 5.0], [3.0, 3.0])
        (2.0, 2.0)
    """
    if min(len(first), len(second)) < 2:
        return -math.inf, math.inf
    if np.ptp(first) == np.ptp(second) == 0:
        difference = float(np.mean(first) - np.mean(second))
        return difference, difference
    from scipy.stats import ttest_ind

    with warnings.catch_warnings():
        # SciPy warns where one configuration's returns are all equal. Their variance is 0 then.
        warnings.filterwarnings("ignore", "Precision loss occurred", RuntimeWarning)
        found = ttest_ind(first, second, equal_var=False).confidence_interval(confidence)
    return float(found.low), float(found.high)


def validate(best: FrozenTrial, programs: Programs, is_interrupted: IsInterrupted) -> Score | None:
    """Train a trial again over `settings.validate` seeds that played no part in any choice.

    Returns:
        None if it failed or was interrupted.
    """
    settings = programs.settings
    seeds = [settings.seed + VALIDATION_SEEDS + index for index in range(settings.validate)]
    fields = {best.number: programs.space.fields(best.params)}
    return (train_again(programs, fields, seeds, is_interrupted) or {}).get(best.number)


def train_again(
    programs: Programs,
    fields: Mapping[Any, Mapping[str, Any]],
    seeds: Sequence[int],
    is_interrupted: IsInterrupted = lambda: False,
) -> dict[Any, Score] | None:
    """Train configurations over seeds, in the programs of the trials.

    Args:
        programs: the programs.
        fields: the configurations by the numbers of their trials, the default by None.
        seeds: the training seeds.
        is_interrupted: returns whether to stop now.

    Returns:
        the score of each configuration; None after an interrupt. One that failed on a seed is left
        out, with a warning.
    """
    each = programs.settings.num_seeds
    groups = [tuple(seeds[first : first + each]) for first in range(0, len(seeds), each)]
    again = {
        number: [Training(values, group, number) for group in groups]
        for number, values in fields.items()
    }
    waiting = [training for trainings in again.values() for training in trainings]

    def take(shape: Shape | None) -> Training | None:
        for training in waiting:
            if shape in (None, programs.space.shape(training.fields)):
                waiting.remove(training)
                return training
        return None

    for happened, training in programs.train(take, is_interrupted):
        if happened == "failed":
            number = training.origin
            who = "the default" if number is None else f"trial {number}"
            _LOG.warning("%s failed on other seeds: %s", who, training.failure)
            again.pop(number, None)
    if not all(training.is_over for trainings in again.values() for training in trainings):
        return None
    return {
        number: Score.of(np.concatenate([each.returns for each in trainings]))
        for number, trainings in again.items()
    }
