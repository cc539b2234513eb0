"""The first lines of the first page: how main stands, since when, and how much that answer is worth."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from perfgate.history.asv_results import Commit, Setup
from perfgate.history.levels import Change
from ci.site.measurements import Headline, hardware_text, when
from ci.site.model import Site
from ci.site.formatting import NOT_MEASURED, is_stale


@dataclass(frozen=True)
class Answer:
    """The state of main: `kind` is good, bad or quiet; `worst` is the largest slowdown that stands open."""

    kind: str
    sentence: str
    since: Commit | None
    worst: Change | None
    num_benchmarks: int
    measured: datetime | None
    machine: str
    is_stale: bool


def answer(site: Site) -> Answer:
    """Say how main stands, by its history where there is one."""
    measured, machine = last_measurement(site)
    with_history = [entry for entry in site.entries if entry.history]
    stale = is_stale(measured, site.built)
    if not with_history:
        return Answer("quiet", f"State of main: {NOT_MEASURED}.", None, None, 0, measured, machine, stale)
    still_open = site.open
    if still_open:
        slower = {change.benchmark.name for change in still_open}
        verb = "benchmark is" if len(slower) == 1 else "benchmarks are"
        sentence = f"{len(slower)} {verb} slower on main than before."
        first = min(still_open, key=lambda change: site.places[change.point.commit])
        since = _commit(site, first)
    else:
        sentence = "No slowdown stands open on main."
        since = _last_undone(site) or site.archive.commits[0]
    worst = max(still_open, key=lambda change: change.ratio.middle, default=None)
    kind = "bad" if still_open else "good"
    return Answer(kind, sentence, since, worst, len(with_history), measured, machine, stale)


def _last_undone(site: Site) -> Commit | None:
    """Return the commit that undid the last slowdown: a win on a benchmark that had become slower."""
    first_slower: dict[tuple[str, Setup], int] = {}
    for change in site.changes:
        if change.ratio.middle > 1:
            key, place = (change.benchmark.name, change.point.setup), site.places[change.point.commit]
            first_slower[key] = min(place, first_slower.get(key, place))
    undone = [
        site.places[change.point.commit]
        for change in site.changes
        if change.ratio.middle < 1
        and first_slower.get((change.benchmark.name, change.point.setup), math.inf) < site.places[change.point.commit]
    ]
    return site.archive.commits[max(undone)] if undone else None


def _commit(site: Site, change: Change) -> Commit:
    return site.archive.commits[site.places[change.point.commit]]


def last_measurement(site: Site) -> tuple[datetime | None, str]:
    """Return when the newest measurement was made and on which machine: asv's, or else the newest row's."""
    if site.archive.commits:
        measured_s, machine = site.archive.measured
        return datetime.fromtimestamp(measured_s, UTC), machine
    row = max(site.measurements.rows, key=lambda row: row["timestamp"], default=None)
    return (when(row["timestamp"]), hardware_text(dict(row))) if row else (None, NOT_MEASURED)


def slower(headlines: Sequence[Headline]) -> list[Headline]:
    """Return where the peer is ahead: the median ratio below 1, the worst first."""
    return sorted((line for line in headlines if line.middle < 1), key=lambda line: line.middle)
