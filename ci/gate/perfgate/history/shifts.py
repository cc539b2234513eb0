"""Find where all benchmarks moved at once although no commit can have moved them: the machine.

asv doesn't record which files a benchmark uses. So a commit is known to have touched none of them
only if nothing in it can move any benchmark. There the movement of the median benchmark is taken
out. Code may move all of them by one factor, too. That is named.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfgate.history.asv_results import Archive, Point
from perfgate.stats.change_points import MIN_EFFECT, MIN_SEGMENT, Array, change_points, on_one_scale

_MIN_ROWS = 8  # of fewer, half may have moved on their own
_PASSES = 10  # of the median polish, which settles before


@dataclass(frozen=True)
class Shift:
    """A movement at the measured commit `place`; `group` is what its benchmarks have in common."""

    group: tuple[str, ...]
    place: int
    ratio: float
    sentence: str


def without_machine(archive: Archive, name: str, shifts: Sequence[Shift]) -> list[Point]:
    """Return a benchmark's points with what is taken out of them."""
    return [
        replace(
            point,
            scale=math.prod(
                shift.ratio
                for shift in shifts
                if shift.group == (*point.setup.series[:2], archive.benchmarks[name].unit)
                and shift.place <= archive.places[point.commit]
            ),
        )
        for point in archive.points[name]
    ]


def find_shifts(archive: Archive) -> list[Shift]:
    """Return the movements that at least 8 benchmarks share, in the commits' order by group."""
    groups: dict[tuple[str, ...], list[Array]] = {}
    for name, points in archive.points.items():
        for series in dict.fromkeys(point.setup.series for point in points):
            own = [point for point in points if point.setup.series == series]
            values = [point.value for point in own]
            if min(values) > 0:
                row = np.full(len(archive.commits), np.nan)
                scaled = on_one_scale(values, [point.setup for point in own])
                row[[archive.places[point.commit] for point in own]] = np.log(scaled)
                groups.setdefault((*series[:2], archive.benchmarks[name].unit), []).append(row)
    return [shift for each in groups.items() for shift in _of_group(*each, archive)]


def _of_group(group: tuple[str, ...], rows: Sequence[Array], archive: Archive) -> Iterator[Shift]:
    """Yield how far the rows (logarithms, NaN where not measured) moved where their median did."""
    table = np.array(rows)
    places = np.flatnonzero(np.isfinite(table).sum(axis=0) >= _MIN_ROWS)
    table = table[:, places]
    table = table[np.isfinite(table).any(axis=1)]
    median = np.zeros(len(places))
    for _ in range(_PASSES if len(places) else 0):  # rows start and end at different commits
        own = np.nanmedian(table - median, axis=1, keepdims=True)
        median = np.nanmedian(table - own, axis=0)
    bounds = [0, *change_points(list(np.exp(median))), len(places)]
    for start, at, end in zip(bounds, bounds[1:], bounds[2:], strict=False):
        levels = [table[:, start:at], table[:, at:end]]
        in_both = np.all([np.isfinite(each).sum(axis=1) >= MIN_SEGMENT for each in levels], axis=0)
        previous, commit = (archive.commits[places[each]].hash for each in (at - 1, at))
        if in_both.sum() < _MIN_ROWS or not archive.is_idle(previous, commit):
            continue
        before, after = (np.nanmedian(each[in_both], axis=1) for each in levels)
        movement = float(np.median(after - before))
        if abs(movement) >= math.log(MIN_EFFECT):
            ratio = math.exp(movement)
            sentence = (
                f"{len(before)} benchmarks moved together to {ratio:.3f} times at {commit[:10]}, "
                "which can't have moved them: the machine. This is taken out."
            )
            yield Shift(group, int(places[at]), ratio, sentence)
