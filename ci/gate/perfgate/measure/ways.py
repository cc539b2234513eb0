"""How a row is sampled: on both sides at once where it may share its core, else in turn.

Measured side by side, calls that do nothing but work share a core well; what waits, runs elsewhere
or is too short to share one is called in turn.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfgate.config import Timing
from perfgate.process.protocol import Calibration

# times the seconds alone: the sides push each other out of a cache, which is not what is asked
_CROWDED = 1.25
# of `shared_s`: the least sample where an author has fixed the calls; some slices of the kernel's
_FIXED = 0.25
# times the other side's seconds at most: a collapse is plain from one turn, and each takes so long
_COMPARABLE = 10


@dataclass(frozen=True)
class Way:
    """How a row is sampled in each pair.

    Attributes:
        calls: calls in one sample.
        samples: samples of each side.
    """

    calls: int
    samples: int


@dataclass(frozen=True)
class Ways:
    """The ways of a row.

    Attributes:
        in_turn: one side after the other.
        shared: both at once; None where it may not share its core, or that costs too much.
    """

    in_turn: Way
    shared: Way | None = None

    @property
    def own_time(self) -> bool:
        """Whether calls are charged their own time alone, not that of neighbours on their core."""
        return self.shared is not None

    @property
    def first(self) -> Way:
        """The way that is tried first."""
        return self.shared or self.in_turn


def choose_ways(
    found: Sequence[Calibration], timing: Timing, timeout_s: float, *, has_two_cores: bool
) -> Ways:
    """Choose how to sample a row from what its calls were found to be on both sides.

    Args:
        found: by each side.
        timing: how long a pair and a sample last.
        timeout_s: seconds that the benchmark may take.
        has_two_cores: whether the sides are pinned, and made ready on cores of their own.
    """
    # The slower side decides, so that a collapse costs no more time than it must.
    calls = min(each.calls for each in found)
    least_s = min(each.seconds for each in found)
    most_s = max(each.seconds for each in found)
    is_comparable = most_s <= _COMPARABLE * least_s
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
    """Return how many samples of so many calls a pair holds, at least `least`."""
    wanted = round(timing.pair_s / max(_wall_s(found, calls), 1e-6))
    return max(least, min(timing.max_alternations, wanted))


def _wall_s(found: Sequence[Calibration], calls: int) -> float:
    """Return the seconds that so many calls take on both sides, repeated setups included."""
    return sum(each.wall_s / each.calls * calls for each in found)


def are_crowded(samples: Sequence[tuple[float, float]], alone_s: Mapping[str, float]) -> bool:
    """Tell whether calls of either side take much longer at once than alone."""
    return any(taken > _CROWDED * alone_s[name] for name, taken in medians(samples).items())


def medians(samples: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return the median seconds of each side."""
    bases, heads = zip(*samples, strict=True)
    return {"base": statistics.median(bases), "head": statistics.median(heads)}
