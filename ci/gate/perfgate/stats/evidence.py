"""Decide when the launches of a row suffice, and what they show.

Each launch of a new pair of workers gives one number, the median log ratio of its quads of calls.
Calls within a launch are correlated, so they are never pooled. A few launches say little about
their own scatter. So the variance is moderated, as if the scatter pooled over all rows of their
class had been seen in four more launches (Smyth 2004, Statistical Applications in Genetics 3). A
whole launch can be an outlier: a worker whose addresses collide takes 1.5 times as long in every
call. So from five launches on the mean is trimmed and the variance Winsorized (Yuen 1974,
Biometrika 61).

A row ends in one of three zones:

    slower              surely above `fail_ratio`, in the first launches and again in fresh ones
    not slower          surely below `pass_ratio`
    not shown slower    neither, when the time ends; then its upper 95% bound counts

The evidence is weighed at a few looks, which share the allowed error equally, so the union bound
holds however they are correlated. There are two kinds of error. A false alarm must pass two tests.
The first shares `SUSPECT_ALPHA` among all rows that are timed. The second only sees fresh launches.
All of the first five launches, later three quarters of them, must lie above `fail_ratio`, because a
few launches that agree by luck look certain to a t-test. Each test misses a slowdown of
`pass_ratio` with a probability of about `MISS_BETA`.
"""

import functools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

UNDECIDED, NOT_SLOWER, SLOWER = 0, 1, 2
LOOKS = (2, 3, 4, 6, 8, 12, 16, 24)  # numbers of launches after which the evidence is weighed
CONFIRMING_LOOKS = (3, 5, 8, 12)  # the same for the fresh launches that confirm a suspicion
SUSPECT_ALPHA = 0.05
CONFIRM_ALPHA = 0.1
FALSE_ALARMS = SUSPECT_ALPHA * CONFIRM_ALPHA  # of a run in which nothing is slower, at most
MISS_BETA = 0.05
_MISS_AT_A_LOOK = MISS_BETA / 3
_PRIOR_DF = 4  # as many launches' worth of evidence is the pooled scatter
_LEAST_SCATTER = 0.003
_UNKNOWN_SCATTER = 0.015  # at least this, if too few rows of a class show theirs
_ENOUGH_ROWS = 8
_AGREEING = 0.75  # the share of six or more launches that must lie above `fail_ratio`
_ALL_AGREE = 5  # up to so many launches, all of them


@dataclass(frozen=True)
class Limits:
    """The ratios between the zones.

    Attributes:
        fail_ratio: a row is slower if head surely takes more than this many times the base's time.
        pass_ratio: a row is not slower if head surely takes less than this many times that.
        cap: a row that was neither when the time ended passes if its upper bound is at most this.
    """

    fail_ratio: float
    pass_ratio: float
    cap: float


HOT = Limits(1.01, 1.04, 1.10)
HOST = Limits(1.03, 1.12, 1.30)


