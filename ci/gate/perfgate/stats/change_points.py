"""Find where a series of measurements changes its level: E-divisive on ranks.

The method is that of Matteson and James, A Nonparametric Approach for Multiple Change Point
Analysis of Multivariate Data, JASA 109 (2014): split where the energy distance between the values
before and after is largest, keep the split if a permutation test says that chance would not do it,
go on inside both parts. Two things differ. Distances are those between ranks, so that an outlier
counts no more than the largest value does, and so that the permutations' distribution depends on
the series' length alone: it is drawn once per length, not once per series. And each part is tested
by itself.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

MIN_SEGMENT = 5  # a level is one that at least so many commits in a row confirm
NUM_PERMUTATIONS = 1_999
# Of series without a change, one in a thousand gets a change point: a suite has hundreds of
# benchmarks.
ALPHA = 0.001
_SEED = 20140305
# the distance is an integral over the ranks; so many points of it are enough for long series
_MAX_THRESHOLDS = 64


def change_points(values: Sequence[float], alpha: float = ALPHA) -> list[int]:
    """Return where new levels begin: indices into `values`, rising.

    Args:
        values: a measurement per commit, in order.
        alpha: the share of series without a change in which one may be found.

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
    """Return the split near `split` for which values scatter least about their two medians.

    Ranks alone place the split only roughly.
    """
    reach = 2 * MIN_SEGMENT
    nearby = range(
        max(split - reach, MIN_SEGMENT), min(split + reach, len(values) - MIN_SEGMENT) + 1
    )
    return min(nearby, key=lambda at: _scatter(values[:at]) + _scatter(values[at:]))


def _scatter(values: Array) -> float:
    return float(np.sum(np.abs(values - np.median(values))))


def _distances(values: Array) -> Array:
    """Return the scaled energy distance between both parts, for every split that is allowed.

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
    """Return the next tabulated length, which is safe: chance reaches further in longer series."""
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
    """How many times `before` the values after are, and the ends of the 95% interval."""

    middle: float
    low: float
    high: float


def ratio_between(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """Return by how much the level changed, with its 95% interval (Hodges and Lehmann).

    It is the median of all quotients of one value after by one before, and the interval is that of
    the rank-sum test (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 4.3; the
    normal approximation).

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
