"""Choose how to sample a row: both sides at once if they may share a core, else in turn.

Calls that only compute share a core well. Calls that wait, run elsewhere or are too short to share
a core run in turn.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfgate.config import Timing
from perfgate.process.protocol import Calibration
from perfgate.stages import COMPARABLE

# Calls at once that take more than this many times the seconds alone push each other out of a
# cache. Their times say nothing about the change.
_CROWDED = 1.25
# If the author has fixed the number of calls, a shared sample must last for this part of
# `shared_s`. That is a few of the kernel's time slices.
_FIXED = 0.25


@dataclass(frozen=True)
class Way:
    """One way to sample a row in each pair.

    Attributes:
        calls: calls in one sample.
        samples: samples of each side.
    """

    calls: int
    samples: int


@dataclass(frozen=True)
class Ways:
    """The ways to sample a row.

    Attributes:
        in_turn: one side after the other.
        shared: both at once; None if they must not share a core, or if that takes too long.
    """

    in_turn: Way
    shared: Way | None = None

    @property
    def own_time(self) -> bool:
        """Whether calls are only charged their own time, not that of neighbours on their core."""
        return self.shared is not None

    @property
    def first(self) -> Way:
        """The way that is tried first."""
        return self.shared or self.in_turn


def choose_ways(
    found: Sequence[Calibration], timing: Timing, timeout_s: float, *, has_two_cores: bool
) -> Ways:
    """Choose how to sample a row from the calibration of its calls on both sides.

    Args:
        found: the calibration on each side.
        timing: how long a pair and a sample last.
        timeout_s: seconds that the benchmark may take.
        has_two_cores: whether the sides are pinned and prepared on cores of their own.
    """
    # The slower side decides how many calls a sample has, so that a large slowdown costs little
    # time.
    calls = min(each.calls for each in found)
    least_s = min(each.seconds for each in found)
    most_s = max(each.seconds for each in found)
    # If one side takes far longer, one turn is enough to see it, and more would take too long.
    is_comparable = most_s <= COMPARABLE * least_s
    turns = _alternations(found, calls, timing, timing.min_alternations if is_comparable else 1)
    in_turn = Way(calls, turns)
    is_fixed = any(each.fixed for each in found)
    enough = calls if is_fixed else math.ceil(timing.shared_s / max(least_s, 1e-9))
    may_share = (
        timing.shared_s > 0
        and has_two_cores
        and all(each.is_work for each in found)
        and least_s * enough >= _FIXED * timing.shared_s
        and is_comparable
        and _wall_s(found, enough) <= timeout_s / 2
    )
    if not may_share:
        return Ways(in_turn)
    return Ways(in_turn, Way(enough, _alternations(found, enough, timing, 1)))


def _alternations(found: Sequence[Calibration], calls: int, timing: Timing, least: int) -> int:
    """Return how many samples of `calls` calls a pair holds, at least `least`."""
    wanted = round(timing.pair_s / max(_wall_s(found, calls), 1e-6))
    return max(least, min(timing.max_alternations, wanted))


def _wall_s(found: Sequence[Calibration], calls: int) -> float:
    """Return the seconds that `calls` calls take on both sides, including repeated setups."""
    return sum(each.wall_s / each.calls * calls for each in found)


def are_crowded(samples: Sequence[tuple[float, float]], alone_s: Mapping[str, float]) -> bool:
    """Tell whether either side's calls take much longer at once than alone."""
    return any(taken > _CROWDED * alone_s[name] for name, taken in medians(samples).items())


def medians(samples: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return the median seconds of each side."""
    bases, heads = zip(*samples, strict=True)
    return {"base": statistics.median(bases), "head": statistics.median(heads)}