@dataclass
class Evidence:
    """The evidence of one row's launches so far.

    Attributes:
        limits: the ratios between the zones, which its class decides.
        num_tests: how many tests share the error of a run.
        first: the log ratio of each launch, until they raise a suspicion.
        fresh: those of the launches after it.
        suspected: whether the first launches raised a suspicion.
        verdict: the zone.
        scatter: the scatter of a launch's log ratio in this run, pooled over the rows of the class.
    """

    limits: Limits = HOT
    num_tests: int = 1
    first: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)
    suspected: bool = False
    verdict: int = UNDECIDED
    scatter: float = _UNKNOWN_SCATTER

    def add(self, log_ratio: float) -> None:
        """Add a launch's log ratio. `weigh` looks at it."""
        self._stage[0].append(log_ratio)

    def weigh(self, scatter: float) -> None:
        """Weigh the evidence after a launch, if a look is due."""
        stage, looks = self._stage
        self.scatter = scatter
        if len(stage) not in looks:
            return
        mean, error, df = estimate(stage, scatter)
        reach = t_quantile(_MISS_AT_A_LOOK, df) * error
        # Both can hold if the true ratio surely lies between the two limits. Such a slowdown is too
        # small to matter.
        if mean + reach < math.log(self.limits.pass_ratio):
            self.verdict = NOT_SLOWER
        elif is_above(stage, self.limits.fail_ratio, self._level, scatter):
            self.verdict = SLOWER if self.suspected else UNDECIDED
            self.suspected = True

    @property
    def _stage(self) -> tuple[list[float], Sequence[int]]:
        return (self.fresh, CONFIRMING_LOOKS) if self.suspected else (self.first, LOOKS)

    @property
    def _level(self) -> float:
        """The error that one look of this stage may spend on calling the row slower."""
        if self.suspected:
            return CONFIRM_ALPHA / len(CONFIRMING_LOOKS)
        return SUSPECT_ALPHA / self.num_tests / len(LOOKS)

    @property
    def done(self) -> bool:
        """Whether no launch can add anything: it is decided, or has had its last look."""
        stage, looks = self._stage
        return self.verdict != UNDECIDED or len(stage) >= looks[-1]

    @property
    def looks_slower(self) -> bool:
        """Whether it is suspected, or its only launch lies above the cap."""
        return self.suspected or (len(self.launches) == 1 and self.ratio()[0] > self.limits.cap)

    @property
    def is_open_suspicion(self) -> bool:
        """Whether there was no time for all fresh launches that a suspicion asks for."""
        return self.suspected and not self.done

    @property
    def has_passed(self) -> bool:
        """Whether it is not slower or not shown slower, and may be no slower than `fail_ratio`."""
        _, low, high = self.ratio()
        is_below = self.verdict == NOT_SLOWER or high <= self.limits.cap
        return (
            is_below
            and self.verdict != SLOWER
            and not self.is_open_suspicion
            and low <= self.limits.fail_ratio
        )

    @property
    def launches(self) -> list[float]:
        """The log ratios of both stages."""
        return [*self.first, *self.fresh]

    def ratio(self) -> tuple[float, float, float]:
        """Return the ratio of head to base, with its lower and its upper 95% bound.

        Launches that raised a suspicion were selected for being slow, so fresh ones count alone as
        soon as there are enough. Below two launches nothing bounds the ratio.
        """
        launches = self.fresh if len(self.fresh) >= CONFIRMING_LOOKS[0] else self.launches
        if len(launches) < LOOKS[0]:
            return (math.exp(launches[0]) if launches else math.nan), 0.0, math.inf
        mean, error, df = estimate(launches, self.scatter)
        reach = t_quantile(0.05, df) * error
        # exp(x) overflows a float for x above 709
        low, high = (math.exp(min(mean + each, 700.0)) for each in (-reach, reach))
        return math.exp(mean), low, high

    def is_faster(self) -> bool:
        """Whether head is surely faster, with the margin and the level of a suspicion."""
        mirrored = [-each for each in self.first]
        return (
            self.verdict == NOT_SLOWER
            and not self.suspected
            and is_above(mirrored, self.limits.fail_ratio, self._level, self.scatter)
        )

    def suspicion(self) -> float:
        """Return how many standard errors the launches lie above a ratio of 1; NaN for none."""
        if len(self.launches) < LOOKS[0]:
            return self.launches[0] / self.scatter if self.launches else math.nan
        mean, error, _ = estimate(self.launches, self.scatter)
        return mean / error

    def launches_left(self) -> int:
        """Estimate how many more launches decide the row if they scatter as those so far."""
        stage, looks = self._stage
        if self.done:
            return 0
        if len(self.launches) < LOOKS[0]:
            return LOOKS[0] - len(self.launches)
        mean, error, df = estimate(self.launches, self.scatter)
        sd = error * math.sqrt(len(self.launches))
        confirming = 0 if self.suspected else CONFIRMING_LOOKS[0]
        for count in (count for count in looks if count > len(stage)):
            error = sd / math.sqrt(count)
            if mean + t_quantile(_MISS_AT_A_LOOK, df) * error < math.log(self.limits.pass_ratio):
                return count - len(stage)
            reach = t_quantile(self._level, df) * error
            if mean - reach > math.log(self.limits.fail_ratio):
                return count - len(stage) + confirming
        return looks[-1] - len(stage)


def is_above(launches: Sequence[float], ratio: float, alpha: float, scatter: float) -> bool:
    """Tell whether launches lie surely above a ratio, at the level `alpha`, and agree on it."""
    mean, error, df = estimate(launches, scatter)
    above = sum(each > math.log(ratio) for each in launches)
    needed = len(launches) * (1.0 if len(launches) <= _ALL_AGREE else _AGREEING)
    return above >= needed and mean - t_quantile(alpha, df) * error > math.log(ratio)


def pooled_scatter(rows: Iterable[Evidence]) -> float:
    """Return the scatter of a launch, pooled over rows of one class.

    A row that scatters far more than the others says nothing about them, so each is clipped at
    three times the median.
    """
    own = [statistics.stdev(each.launches) for each in rows if len(each.launches) >= LOOKS[0]]
    least = _LEAST_SCATTER if len(own) >= _ENOUGH_ROWS else _UNKNOWN_SCATTER
    if not own:
        return least
    clipped = np.minimum(own, 3 * statistics.median(own))
    return max(least, float(np.sqrt(np.mean(clipped**2))))


def estimate(
    values: Sequence[float], scatter: float | None = None, left_out: int | None = None
) -> tuple[float, float, int]:
    """Return the trimmed mean of two or more values, its standard error and degrees of freedom.

    For the variance each value that is left out counts as the outermost value kept.

    Args:
        values: the values.
        scatter: the scatter of one value that moderates the variance, if one is known.
        left_out: how many are left out at either end; by default one of five, two of eleven, ...
    """
    ordered = np.sort(np.asarray(values, float))
    count = len(ordered)
    out = left_out
    if out is None:
        out = 0 if count < _ALL_AGREE else 1 + (count - _ALL_AGREE) // 6
    kept = count - 2 * out
    moved = np.clip(ordered, ordered[out], ordered[count - out - 1])
    total = float(moved.var()) * count
    df = kept - 1
    if scatter is not None:
        total += _PRIOR_DF * scatter**2
        df += _PRIOR_DF
    mean = float(ordered[out : count - out].mean())
    return mean, math.sqrt(total / df / kept), df


@functools.cache
def t_quantile(upper_tail: float, df: int) -> float:
    """Return the value that Student's t exceeds with probability `upper_tail`."""
    # scipy.stats.t.isf calls this too, but importing scipy.stats takes a second.
    from scipy.special import stdtrit

    return -float(stdtrit(df, upper_tail))
