"""When the evidence of paired timings suffices, and what it then says: the statistics of the gate, NumPy alone.

One relaunched pair of workers gives one number, the median log ratio of its alternated calls: calls inside a pair share
its luck, so they are never pooled. The pairs' numbers are looked at a few times; each look spends a part of the error
allowed, after the power family of Kim & DeMets (1987, Biometrika 74), and is a t-test at the part it spends, so that
the union bound holds whatever the looks have in common (Jennison & Turnbull, Group Sequential Methods, 2000, ch. 7).
Where the time is spent between two looks, one more is taken, with what the function allows for by then: the number of
looks need not be known before (Lan & DeMets 1983, Biometrika 70).

Two errors, two allowances. A false alarm must pass two tests: the first shares `suspect_alpha` among all timed rows by
Bonferroni, the second meets fresh pairs alone; over a whole suite false alarms stay below the product of the two. A
slowdown of `pass_ratio` is taken for none with at most `miss_beta` per row.
"""

import functools
import math
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

UNDECIDED, NOT_SLOWER, SLOWER = 0, 1, 2
WORDS = ("undecided", "not slower", "slower")
_LEAST_SD = 1e-3  # a clock's ticks can make four pairs agree to the last digit, which is no evidence


@dataclass(frozen=True)
class Test:
    """One group-sequential test: fail when surely above `fail_ratio`, pass when surely below `pass_ratio`.

    Attributes:
        limits: where slower and not slower begin, and how often to err.
        alpha: how often to fail where nothing is slower.
        looks: numbers of pairs after which the evidence is weighed.
        fail_t: the t-quantile of each look for failing.
        pass_t: the same for passing.
        fail_log: logarithm of the ratio where slower begins.
        pass_log: logarithm of the ratio below which a row is not slower.
    """

    limits: "Limits"
    alpha: float
    looks: tuple[int, ...]
    fail_t: tuple[float, ...]
    pass_t: tuple[float, ...]
    fail_log: float
    pass_log: float

    def ending_at(self, num_pairs: int) -> "Test":
        """Return the test whose last look comes after so many pairs, between two of the looks that were planned."""
        looks = (*(look for look in self.looks if look < num_pairs), num_pairs)
        return _make_test(self.limits, looks, self.alpha, self.looks[-1])

    def bounds(self, log_ratios: NDArray[np.float64], look: int) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """Return mean, standard error, and the bounds for failing and passing; pairs lie along the last axis."""
        pairs = log_ratios[..., : self.looks[look]]
        mean = pairs.mean(axis=-1)
        error = np.maximum(pairs.std(axis=-1, ddof=1), _LEAST_SD) / math.sqrt(pairs.shape[-1])
        return mean, error, mean - self.fail_t[look] * error, mean + self.pass_t[look] * error

    def weigh(self, log_ratios: NDArray[np.float64], look: int) -> NDArray[np.int64]:
        """Return the verdict of one look for each row."""
        _, _, low, high = self.bounds(log_ratios, look)
        # Both hold where the truth lies surely between the two ratios: surely a slowdown, and too small to matter.
        return np.where(high < self.pass_log, NOT_SLOWER, np.where(low > self.fail_log, SLOWER, UNDECIDED))


@dataclass(frozen=True)
class Limits:
    """Where slower and not slower begin, when to look, and how often to err. See gate.toml."""

    fail_ratio: float = 1.005
    pass_ratio: float = 1.03
    looks: tuple[int, ...] = (4, 6, 9, 13, 18, 24)
    confirm_looks: tuple[int, ...] = (4, 8, 12)
    suspect_alpha: float = 0.05
    confirm_alpha: float = 0.1
    miss_beta: float = 0.02

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
    def make(cls, limits: Limits, num_rows: int) -> Self:
        """Share the error among `num_rows` timed rows (Bonferroni)."""
        alpha = limits.suspect_alpha / max(1, num_rows)
        suspect = _make_test(limits, limits.looks, alpha)
        return cls(suspect, _make_test(limits, limits.confirm_looks, limits.confirm_alpha))

    def smallest_detectable(self, sd: float) -> float:
        """Return the smallest slowdown, as a ratio, that the full number of pairs finds 19 times in 20."""
        num_pairs = self.suspect.looks[-1]
        error = max(sd, _LEAST_SD) / math.sqrt(num_pairs)
        return math.exp(self.suspect.fail_log + (self.suspect.fail_t[-1] + t_quantile(0.05, num_pairs - 1)) * error)


