"""Decide when the evidence of paired timings suffices, and what it shows.

Each relaunched pair of workers gives one number, the median log ratio of its alternated calls.
Calls within a pair are correlated, so they are never pooled. A whole pair can be an outlier: a
worker whose addresses collide takes 1.5 times as long in every call. So the mean and its standard
error leave out the lowest fifth and the highest fifth of the pairs (Tukey & McLaughlin 1963,
Sankhya A 25; Yuen 1974, Biometrika 61).

The test looks at the pairs' numbers a few times. Each look spends a part of the allowed error,
after the power family of Kim & DeMets (1987, Biometrika 74). It is a t-test at the level that it
spends, so the union bound holds however the looks are correlated (Jennison & Turnbull, Group
Sequential Methods, 2000, ch. 7). A few pairs that agree by luck look certain to a t-test. So a
failure also takes a sign test: more pairs above the limit than a fair coin would give. If the time
runs out between two looks, there is one more look, since the number of looks need not be known in
advance (Lan & DeMets 1983, Biometrika 70). It is the last one, and its time does not depend on the
evidence, so it spends all the error that is left.

There are two kinds of error, each with its own limit. A false alarm must pass two tests. The first
shares `suspect_alpha` by Bonferroni among all tests that can fail a run. The second only sees fresh
pairs. Over a whole suite, the rate of false alarms stays below the product of the two levels. A
slowdown of `pass_ratio` is missed with a probability of at most `miss_beta` in each of the two
tests, if pairs scatter about normally. A slowdown that shows in less than a fifth of the launches
is left out with the outliers.
"""

import functools
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

UNDECIDED, NOT_SLOWER, SLOWER = 0, 1, 2
# With a coarse clock, four pairs can agree to the last digit, which is no evidence.
_LEAST_SD = 1e-3
_USUAL_PAIRS = 10  # as long as no row has shown how many it needs


@dataclass(frozen=True)
class Limits:
    """The limits for slower and not slower, the looks, and the allowed error rates.

    `config.Verdicts` holds the defaults and explains each field.
    """

    fail_ratio: float
    pass_ratio: float
    looks: tuple[int, ...]
    confirm_looks: tuple[int, ...]
    suspect_alpha: float
    confirm_alpha: float
    miss_beta: float

    @property
    def false_alarms(self) -> float:
        """The largest probability that a run without a slowdown fails."""
        return self.suspect_alpha * self.confirm_alpha


class Test:
    """A group-sequential test: slower above `fail_ratio`, not slower below `pass_ratio`.

    Attributes:
        limits: the limits for slower and not slower, and the allowed error rates.
        looks: numbers of pairs after which the evidence is weighed.
        alpha: the rate of failures if nothing is slower.
        fail_t: the t-quantile for failing, at each look.
        pass_t: the t-quantile for passing, at each look.
        fail_above: how many pairs must lie above `fail_log` for failing, at each look.
        fail_log: logarithm of the ratio above which a row is slower.
        pass_log: logarithm of the ratio below which a row is not slower.
    """

    def __init__(
        self, limits: Limits, looks: tuple[int, ...], alpha: float, most: int | None = None
    ):
        """Make a test of at most `most` pairs, by default as many as at its last look."""
        most = looks[-1] if most is None else most
        self.limits = limits
        self.looks = looks
        self.alpha = alpha
        self.fail_log = math.log(limits.fail_ratio)
        self.pass_log = math.log(limits.pass_ratio)
        self.fail_above = [_fewest_alike(count, alpha, most) for count in looks]
        # A look with fewer pairs than its sign test needs can't fail a row, so it spends nothing.
        able = (
            count for count, fewest in zip(looks, self.fail_above, strict=True) if fewest <= count
        )
        # Failing waits for much evidence (power 2). Passing may come early if the noise is low
        # (power 0.7).
        fail = _spent(alpha, looks, most, 2, first=next(able, most))
        passing = _spent(limits.miss_beta, looks, most, 0.7)
        degrees = [degrees_of_freedom(count) for count in looks]
        self.fail_t = [t_quantile(*each) for each in zip(fail, degrees, strict=True)]
        self.pass_t = [t_quantile(*each) for each in zip(passing, degrees, strict=True)]

    def ending_at(self, num_pairs: int) -> "Test":
        """Return the same test with its last look after `num_pairs`, between two planned looks."""
        looks = (*(look for look in self.looks if look < num_pairs), num_pairs)
        return Test(self.limits, looks, self.alpha, self.looks[-1])

    def weigh(self, log_ratios: NDArray[np.float64], look: int) -> NDArray[np.int64]:
        """Return each row's verdict at one look.

        Args:
            log_ratios: [..., P], with pairs along the last axis.
            look: index into `looks`.
        """
        pairs = log_ratios[..., : self.looks[look]]
        mean, error = trimmed_mean(pairs)
        above = (pairs > self.fail_log).sum(axis=-1)
        fails = (mean - self.fail_t[look] * error > self.fail_log) & (
            above >= self.fail_above[look]
        )
        passes = mean + self.pass_t[look] * error < self.pass_log
        # Both can hold if the true ratio surely lies between the two limits. That is surely a
        # slowdown, but one too small to matter.
        return np.where(passes, NOT_SLOWER, np.where(fails, SLOWER, UNDECIDED))


