"""The value of a trial: greedy episodes on held-out seeds, and whether a winner is more than luck.

Steps count all environments of a training together. `S` is the number of training seeds, and `E`
the number of episodes for each.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

# The least number of episodes in an evaluation, over all training seeds of a trial.
NUM_EPISODES = 128
# The distance between the seeds of the trials, of the confirmation and of the validation.
FRESH_SEEDS = 1_000
VALIDATION_SEEDS = 2_000
CONFIDENCE = 0.95
NOT_DISTINGUISHABLE = "not distinguishable from the default"

Verdict = Literal["better", "worse", "not distinguishable from the default"]


@dataclasses.dataclass(frozen=True)
class Score:
    """The mean return of greedy episodes.

    Attributes:
        value: the mean over all episodes.
        standard_error: the standard error of the mean. With several training seeds it is computed
            from their means, since episodes of one policy are similar. With one seed it covers only
            its episodes.
        by_seed: the mean of each training seed.
        num_episodes: number of episodes of all seeds together.
        num_unfinished: number of episodes that were cut off.
    """

    value: float
    standard_error: float
    by_seed: tuple[float, ...]
    num_episodes: int
    num_unfinished: int = 0

    @classmethod
    def of(cls, returns: np.ndarray, ended: np.ndarray | None = None) -> "Score":
        """Score returns `[S, E]`.

        Args:
            returns: the return of every episode.
            ended: whether each episode ended, `[S, E]`; None if all did.

        Example:
            >>> Score.of(np.array([[1.0, 3.0], [3.0, 5.0]])).standard_error
            1.0
        """
        returns = np.asarray(returns, np.float64)
        means = returns.mean(axis=1)
        sample = means if len(means) > 1 else returns[0]
        error = sample.std(ddof=1) / math.sqrt(len(sample)) if len(sample) > 1 else math.nan
        unfinished = 0 if ended is None else int((~np.asarray(ended, bool)).sum())
        by_seed = tuple(map(float, means))
        return cls(float(means.mean()), float(error), by_seed, returns.size, unfinished)

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Return the interval of the mean by Student's t."""
        from scipy.stats import t

        freedom = (len(self.by_seed) if len(self.by_seed) > 1 else self.num_episodes) - 1
        reach = float(t.ppf(0.5 + confidence / 2, freedom)) * self.standard_error
        return self.value - reach, self.value + reach


@dataclasses.dataclass(frozen=True)
class Boundary:
    """An evaluation of a trial.

    Attributes:
        update: the update after which it comes.
        steps: the step counts under which it is reported. A long update may reach several at once.
    """

    update: int
    steps: tuple[int, ...]


def boundaries(num_steps: int, eval_interval: int, steps_per_update: int) -> list[Boundary]:
    """Return the evaluations of a trial.

    Evaluation `k` comes after the first update that ends at or past `k * eval_interval` steps and
    is reported as step `k * eval_interval`, so that a pruner can compare trials of all batch sizes.
    The last evaluation follows the whole training, and is reported as `num_steps`.

    Example:
        >>> for each in boundaries(num_steps=12_000, eval_interval=5_000, steps_per_update=4_096):
        ...     print(each.update, each.steps)
        2 (5000,)
        3 (10000, 12000)
    """
    reported: dict[int, list[int]] = {}
    for steps in dict.fromkeys([*range(eval_interval, num_steps + 1, eval_interval), num_steps]):
        reported.setdefault(-(-steps // steps_per_update), []).append(steps)
    return [Boundary(update, tuple(steps)) for update, steps in reported.items()]


def episodes_per_seed(num_seeds: int) -> int:
    """Return in how many episodes each training seed is evaluated."""
    return -(-NUM_EPISODES // num_seeds)


@dataclasses.dataclass(frozen=True)
class ConfirmedConfig:
    """A configuration that was trained again on fresh seeds.

    Attributes:
        number: the number of the trial that found it; None for the default.
        score: the score on the fresh seeds.
        difference: its mean minus the default's.
        low: the lower end of the difference's interval, which holds for all candidates at once.
        high: the upper end.
        verdict: whether it is better or worse than the default, by whether the interval excludes 0.
    """

    number: int | None
    score: Score
    difference: float = 0.0
    low: float = 0.0
    high: float = 0.0
    verdict: Verdict = NOT_DISTINGUISHABLE


@dataclasses.dataclass(frozen=True)
class Failure:
    """A configuration that could not be trained again.

    Attributes:
        number: the number of the trial that found it; None for the default.
        reason: why it failed.
    """

    number: int | None
    reason: str


@dataclasses.dataclass(frozen=True)
class Confirmation:
    """The best few trials, trained again on fresh seeds beside the default.

    Attributes:
        default: the agent's defaults; None if they failed.
        candidates: the trials, best first by their scores on the fresh seeds. If the default
            failed, no difference from it is known.
        seeds: the fresh seeds.
        failures: the configurations that failed.
    """

    default: ConfirmedConfig | None
    candidates: tuple[ConfirmedConfig, ...]
    seeds: tuple[int, ...]
    failures: tuple[Failure, ...] = ()

    @property
    def winner(self) -> ConfirmedConfig | None:
        """The best trial that is better than the default, or None if no trial is."""
        return next((each for each in self.candidates if each.verdict == "better"), None)

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if (winner := self.winner) is not None:
            return (
                f"trial {winner.number} is better than the default by {winner.difference:.4g} "
                f"({winner.low:.4g} to {winner.high:.4g})"
            )
        if self.default is None:
            return "the default failed on fresh seeds, so nothing is compared with it"
        if not self.candidates:
            return "no trial could be trained again on fresh seeds"
        best = self.candidates[0]
        return (
            f"trial {best.number} is {best.verdict}"
            + (" by" if best.verdict == "worse" else ":")
            + f" {best.difference:.4g} ({best.low:.4g} to {best.high:.4g})"
        )


def confirm(
    default: Score | None,
    scores: Sequence[tuple[int, Score]],
    seeds: Sequence[int],
    failures: Sequence[Failure] = (),
) -> Confirmation:
    """Compare candidates with the default, by Welch's interval of the means over seeds.

    All intervals hold together with 95% confidence. Each has its share of the error (Bonferroni),
    so that trying more candidates doesn't make a lucky one a winner.

    Args:
        default: the default's score; None if it failed.
        scores: the candidates' numbers and scores, on as many seeds.
        seeds: the fresh seeds.
        failures: those that could not be trained again.
    """
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(scores))
    candidates = [
        ConfirmedConfig(number, score, math.nan, -math.inf, math.inf)
        if default is None
        else _compared(number, score, default, confidence)
        for number, score in scores
    ]
    candidates.sort(key=lambda each: -each.score.value)
    beside = None if default is None else ConfirmedConfig(None, default)
    return Confirmation(beside, tuple(candidates), tuple(seeds), tuple(failures))


def _compared(number: int, score: Score, default: Score, confidence: float) -> ConfirmedConfig:
    low, high = difference_interval(score.by_seed, default.by_seed, confidence)
    verdict: Verdict = NOT_DISTINGUISHABLE
    if low > 0:
        verdict = "better"
    elif high < 0:
        verdict = "worse"
    return ConfirmedConfig(number, score, score.value - default.value, low, high, verdict)


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

    found = ttest_ind(first, second, equal_var=False).confidence_interval(confidence)
    return float(found.low), float(found.high)
