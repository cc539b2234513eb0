"""Find where a series of measurements changes its level: E-divisive on ranks.

The method is that of Matteson and James, A Nonparametric Approach for Multiple Change Point
Analysis of Multivariate Data, JASA 109 (2014). It splits a series where the energy distance between
the values before and after is largest. It keeps the split if a permutation test rejects chance, and
goes on inside both parts. This implementation differs in two ways. First, distances are between
ranks. So an outlier counts no more than the largest value does, and the permutations' distribution
depends only on the series' length. It is drawn once per length, not once per series. Second, each
part is tested by itself.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

MIN_SEGMENT = 5  # the fewest commits in a row that make a level
NUM_PERMUTATIONS = 1_999
# One in a thousand series without a change gets a change point. The share is so small because a
# suite has hundreds of benchmarks.
ALPHA = 0.001
_SEED = 20140305
# the distance is an integral over ranks, and this many points are enough for long series
_MAX_THRESHOLDS = 64


def change_points(values: Sequence[float], alpha: float = ALPHA) -> list[int]:
    """Return the indices into `values` at which new levels begin, in rising order.

    Args:
        values: a measurement per commit, in order.
        alpha: the allowed share of series without a change in which one is found.

    Example:
        >>> before = [1.00, 1.01, 0.99, 1.02, 0.98, 1.00, 1.01, 0.99]
        >>> change_points([*before, 1.20, 1.21, 1.19, 1.22, 1.18, 1.20, 1.21])
        [8]
    """
    found: list[int] = []
    parts = [(0, len(values))]
    series = np.asarray(values, dtype=np.float64)
    while parts:
        start, end = parts.pop()
        split = _significant_split(series[start:end], alpha)
        if split is not None:
            found.append(start + split)
            parts += [(start, start + split), (start + split, end)]
    return sorted(found)


def _significant_split(values: Array, alpha: float) -> int | None:
    if len(values) < 2 * MIN_SEGMENT:
        return None
    distances = _distances(values)
    best = int(np.argmax(distances))
    null = _null_distances(_tabulated_length(len(values)))
    # The observed order counts as one of the permutations, so that the test is exact (Phipson and
    # Smyth, 2010).
    p_value = (1 + int(np.sum(null >= distances[best] - 1e-9))) / (1 + len(null))
    return _placed(values, best + MIN_SEGMENT) if p_value <= alpha else None


def _placed(values: Array, split: int) -> int:
    """Return the split near `split` at which values scatter least about their two medians.

    Ranks alone only place the split roughly.
    """
    reach = 2 * MIN_SEGMENT
    nearby = range(
        max(split - reach, MIN_SEGMENT), min(split + reach, len(values) - MIN_SEGMENT) + 1
    )
    return min(nearby, key=lambda at: _scatter(values[:at]) + _scatter(values[at:]))


def _scatter(values: Array) -> float:
    return float(np.sum(np.abs(values - np.median(values))))


def _distances(values: Array) -> Array:
    """Return the scaled energy distance between both parts, for every allowed split.

    A split leaves MIN_SEGMENT values on each side. On ranks the distance is twice the integral of
    the squared difference of the parts' distribution functions.
    """
    num = len(values)
    ordered = np.sort(values)
    thresholds = ordered[np.linspace(0, num - 1, min(num, _MAX_THRESHOLDS)).round().astype(int)]
    below = np.cumsum(values[:, None] <= thresholds[None, :], axis=0, dtype=np.float32)
    before = np.arange(MIN_SEGMENT, num - MIN_SEGMENT + 1, dtype=np.float32)
    counts = below[MIN_SEGMENT - 1 : num - MIN_SEGMENT]
    difference = counts / before[:, None] - (below[-1] - counts) / (num - before[:, None])
    return 2 * before * (num - before) / num * np.mean(difference**2, axis=1)


def _tabulated_length(num: int) -> int:
    """Return the next tabulated length.

    That is safe, since chance reaches further in longer series.
    """
    length = 2 * MIN_SEGMENT
    while length < num:
        length = math.ceil(length * 1.2)
    return length


@functools.cache
def _null_distances(num: int) -> Array:
    """Return the largest distances of NUM_PERMUTATIONS random orders of `num` values."""
    rng = np.random.default_rng([_SEED, num])
    return np.array([_distances(rng.permutation(num)).max() for _ in range(NUM_PERMUTATIONS)])


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