@dataclass(frozen=True)
class Plan:
    """The two tests of every row of one run."""

    suspect: Test
    confirm: Test

    @classmethod
    def make(cls, limits: Limits, num_tests: int) -> Self:
        """Share the error among `num_tests` (Bonferroni)."""
        alpha = limits.suspect_alpha / max(1, num_tests)
        confirm = Test(limits, limits.confirm_looks, limits.confirm_alpha)
        return cls(Test(limits, limits.looks, alpha), confirm)

    def smallest_detectable(self, sd: float) -> float:
        """Return the smallest ratio that the full number of pairs finds 19 times in 20.

        Args:
            sd: the noise of a pair's log ratio, from `noise`.
        """
        num_pairs = self.suspect.looks[-1]
        error = max(sd, _LEAST_SD) / math.sqrt(num_pairs)
        missed = t_quantile(0.05, degrees_of_freedom(num_pairs))
        return math.exp(self.suspect.fail_log + (self.suspect.fail_t[-1] + missed) * error)


@dataclass
class Evidence:
    """The evidence of one row's pairs so far."""

    plan: Plan
    first: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)
    suspected: bool = False
    verdict: int = UNDECIDED
    done: bool = False
    # The test of the last stage, if the time ran out before its next look.
    ended: Test | None = None

    def add(self, log_ratio: float) -> None:
        """Add a pair's median log ratio, and weigh the evidence if a look is due."""
        (self.fresh if self.suspected else self.first).append(log_ratio)
        test, pairs = self._stage
        if not self.done and len(pairs) in test.looks:
            self._weigh(test)

    def end(self) -> None:
        """Weigh the evidence so far, because no more pairs will come.

        A suspicion without fresh pairs stays a suspicion.
        """
        test, pairs = self._stage
        if not self.done and len(pairs) >= test.looks[0]:
            self.ended = test.ending_at(len(pairs))
            self._weigh(self.ended)

    def _weigh(self, test: Test) -> None:
        planned, pairs = self._stage
        verdict = int(test.weigh(np.asarray(pairs), test.looks.index(len(pairs))))
        if verdict == SLOWER and not self.suspected:
            self.suspected = True
        # A row that seems faster stays open until it has enough pairs for its sign test. A faster
        # row may have other metrics that got worse.
        elif (
            verdict == UNDECIDED
            or self.suspected
            or self.ended
            or not self._seems_faster()
            or len(self.first) >= self._fewest_below()
        ):
            self.verdict = verdict
            self.done = verdict != UNDECIDED or len(pairs) == planned.looks[-1]

    @property
    def _stage(self) -> tuple[Test, list[float]]:
        return (
            (self.plan.confirm, self.fresh) if self.suspected else (self.plan.suspect, self.first)
        )

    @property
    def num_pairs(self) -> int:
        """The number of pairs in both stages."""
        return len(self.first) + len(self.fresh)

    @property
    def sd(self) -> float:
        """The noise of a pair's log ratio, for this row on this machine."""
        return noise(np.asarray(self._estimated_from()))

    def _estimated_from(self) -> list[float]:
        # The pairs that raised a suspicion were selected for being slow. Fresh pairs give an
        # unbiased estimate.
        return self.fresh if len(self.fresh) >= self.plan.confirm.looks[0] else self.first

    def suspicion(self) -> float:
        """Return how many standard errors the pairs lie above a ratio of 1; NaN below two pairs."""
        pairs = np.asarray([*self.first, *self.fresh])
        if len(pairs) < 2:
            return math.nan
        mean, error = trimmed_mean(pairs)
        return float(mean / error)

    def pairs_left(self, usual: float = _USUAL_PAIRS) -> float:
        """Estimate how many more pairs decide the row if they scatter as those so far.

        Before its third pair, the row is taken to need `usual` pairs in all.
        """
        test, pairs = self._stage
        every = np.asarray([*self.first, *self.fresh])
        if self.done:
            return 0
        if len(every) < 3:
            return max(1, usual - len(every))
        mean = float(trimmed_mean(every)[0])
        sd = max(noise(every), _LEAST_SD)
        confirming = 0 if self.suspected else self.plan.confirm.looks[1]
        for look, count in enumerate(test.looks):
            error = sd / math.sqrt(count)
            if count > len(pairs) and mean + test.pass_t[look] * error < test.pass_log:
                return count - len(pairs)
            if count > len(pairs) and mean - test.fail_t[look] * error > test.fail_log:
                return count - len(pairs) + confirming
        return max(1, test.looks[-1] - len(pairs))

    def ratio(self) -> tuple[float, float, float]:
        """Return the ratio of head to base and its interval, valid at the look that ended the test.

        The interval uses the quantile for passing on both sides. It misses the true ratio with a
        probability of at most 2 x `miss_beta`. Before the first look it holds every ratio.
        """
        pairs = self._estimated_from()
        test = self.ended or (self.plan.confirm if pairs is self.fresh else self.plan.suspect)
        looks = [index for index, count in enumerate(test.looks) if count <= len(pairs)]
        if not looks:
            return (math.exp(statistics.mean(pairs)) if pairs else math.nan), 0.0, math.inf
        mean, error = map(float, trimmed_mean(np.asarray(pairs)))
        reach = test.pass_t[looks[-1]] * error
        # exp(x) overflows a float for x above 709.
        low, high = (math.exp(min(mean + each, 700.0)) for each in (-reach, reach))
        return math.exp(mean), low, high

    def is_faster(self) -> bool:
        """Whether head is surely faster, with the margin and level of a suspicion."""
        below = sum(-pair > self.plan.suspect.fail_log for pair in self.first)
        return self.verdict == NOT_SLOWER and self._seems_faster() and below >= self._fewest_below()

    def _seems_faster(self) -> bool:
        test = self.plan.suspect
        mean, error = trimmed_mean(-np.asarray(self.first))
        t = t_quantile(test.alpha / len(test.looks), degrees_of_freedom(len(self.first)))
        return bool(mean - t * error > test.fail_log)

    def _fewest_below(self) -> int:
        test = self.plan.suspect
        return _fewest_alike(len(self.first), test.alpha, test.looks[-1])


