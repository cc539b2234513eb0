"""When the evidence of paired timings suffices, and what it then says.

One relaunched pair of workers gives one number, the median log ratio of its alternated calls. Calls
within a pair are correlated, so they are never pooled. A pair can be an outlier as a whole: a
worker whose addresses collide takes 1.5 times as long in every call. So the lowest fifth of the
pairs and the highest fifth are left out of the mean and of its standard error (Tukey & McLaughlin
1963, Sankhya A 25; Yuen 1974, Biometrika 61).

The pairs' numbers are looked at a few times; each look spends a part of the error allowed, after
the power family of Kim & DeMets (1987, Biometrika 74), and is a t-test at the part it spends, so
that the union bound holds whatever the looks have in common (Jennison & Turnbull, Group Sequential
Methods, 2000, ch. 7). A few pairs that agree by luck seem sure to a t-test, so that failing also
takes a sign test: more pairs above the limit than a coin would give. Where the time is spent
between two looks, one more is taken: the number of looks need not be known before (Lan & DeMets
1983, Biometrika 70), and since it is the last, and not the evidence asked for it, it spends all
that is left.

Two errors, two allowances. A false alarm must pass two tests: the first shares `suspect_alpha`
among all that can fail a run by Bonferroni, the second sees only fresh pairs; over a whole suite
false alarms stay below the product of the two. A slowdown of `pass_ratio` is taken for none with at
most `miss_beta` in each of the two tests, where pairs scatter about normally. One that only few
launches show, less than a fifth of them, is left out with the outliers.
"""

import functools
import math
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

UNDECIDED, NOT_SLOWER, SLOWER = 0, 1, 2
# A clock's ticks can make four pairs agree to the last digit, which is no evidence.
_LEAST_SD = 1e-3


@dataclass(frozen=True)
class Test:
    """One group-sequential test: fails surely above `fail_ratio`, passes surely below `pass_ratio`.

    Attributes:
        limits: where slower and not slower begin, and how often to err.
        alpha: how often to fail where nothing is slower.
        looks: numbers of pairs after which the evidence is weighed.
        fail_t: the t-quantile of each look for failing.
        pass_t: the same for passing.
        fail_above: of the pairs of each look, how many must lie above `fail_log` for failing.
        fail_log: logarithm of the ratio where slower begins.
        pass_log: logarithm of the ratio below which a row is not slower.
    """

    limits: "Limits"
    alpha: float
    looks: tuple[int, ...]
    fail_t: tuple[float, ...]
    pass_t: tuple[float, ...]
    fail_above: tuple[int, ...]
    fail_log: float
    pass_log: float

    def ending_at(self, num_pairs: int) -> "Test":
        """Return the same test with its last look after `num_pairs`, between two planned looks."""
        looks = (*(look for look in self.looks if look < num_pairs), num_pairs)
        return _make_test(self.limits, looks, self.alpha, self.looks[-1])

    def bounds(
        self, log_ratios: NDArray[np.float64], look: int
    ) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """Return mean, standard error, and the bounds for failing and passing.

        Args:
            log_ratios: [..., P], pairs along the last axis.
            look: index into `looks`.
        """
        mean, error = trimmed_mean(log_ratios[..., : self.looks[look]])
        return mean, error, mean - self.fail_t[look] * error, mean + self.pass_t[look] * error

    def weigh(self, log_ratios: NDArray[np.float64], look: int) -> NDArray[np.int64]:
        """Return the verdict of one look for each row."""
        _, _, low, high = self.bounds(log_ratios, look)
        above = (log_ratios[..., : self.looks[look]] > self.fail_log).sum(axis=-1)
        fails = (low > self.fail_log) & (above >= self.fail_above[look])
        # Both hold where the truth lies surely between the two ratios: surely a slowdown, and too
        # small to matter.
        return np.where(high < self.pass_log, NOT_SLOWER, np.where(fails, SLOWER, UNDECIDED))