@dataclass
class Evidence:
    """What one row's pairs have shown so far."""

    plan: Plan
    first: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)
    suspected: bool = False
    verdict: int = UNDECIDED
    done: bool = False
    ended: Test | None = None  # the test of the last stage, where the time was spent before its next look

    def add(self, log_ratio: float) -> None:
        """Take one more pair's median log ratio and weigh the evidence where a look is due."""
        (self.fresh if self.suspected else self.first).append(log_ratio)
        test, pairs = self._stage
        if self.done or len(pairs) not in test.looks:
            return
        look = test.looks.index(len(pairs))
        verdict = int(test.weigh(np.asarray(pairs), look))
        if verdict == SLOWER and not self.suspected:
            self.suspected = True
            return
        self.verdict = verdict
        self.done = verdict != UNDECIDED or look == len(test.looks) - 1

    def end(self) -> None:
        """Weigh what there is, as no more pairs will come; a suspicion without fresh pairs stays one."""
        test, pairs = self._stage
        if self.done or len(pairs) < test.looks[0] or len(pairs) in test.looks:
            return
        test = test.ending_at(len(pairs))
        verdict = int(test.weigh(np.asarray(pairs), len(test.looks) - 1))
        if verdict == SLOWER and not self.suspected:
            self.suspected = True
            return
        self.verdict, self.ended, self.done = verdict, test, verdict != UNDECIDED

    @property
    def _stage(self) -> tuple[Test, list[float]]:
        return (self.plan.confirm, self.fresh) if self.suspected else (self.plan.suspect, self.first)

    @property
    def num_pairs(self) -> int:
        """Pairs of both stages."""
        return len(self.first) + len(self.fresh)

    @property
    def sd(self) -> float:
        """Standard deviation of the pairs' log ratios: this row's noise on this machine."""
        return float(np.std(self._estimated_from(), ddof=1)) if len(self._estimated_from()) > 1 else math.nan

    def _estimated_from(self) -> list[float]:
        # The pairs that raised a suspicion were chosen for being slow; the fresh ones are an honest estimate.
        return self.fresh if len(self.fresh) >= self.plan.confirm.looks[0] else self.first

    def ratio(self) -> tuple[float, float, float]:
        """Return the ratio of head to base and its interval, right at whichever look the test stopped.

        The interval uses the quantile of passing on both sides: it is wrong with at most 2 x `miss_beta`.
        """
        pairs = self._estimated_from()
        if len(pairs) < 2:
            return (math.exp(pairs[0]) if pairs else math.nan), 0.0, math.inf
        test = self.ended or (self.plan.confirm if pairs is self.fresh else self.plan.suspect)
        look = max((index for index, count in enumerate(test.looks) if count <= len(pairs)), default=0)
        mean, error = float(np.mean(pairs)), max(self.sd, _LEAST_SD) / math.sqrt(len(pairs))
        # Before the first look its own quantile, of more pairs, would promise too much.
        t = test.pass_t[look] if len(pairs) >= test.looks[0] else t_quantile(0.001, len(pairs) - 1)
        return math.exp(mean), math.exp(min(mean - t * error, 700.0)), math.exp(min(mean + t * error, 700.0))

    def is_faster(self) -> bool:
        """Whether head is surely faster, by the same margin and at the same level as a suspicion of slower."""
        test, pairs = self.plan.suspect, np.asarray(self.first)
        if self.verdict != NOT_SLOWER or len(pairs) not in test.looks:
            return False
        return bool(test.bounds(-pairs, test.looks.index(len(pairs)))[2] > test.fail_log)


def replay(plan: Plan, first: NDArray[np.float64], fresh: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
    """Return verdicts and numbers of pairs of many rows at once, as `Evidence` would give them one by one.

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


def _make_test(limits: Limits, looks: tuple[int, ...], alpha: float, most: int | None = None) -> Test:
    """Make a test of at most `most` pairs, by default as many as its last look has."""
    most = looks[-1] if most is None else most
    # Failing waits for much evidence (power 2); passing may come early where the noise is low (power 1).
    fail, passing = _spent(alpha, looks, most, 2), _spent(limits.miss_beta, looks, most, 1)
    return Test(
        limits,
        alpha,
        looks,
        tuple(t_quantile(part, n - 1) for part, n in zip(fail, looks, strict=True)),
        tuple(t_quantile(part, n - 1) for part, n in zip(passing, looks, strict=True)),
        math.log(limits.fail_ratio),
        math.log(limits.pass_ratio),
    )


def _spent(error: float, looks: tuple[int, ...], most: int, power: int) -> list[float]:
    """Return what each look spends of the error allowed: increments of `error * (n / most) ** power`."""
    total = [error * (count / most) ** power for count in looks]
    return [after - before for before, after in zip([0.0, *total], total, strict=False)]


@functools.cache
def t_quantile(upper_tail: float, df: int) -> float:
    """Return what Student's t exceeds with probability `upper_tail` (below one half), by bisection."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _tail_beyond(middle, df) > upper_tail else (low, middle)
    return math.sqrt(df) * math.tan(low)


def _tail_beyond(angle: float, df: int) -> float:
    """Return P(t > sqrt(df) tan(angle)) by the finite series for whole degrees of freedom.

    Abramowitz & Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    cosine = math.cos(angle)
    odd = df % 2
    term = cosine if odd else 1.0
    total = 0.0 if df == 1 else term
    for k in range(3 if odd else 2, df - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    inside = 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
    return (1 - inside) / 2
