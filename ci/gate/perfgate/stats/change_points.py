"""Find where a series of measurements changes its level, also if the old level comes back.

For each number of changes, dynamic programming finds the segments with the least squared residuals
(Auger and Lawrence, Bulletin of Mathematical Biology 51, 1989). Splitting a series in two, and the
halves again, would miss a level that comes back. Then the number of changes is chosen by penalised
likelihood. The residuals may correlate with their neighbours (Chakar et al., Bernoulli 23, 2017),
and the penalty grows with the number of ways to place the changes (Lebarbier, Signal Processing 85,
2005). Nothing is drawn at random.
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

MIN_SEGMENT = 5  # the fewest commits in a row that make a level
# Shared machines drift by this much on their own, so a smaller difference makes no new level.
MIN_EFFECT = 1.01
# These two constants were set by simulation. docs/site.md gives the rates of error they lead to.
_PENALTY = 5.0  # of one change, besides the number of ways to place the changes
_MAX_CORRELATION = 0.6  # of neighbours' residuals: the noise of a shared machine is not white
_OUTLIER = 4.0  # standard deviations from the median around it, beyond which a value counts less
_PASSES = 30  # of the reweighting, which settles before
_DOUBT = 4.0  # variances of the noise that a change must save where none is expected: 7 to 1
_RESOLUTION = 0.001  # exact counts have no noise at all, and their logarithm would be infinite


def change_points(values: Sequence[float], doubted: Sequence[bool] = ()) -> list[int]:
    """Return the indices into `values` at which new levels begin, in rising order.

    Args:
        values: a measurement per commit, in order.
        doubted: whether the code can't have changed the level at a measurement. Such a place is
            only chosen if its neighbours fit clearly worse.

    Example:
        >>> before = [1.00, 1.01, 0.99, 1.02, 0.98, 1.00, 1.01, 0.99]
        >>> change_points([*before, 1.20, 1.21, 1.19, 1.22, 1.18, 1.20, 1.21, *before])
        [8, 15]
    """
    num = len(values)
    if num < 2 * MIN_SEGMENT:
        return []
    series = _without_outliers(np.asarray(values, dtype=np.float64))
    best: list[int] = []
    least = math.inf
    for places in _segmentations(series, doubted):
        count = len(places)
        penalty = _PENALTY * count + 2 * math.log(math.comb(num - 1, count))
        criterion = num * math.log(_noise_variance(series, places)) + penalty
        if criterion < least:
            best, least = places, criterion
    return best


def _without_outliers(values: Array) -> Array:
    """Return logarithms, or shares of the largest value if some values have no logarithm.

    A value far from the median of its neighbourhood is moved towards it. A level of MIN_SEGMENT
    commits is the majority of a neighbourhood, so it stays.
    """
    is_positive = values.min() > 0
    series = np.log(values) if is_positive else values / (np.abs(values).max() or 1.0)
    size = 2 * MIN_SEGMENT - 1
    padded = np.pad(series, MIN_SEGMENT - 1, mode="median", stat_length=size)
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, size), axis=1)
    away = series - middle
    reach = _OUTLIER * 1.4826 * np.median(np.abs(away))
    is_far = np.abs(away) > reach
    away[is_far] = reach**2 / away[is_far]  # the further away, the less it counts
    return middle + away


def on_one_scale(values: Sequence[float], processors: Sequence[Hashable]) -> list[float]:
    """Return positive values as if the processor of the last one had measured all of them.

    Neighbours differ by their processors' speeds, except at a change of level. So the speeds are
    those that leave the least absolute differences between neighbours, and few changes don't move
    them (by iteratively reweighted least squares).

    Example:
        >>> [round(value, 6) for value in on_one_scale([2.0, 1.0, 2.0, 1.0, 4.0, 2.0], "ababab")]
        [1.0, 1.0, 1.0, 1.0, 2.0, 2.0]
    """
    names = list(dict.fromkeys(processors))
    of = np.array([names.index(each) for each in processors])
    series = np.log(np.asarray(values, dtype=np.float64))
    one, other = np.triu_indices(len(values), 1)
    near = (other - one < MIN_SEGMENT) & (of[one] != of[other])
    one, other = one[near], other[near]
    speeds = np.eye(len(names))
    apart = speeds[of[other]] - speeds[of[one]]
    differences = series[other] - series[one]
    found = np.zeros(len(names))
    for _ in range(_PASSES if len(names) > 1 else 0):
        weights = np.maximum(np.abs(differences - apart @ found), _RESOLUTION**2) ** -0.5
        found = np.linalg.lstsq(apart * weights[:, None], differences * weights, rcond=None)[0]
    return [float(each) for each in values * np.exp(found[of[-1]] - found[of])]


def _segmentations(series: Array, doubted: Sequence[bool]) -> Iterator[list[int]]:
    """Yield the places of the best 0, 1, 2, ... changes: those with the least squared residuals."""
    sums = np.concatenate([[0.0], np.cumsum(series - series.mean())])
    at = np.arange(len(sums))
    lengths = at[:, None] - at
    # what a segment from a column's place to a row's place takes off the sum of squares
    gains = (sums[:, None] - sums) ** 2 / np.maximum(lengths, 1)
    noise = (1.4826 * np.median(np.abs(np.diff(series)))) ** 2 / 2
    gains[:, np.flatnonzero(doubted)] -= _DOUBT * noise
    gains[lengths < MIN_SEGMENT] = -np.inf
    best = gains[:, 0]
    totals = np.empty_like(gains)
    starts: list[Array] = []  # where the last segment begins, for each end and number of changes
    for _ in range(len(series) // MIN_SEGMENT):
        places = [len(series)]
        for start in reversed(starts):
            places.append(int(start[places[-1]]))
        yield places[:0:-1]
        np.add(best, gains, out=totals)
        starts.append(totals.argmax(axis=1))
        best = totals[at, starts[-1]]


def _noise_variance(series: Array, places: Sequence[int]) -> float:
    """Return the variance of the residuals that is left after the correlation of neighbours.

    A short series can't tell a step from correlated noise, and counts as a step.
    """
    bounds = [0, *places, len(series)]
    lengths = np.diff(bounds)
    residuals = series - np.repeat(np.add.reduceat(series, bounds[:-1]) / lengths, lengths)
    most = _MAX_CORRELATION * (1 - 2 * MIN_SEGMENT / len(series))
    squares = residuals @ residuals
    correlation = residuals[1:] @ residuals[:-1] / squares if squares else 0.0
    own = residuals[1:] - np.clip(correlation, 0.0, most) * residuals[:-1]
    return float(own @ own) / len(series) + _RESOLUTION**2


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratio of the values after to those before, with the ends of its 95% interval."""

    middle: float
    low: float
    high: float


def ratio_between(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """Return the ratio by which the level changed, with its 95% interval (Hodges and Lehmann).

    The ratio is the median of all quotients of one value after by one before. The interval is that
    of the rank-sum test, in the normal approximation (Hollander, Wolfe and Chicken, Nonparametric
    Statistical Methods, 4.3).

    Example:
        >>> ratio_between([1.0, 1.0, 1.0, 1.0, 1.0], [1.1, 1.1, 1.1, 1.1, 1.1]).middle
        1.1
    """
    quotients = np.sort(
        np.divide.outer(np.asarray(after, float), np.asarray(before, float)).ravel()
    )
    num_before, num_after = len(before), len(after)
    spread = math.sqrt(num_before * num_after * (num_before + num_after + 1) / 12)
    rank = max(math.floor(num_before * num_after / 2 - 1.959964 * spread), 0)
    middle = float(np.median(quotients))
    return Ratio(middle, float(quotients[rank]), float(quotients[-1 - rank]))