@dataclass(frozen=True)
class Limits:
    """Where slower and not slower begin, when to look, and how often to err.

    `config.Verdicts` holds the defaults and says what each means.
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
        """The largest probability that a suite without a slowdown fails."""
        return self.suspect_alpha * self.confirm_alpha


@dataclass(frozen=True)
class Plan:
    """The two tests of every row of one run."""

    suspect: Test
    confirm: Test

    @classmethod
    def make(cls, limits: Limits, num_tests: int) -> Self:
        """Share the error among `num_tests` (Bonferroni)."""
        alpha = limits.suspect_alpha / max(1, num_tests)
        suspect = _make_test(limits, limits.looks, alpha)
        return cls(suspect, _make_test(limits, limits.confirm_looks, limits.confirm_alpha))

    def smallest_detectable(self, sd: float) -> float:
        """Return the smallest ratio that the full number of pairs finds 19 times in 20.

        Args:
            sd: noise of a pair's log ratio, as `noise` returns it.
        """
        num_pairs = self.suspect.looks[-1]
        error = max(sd, _LEAST_SD) / math.sqrt(num_pairs)
        missed = t_quantile(0.05, degrees_of_freedom(num_pairs))
        return math.exp(self.suspect.fail_log + (self.suspect.fail_t[-1] + missed) * error)


@dataclass
class Evidence:
    """What one row's pairs have shown so far."""

    plan: Plan
    first: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)
    suspected: bool = False
    verdict: int = UNDECIDED
    done: bool = False
    # The test of the last stage, where the time was spent before its next look.
    ended: Test | None = None

    def add(self, log_ratio: float) -> None:
        """Take one more pair's median log ratio and weigh the evidence where a look is due."""
        (self.fresh if self.suspected else self.first).append(log_ratio)
        test, pairs = self._stage
        if not self.done and len(pairs) in test.looks:
            self._weigh(test)

    def end(self) -> None:
        """Weigh what there is, because no more pairs will come.

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
        # A row that is not slower stays open while a few more pairs could show that it is faster.
        elif verdict == UNDECIDED or self.suspected or self.ended or not self._may_be_faster_yet():
            self.verdict = verdict
            self.done = verdict != UNDECIDED or len(pairs) == planned.looks[-1]

    @property
    def _stage(self) -> tuple[Test, list[float]]:
        return (
            (self.plan.confirm, self.fresh) if self.suspected else (self.plan.suspect, self.first)
        )

    @property
    def num_pairs(self) -> int:
        """Pairs of both stages."""
        return len(self.first) + len(self.fresh)

    @property
    def sd(self) -> float:
        """Noise of a pair's log ratio, of this row on this machine."""
        return noise(np.asarray(self._estimated_from()))

    def _estimated_from(self) -> list[float]:
        # The pairs that raised a suspicion were chosen for being slow; the fresh ones are an honest
        # estimate.
        return self.fresh if len(self.fresh) >= self.plan.confirm.looks[0] else self.first

    def ratio(self) -> tuple[float, float, float]:
        """Return the ratio of head to base and its interval, valid at the look that ended the test.

        The interval uses the quantile of passing on both sides: it is wrong with at most 2 x
        `miss_beta`.
        """
        pairs = self._estimated_from()
        if len(pairs) < 2:
            return (math.exp(pairs[0]) if pairs else math.nan), 0.0, math.inf
        test = self.ended or (self.plan.confirm if pairs is self.fresh else self.plan.suspect)
        look = max(
            (index for index, count in enumerate(test.looks) if count <= len(pairs)), default=0
        )
        mean, error = map(float, trimmed_mean(np.asarray(pairs)))
        # Before the first look its own quantile, of more pairs, would promise too much.
        early = len(pairs) < test.looks[0]
        t = t_quantile(0.001, degrees_of_freedom(len(pairs))) if early else test.pass_t[look]
        return (
            math.exp(mean),
            # The exponential of more than 709 overflows a float.
            math.exp(min(mean - t * error, 700.0)),
            math.exp(min(mean + t * error, 700.0)),
        )

    def is_faster(self) -> bool:
        """Whether head is surely faster, by the margin and at the level of a suspicion."""
        below = sum(-pair > self.plan.suspect.fail_log for pair in self.first)
        return self.verdict == NOT_SLOWER and self._seems_faster() and below >= self._fewest_below()

    def _may_be_faster_yet(self) -> bool:
        """Whether the row seems faster, but has too few pairs for its sign test.

        Certainty matters, because a faster row may have other metrics that got worse.
        """
        return self._seems_faster() and len(self.first) < self._fewest_below()

    def _seems_faster(self) -> bool:
        test = self.plan.suspect
        mean, error = trimmed_mean(-np.asarray(self.first))
        t = t_quantile(test.alpha / len(test.looks), degrees_of_freedom(len(self.first)))
        return bool(mean - t * error > test.fail_log)

    def _fewest_below(self) -> int:
        test = self.plan.suspect
        return _fewest_alike(len(self.first), test.alpha, test.looks[-1])


