"""The first page's first lines: the state of main, since when it holds, and how old it is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ci.site.formatting import NOT_MEASURED, counted, hardware, is_stale
from ci.site.measurements import when
from ci.site.model import Site
from ci.site.speedups import Speedup
from perfgate.history.asv_results import RecordedCommit, Setup
from perfgate.history.levels import LevelChange


@dataclass(frozen=True)
class Answer:
    """The state of main.

    Attributes:
        kind: good, bad or quiet.
        sentence: the answer.
        since: the commit from which on it holds.
        worst: the largest slowdown that is still there.
        num_benchmarks: how many benchmarks have a history.
        measured: when the newest measurement was made.
        machine: the machine that made it.
        is_stale: whether it is too old to describe the present.
    """

    kind: str
    sentence: str
    since: RecordedCommit | None
    worst: LevelChange | None
    num_benchmarks: int
    measured: datetime | None
    machine: str
    is_stale: bool


def answer(site: Site) -> Answer:
    """Return the state of main, from its history."""
    measured, machine = last_measurement(site)
    stale = is_stale(measured, site.built)
    branch = site.archive.branch
    if not site.histories:
        nothing = f"The history of {branch} over its commits: {NOT_MEASURED}."
        sentence = " ".join([nothing, *site.archive.left_out])
        return Answer("quiet", sentence, None, None, 0, measured, machine, stale)
    slower = site.open
    if slower:
        kind = "bad"
        count = len({change.benchmark.name for change in slower})
        verb = "is" if count == 1 else "are"
        sentence = f"{counted(count, 'benchmark')} {verb} slower on {branch} than before."
        since = site.archive.commits[min(site.places[each.point.commit] for each in slower)]
    else:
        kind = "good"
        sentence = f"No benchmark is slower on {branch} than before."
        since = _last_undone(site) or site.archive.commits[0]
    worst = max(slower, key=lambda change: change.ratio.middle, default=None)
    return Answer(kind, sentence, since, worst, len(site.histories), measured, machine, stale)


def _last_undone(site: Site) -> RecordedCommit | None:
    """Return the last commit that made a benchmark faster again after a slowdown."""
    places = site.places
    first_slower: dict[tuple[str, Setup], int] = {}
    for change in site.changes:
        if change.ratio.middle > 1:
            key = (change.benchmark.name, change.point.setup)
            place = places[change.point.commit]
            first_slower[key] = min(place, first_slower.get(key, place))
    undone = []
    for change in site.changes:
        place = places[change.point.commit]
        slower = first_slower.get((change.benchmark.name, change.point.setup), math.inf)
        if change.ratio.middle < 1 and slower < place:
            undone.append(place)
    return site.archive.commits[max(undone)] if undone else None


def last_measurement(site: Site) -> tuple[datetime | None, str]:
    """Return when and where the newest measurement was made, by asv or else by a suite's run."""
    if site.archive.commits:
        measured_s, machine = site.archive.measured
        return datetime.fromtimestamp(measured_s, UTC), machine
    row = max(site.measurements.rows, key=lambda row: row["timestamp"], default=None)
    if row is None:
        return None, NOT_MEASURED
    return when(row["timestamp"]), hardware(row)


def slower(speedups: Sequence[Speedup]) -> list[Speedup]:
    """Return the speedups below 1, where the peer is faster; the worst comes first."""
    return sorted((line for line in speedups if line.middle < 1), key=lambda line: line.middle)
