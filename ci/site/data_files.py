"""The data files that the pages' scripts load.

A page that is opened from a folder may not fetch a file. So each data file is a script that assigns
to one global object, and each page loads only the files that it shows.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ci.site.formatting import day
from ci.site.model import Site, levels
from ci.site.palette import style
from perfgate.history.asv_results import RecordedCommit
from perfgate.history.benchmark_history import BenchmarkHistory


def data_files(site: Site) -> dict[str, str]:
    """Return the data files by path: scripts, and a CSV file of each benchmark's measurements."""
    scripts: dict[str, Any] = {}
    commits = site.archive.commits
    if not commits:
        return _written(scripts)
    scripts["commits"] = [[commit.hash, day(commit.date_s), commit.subject] for commit in commits]
    setups: dict[tuple[str, str], int] = {}
    listed = []
    tables = {}
    # The page of two commits loads the values of both: benchmark, setup, value and its interval.
    values: dict[str, list[list[Any]]] = {commit.hash: [] for commit in commits}
    for place, history in enumerate(site.histories):
        benchmark = history.benchmark
        name = site.slugs[benchmark.name]
        listed.append([benchmark.name, name, benchmark.unit, _short(history.scatter)])
        scripts[f"b/{name}"] = _history(history, site.archive.places)
        tables[f"data/b/{name}.csv"] = _csv(history, commits)
        for point in history.points:
            key = (point.setup.machine, point.setup.versions)
            setup = setups.setdefault(key, len(setups))
            measured = (point.value, point.low, point.high)
            values[point.commit].append([place, setup, *map(_short, measured)])
    scripts["benchmarks"] = {"benchmarks": listed, "setups": list(setups)}
    scripts |= {f"c/{commit[:12]}": found for commit, found in values.items()}
    return _written(scripts) | tables


def _written(scripts: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"data/{name}.js": f"(self.siteData??={{}})[{json.dumps(name)}]="
        f"{json.dumps(content, separators=(',', ':'), ensure_ascii=False)}\n"
        for name, content in scripts.items()
    }


def _short(value: float | None) -> float | None:
    """Round to six digits: no measurement has more, and the files are a third of the size."""
    return None if value is None else float(f"{value:.6g}")


def _history(history: BenchmarkHistory, places: Mapping[str, int]) -> dict[str, Any]:
    """Return a benchmark's data; commits are given by their place in main's order."""
    found = levels(history)
    setups = {setup: place for place, setup in enumerate(dict.fromkeys(each for each, _ in found))}
    points = [
        [places[p.commit], _short(p.value), _short(p.low), _short(p.high), setups[p.setup]]
        for p in history.points
    ]
    changes = [
        [
            places[change.point.commit],
            *map(_short, (change.ratio.middle, change.ratio.low, change.ratio.high)),
            change.word,
            setups[change.point.setup],
        ]
        for change in history.changes
    ]
    looks = [style(place) for place in range(len({setup.machine for setup in setups}))]
    return {
        "unit": history.benchmark.unit,
        "setups": [[setup.machine, setup.versions] for setup in setups],
        "colours": [[look.light, look.dark] for look in looks],
        "points": points,
        "levels": [
            [
                *(setups[setup], places[each.points[0].commit], places[each.points[-1].commit]),
                _short(each.middle),
            ]
            for setup, each in found
        ],
        "changes": changes,
    }


def _csv(history: BenchmarkHistory, commits: Sequence[RecordedCommit]) -> str:
    """Return every measurement, with the samples that `asv run --record-samples` keeps."""
    dates = {commit.hash: day(commit.date_s) for commit in commits}
    unit = history.benchmark.unit or "value"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["commit", "date", "machine", "versions", unit, "low", "high", "samples"])
    for point in history.points:
        setup = point.setup
        numbers = [_short(each) for each in (point.value, point.low, point.high)]
        samples = " ".join(f"{sample:.6g}" for sample in point.samples)
        names = [point.commit, dates[point.commit], setup.machine, setup.versions]
        writer.writerow([*names, *numbers, samples])
    return text.getvalue()