def trimmed_mean(log_ratios: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
    """Return the trimmed mean over the last axis and its standard error.

    Up to a fifth is left out at either end; fewer than eight pairs are taken whole. The error has
    `degrees_of_freedom` and is Winsorized: pairs left out count as the outermost pair kept.
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
    """Return those of the standard error of `trimmed_mean`."""
    return num_pairs - 2 * _left_out(num_pairs) - 1


def replay(
    plan: Plan, first: NDArray[np.float64], fresh: NDArray[np.float64]
) -> tuple[NDArray, NDArray]:
    """Return the verdicts and numbers of pairs that `Evidence` would give, for many rows at once.

    A row that gets much faster may take a few pairs more there, until its signs show that too.

    Args:
        plan: the tests.
        first: [..., P]: log ratios of as many pairs as the first test may take.
        fresh: [..., Q]: the same for the confirmation.
    """
    verdict, pairs = _first_decision(plan.suspect, first)
    confirmed, more = _first_decision(plan.confirm, fresh)
    suspected = verdict == SLOWER
    return np.where(suspected, confirmed, verdict), pairs + np.where(suspected, more, 0)


def _first_decision(test: Test, log_ratios: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
    verdict = np.full(log_ratios.shape[:-1], UNDECIDED)
    pairs = np.full(verdict.shape, test.looks[-1])
    for look, count in enumerate(test.looks):
        is_open = verdict == UNDECIDED
        verdict = np.where(is_open, test.weigh(log_ratios, look), verdict)
        pairs = np.where(is_open & (verdict != UNDECIDED), count, pairs)
    return verdict, pairs


def _make_test(
    limits: Limits, looks: tuple[int, ...], alpha: float, most: int | None = None
) -> Test:
    """Make a test of at most `most` pairs, by default as many as its last look has."""
    most = looks[-1] if most is None else most
    # Failing waits for much evidence (power 2); passing may come early where the noise is low
    # (power 0.7).
    above = tuple(_fewest_alike(count, alpha, most) for count in looks)
    # A look with fewer pairs than its sign test asks for can fail no row, so it spends nothing.
    first_to_fail = next(
        (count for count, fewest in zip(looks, above, strict=True) if fewest <= count), most
    )
    fail, passing = (
        _spent(alpha, looks, most, 2, first_to_fail),
        _spent(limits.miss_beta, looks, most, 0.7),
    )
    degrees = [degrees_of_freedom(count) for count in looks]
    return Test(
        limits,
        alpha,
        looks,
        tuple(
            t_quantile(part, df) if part else math.inf
            for part, df in zip(fail, degrees, strict=True)
        ),
        tuple(t_quantile(part, df) for part, df in zip(passing, degrees, strict=True)),
        above,
        math.log(limits.fail_ratio),
        math.log(limits.pass_ratio),
    )


def _fewest_alike(num_pairs: int, alpha: float, most: int) -> int:
    """Return how many of `num_pairs` signs must agree to be rarer than `alpha` for a fair coin.

    If even `most` agreeing signs are not that rare, all of them must agree.
    """
    tail = 0
    for alike in range(num_pairs, 0, -1):
        tail += math.comb(num_pairs, alike)
        if tail > alpha * 2**num_pairs:
            # More than there are, before the last look: so few pairs can't fail a row.
            return min(alike + 1, num_pairs) if num_pairs >= most else alike + 1
    return 1


def _spent(
    error: float, looks: tuple[int, ...], most: int, power: float, first: int = 0
) -> list[float]:
    """Return what each look spends of the error, by the power family `error * (n / most) ** power`.

    Looks before `first` pairs spend nothing. The last look spends the rest.
    """
    total = [error * (count / most) ** power if count >= first else 0.0 for count in looks]
    total[-1] = error if looks[-1] >= first else 0.0
    return [after - before for before, after in zip([0.0, *total], total, strict=False)]


@functools.cache
def t_quantile(upper_tail: float, df: int) -> float:
    """Return what Student's t exceeds with probability `upper_tail`."""
    # scipy.stats.t.isf calls this too. To import scipy.stats takes a second, and only timing needs
    # a quantile.
    from scipy.special import stdtrit

    return -float(stdtrit(df, upper_tail))