def usual_pairs(rows: Iterable[Evidence]) -> float:
    """Estimate how many pairs a row needs, from those of the same run that have three or more."""
    needed = [row.num_pairs + row.pairs_left() for row in rows if row.num_pairs >= 3]
    return statistics.median(needed) if needed else _USUAL_PAIRS


def trimmed_mean(log_ratios: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
    """Return the trimmed mean over the last axis and its standard error.

    Up to a fifth of the pairs is left out at either end. Of fewer than eight pairs none is left
    out. The error has `degrees_of_freedom` and is Winsorized: each pair left out counts as the
    outermost pair kept.
    """
    num_pairs = log_ratios.shape[-1]
    out = _left_out(num_pairs)
    kept = num_pairs - 2 * out
    ordered = np.sort(log_ratios, axis=-1)[..., out : num_pairs - out]
    moved = np.clip(log_ratios, ordered[..., :1], ordered[..., -1:])
    # Yuen's standard error. `var` divides by n instead of n - 1, hence the factor of n.
    error = np.sqrt(moved.var(axis=-1) * num_pairs / (kept * (kept - 1)))
    return ordered.mean(axis=-1), np.maximum(error, _LEAST_SD / math.sqrt(num_pairs))


def noise(log_ratios: NDArray[np.float64]) -> float:
    """Return the standard deviation of one pair, from the trimmed error; NaN below two pairs."""
    if len(log_ratios) < 2:
        return math.nan
    return float(trimmed_mean(log_ratios)[1]) * math.sqrt(len(log_ratios))


def _left_out(num_pairs: int) -> int:
    return max(0, num_pairs - 3) // 5


def degrees_of_freedom(num_pairs: int) -> int:
    """Return the degrees of freedom of the standard error of `trimmed_mean`."""
    return num_pairs - 2 * _left_out(num_pairs) - 1


def _fewest_alike(num_pairs: int, alpha: float, most: int) -> int:
    """Return how many of `num_pairs` signs must agree to be rarer than `alpha` for a fair coin.

    If even `most` agreeing signs are not that rare, all `most` must agree.
    """
    tail = 0
    for alike in range(num_pairs, 0, -1):
        tail += math.comb(num_pairs, alike)
        if tail > alpha * 2**num_pairs:
            # This asks for more signs than there are, so that looks with so few pairs can't fail a
            # row.
            return min(alike + 1, num_pairs) if num_pairs >= most else alike + 1
    return 1


def _spent(
    error: float, looks: tuple[int, ...], most: int, power: float, first: int = 0
) -> list[float]:
    """Return the error that each look spends, by the power family `error * (n / most) ** power`.

    Looks before `first` pairs spend nothing. The last look spends the rest.
    """
    total = [error * (count / most) ** power if count >= first else 0.0 for count in looks]
    total[-1] = error if looks[-1] >= first else 0.0
    return [after - before for before, after in zip([0.0, *total], total, strict=False)]


@functools.cache
def t_quantile(upper_tail: float, df: int) -> float:
    """Return the value that Student's t exceeds with probability `upper_tail`, infinity for 0."""
    # scipy.stats.t.isf calls this too, but importing scipy.stats takes a second.
    from scipy.special import stdtrit

    return -float(stdtrit(df, upper_tail)) if upper_tail else math.inf
