"""Intervals of the median, for samples of any distribution, and of a mean."""

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from fractions import Fraction
from numbers import Real
from typing import Annotated

from myriad.errors import InvalidArgumentError, shown
from myriad.ranges import Number, checked

# The most samples. More would take minutes in exact integers.
MOST = 100_000
Confidence = Annotated[float, Number(0, 1)]


@checked
def median_interval(samples: Iterable[float], confidence: Confidence = 0.95) -> tuple[float, float]:
    """Return two of the samples that enclose the true median with at least this probability.

    The k-th smallest of n independent samples lies above the true median only if fewer than k of
    n fair coins show heads, whatever the distribution is. The same holds for the k-th largest
    (Conover, Practical Nonparametric Statistics, 3.2). The interval takes the largest such k.

    Args:
        samples: independent samples, in any order.
        confidence: the least probability that the interval holds the true median.

    Raises:
        InvalidArgumentError: there are too few samples for any interval of this confidence, too
            many, or one is not a number.

    Example:
        >>> median_interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0])
        (1.0, 6.0)
    """
    ordered: list[float] = list(samples)
    if not all(isinstance(each, Real) and each == each for each in ordered):  # noqa: PLR0124
        raise InvalidArgumentError("samples", f"must be numbers, but got {shown(samples)}.")
    if len(ordered) > MOST:
        raise InvalidArgumentError(
            "samples", f"must be at most {MOST:,}, but got {len(ordered):,}."
        )
    require_enough("samples", len(ordered), confidence)
    ordered.sort()
    rank = _rank(len(ordered), confidence)
    return ordered[rank - 1], ordered[-rank]


def mean_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return Student's interval of the mean; NaNs for fewer than two samples.

    Args:
        samples: independent samples, such as the returns of trainings with different seeds.
        confidence: the probability that the interval holds the mean, if means are normal.

    Example:
        >>> low, high = mean_interval([1.0, 2.0, 3.0])
        >>> round(low, 2), round(high, 2)
        (-0.48, 4.48)
    """
    if len(samples) < 2:
        return math.nan, math.nan
    # scipy.stats would take a second to import.
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(samples) - 1, (1 + confidence) / 2))
    half = quantile * statistics.stdev(samples) / math.sqrt(len(samples))
    mean = statistics.fmean(samples)
    return mean - half, mean + half


def require_enough(name: str, num_samples: int, confidence: float) -> None:
    """Raise unless `num_samples` samples have an interval of this confidence.

    Args:
        name: the caller's name for the number of samples, for the message.
        num_samples: how many samples there are.
        confidence: see `median_interval`.

    Raises:
        InvalidArgumentError: there are too few, or `confidence` is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise InvalidArgumentError(
            "confidence", f"must lie between 0 and 1, both excluded, but got {confidence}."
        )
    if not _rank(num_samples, confidence):
        least = next(count for count in itertools.count(2) if _rank(count, confidence))
        raise InvalidArgumentError(
            name, f"must be at least {least} for confidence {confidence}, but got {num_samples}."
        )


def _rank(num_samples: int, confidence: float) -> int:
    """Return the largest k with `2 P(Binomial(n, 1/2) < k) <= 1 - confidence`, or 0."""
    # Use exact integers, since with a thousand samples a float loses the difference that decides.
    allowed = (1 - Fraction(confidence)) * 2**num_samples / 2
    rank = 0
    below = term = 1  # `term` is the binomial coefficient of `rank`.
    while below <= allowed:
        term = term * (num_samples - rank) // (rank + 1)
        rank += 1
        below += term
    return rank
