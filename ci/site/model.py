"""What the pages know: benchmarks with their histories and measurements, the state of main, and the data files.

A page that is opened from a folder may not fetch, so that a data file is a script that assigns to
one global. Each page loads only its own.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfgate.history.asv_results import Archive, Benchmark, Commit, read_archive
from ci.site.drawing import Style, styles_of
from perfgate.history.levels import BenchmarkHistory, Change, histories, worst_first
from ci.site.measurements import Headline, Measurements, Row, Run, Side, hardware_text, headlines, read_measurements
from perfgate.config import Accepted, read_accepted
from ci.site.formatting import day, natural, slug, slugs


@dataclass(frozen=True)
class Entry:
    """A benchmark as the site shows it: from asv's results, from the suites' own runs, or from both."""

    benchmark: Benchmark
    slug: str
    history: BenchmarkHistory | None
    measured: Sequence[tuple[Run, Side]]


@dataclass(frozen=True)
class Site:
    """Everything that the pages are made from."""

    built: datetime
    measurements: Measurements
    headlines: Sequence[Headline]
    archive: Archive
    entries: Sequence[Entry]
    styles: dict[str, Style]
    accepted: Sequence[Accepted] = ()

    @property
    def changes(self) -> list[Change]:
        """Every change of level, the largest first."""
        return worst_first([change for entry in self.entries if entry.history for change in entry.history.changes])

    @property
    def open(self) -> list[Change]:
        """The slowdowns that stand open, the worst first."""
        return worst_first([change for entry in self.entries if entry.history for change in entry.history.open])

    @property
    def cut_off(self) -> list[Change]:
        """The slowdowns that stood open when machine or versions changed, the worst first."""
        return worst_first([change for entry in self.entries if entry.history for change in entry.history.cut_off])

    @property
    def slugs(self) -> dict[str, str]:
        """The file name of each benchmark's page."""
        return {entry.benchmark.name: entry.slug for entry in self.entries}

    @property
    def places(self) -> dict[str, int]:
        """Where each commit stands in main's order."""
        return {commit.hash: place for place, commit in enumerate(self.archive.commits)}

    @property
    def scaling_rows(self) -> list[Row]:
        """The rows that a scaling graph is drawn from, the oldest first."""
        of_suite = [row for row in self.measurements.rows if row["suite"] == "throughput" and row["status"] == "ok"]
        rows = [row for row in of_suite if row.get("agent", "random") == "random"]
        return sorted(rows, key=lambda row: row["timestamp"])


def read_site(results: Path, built: datetime, accepted: Path) -> Site:
    """Read a results folder and the accepted regressions; whatever is missing is simply not in the site.

    Raises:
        UsageError: the file of accepted regressions has a mistake.
    """
    measurements = read_measurements([results / "published", results / "csv"])
    archive = read_archive(results / "asv")
    entries = _entries(archive, measurements.runs)
    styles = styles_of([row["library"] for row in measurements.rows])
    return Site(built, measurements, headlines(measurements.runs), archive, entries, styles, read_accepted(accepted))


def _entries(archive: Archive, runs: Sequence[Run]) -> list[Entry]:
    measured: dict[tuple[str, str], list[tuple[Run, Side]]] = {}
    for run in sorted(runs, key=lambda run: run.measured or datetime.min.replace(tzinfo=UTC), reverse=True):
        for side in (side for sides in run.alternations for side in sides if side.status == "ok"):
            measured.setdefault((run.suite, side.workload), []).append((run, side))
    found: dict[str, tuple[Benchmark, BenchmarkHistory | None, Sequence[tuple[Run, Side]]]] = {}
    for history in histories(archive):
        suite = history.benchmark.function.split(".")[0]
        keys = [(suite, parameter) for parameter in history.benchmark.parameters]
        found[history.benchmark.name] = (
            history.benchmark,
            history,
            [pair for k in keys for pair in measured.pop(k, [])],
        )
    for (suite, workload), pairs in measured.items():
        benchmark = Benchmark(f"{suite}.{workload}", suite, (workload,), "seconds", "")
        found[benchmark.name] = (benchmark, None, pairs)
    names = slugs(sorted(found, key=natural))
    return [Entry(found[name][0], names[name], *found[name][1:]) for name in names]


def data_files(site: Site) -> dict[str, str]:
    """Return the data files by path."""
    files = {
        f"data/scaling/{slug(env)}.js": _script(f"scaling/{slug(env)}", found) for env, found in _scaling(site).items()
    }
    if not site.archive.commits:
        return files
    setups = _setups(site)
    commits = [[commit.hash, day(commit.date_s), commit.subject] for commit in site.archive.commits]
    files["data/commits.js"] = _script("commits", commits)
    listed = [
        [entry.benchmark.name, entry.slug, entry.benchmark.unit, _short(entry.history.scatter)]
        for entry in site.entries
        if entry.history
    ]
    files["data/benchmarks.js"] = _script("benchmarks", {"benchmarks": listed, "setups": list(setups)})
    of_commit: dict[str, list[list[Any]]] = {commit.hash: [] for commit in site.archive.commits}
    with_history = [entry.history for entry in site.entries if entry.history]
    for place, (entry, history) in enumerate(zip((e for e in site.entries if e.history), with_history, strict=True)):
        files[f"data/b/{entry.slug}.js"] = _script(f"b/{entry.slug}", _history(history, site.places, setups))
        files[f"data/b/{entry.slug}.csv"] = _csv(history, site.archive.commits)
        for point in history.points:
            of_commit[point.commit].append([place, setups[_setup_key(point.setup)], _short(point.value)])
    for commit, values in of_commit.items():
        files[f"data/c/{commit[:12]}.js"] = _script(f"c/{commit[:12]}", values)
    return files


def _script(name: str, content: Any) -> str:
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    return f"(self.siteData??={{}})[{json.dumps(name)}]={text}\n"


def _short(value: float | None) -> float | None:
    """Six digits: no measurement has more, and the files are a third of the size."""
    return None if value is None else float(f"{value:.6g}")


def _setup_key(setup: Any) -> tuple[str, str]:
    return setup.machine, setup.versions


def _setups(site: Site) -> dict[tuple[str, str], int]:
    keys = dict.fromkeys(_setup_key(point.setup) for points in site.archive.points.values() for point in points)
    return {key: place for place, key in enumerate(keys)}


def _history(history: BenchmarkHistory, places: dict[str, int], setups: dict[tuple[str, str], int]) -> dict[str, Any]:
    """Return a benchmark's data: points, levels, changes and markers, commits by their place."""
    stretches = [stretch.setup for stretch in history.stretches]
    of_setup = {setup: place for place, setup in enumerate(stretches)}
    points = [
        [places[p.commit], _short(p.value), _short(p.low), _short(p.high), of_setup[p.setup]] for p in history.points
    ]
    levels = [
        [place, places[segment.points[0].commit], places[segment.points[-1].commit], _short(segment.middle)]
        for place, stretch in enumerate(history.stretches)
        for segment in stretch.segments
    ]
    changes = [
        [
            places[c.point.commit],
            *map(_short, (c.ratio.middle, c.ratio.low, c.ratio.high)),
            c.word,
            of_setup[c.point.setup],
        ]
        for c in history.changes
    ]
    return {
        "unit": history.benchmark.unit,
        "setups": [[setup.machine, setup.versions, setup.benchmark_version[:8]] for setup in stretches],
        "points": points,
        "levels": levels,
        "changes": changes,
    }


def _csv(history: BenchmarkHistory, commits: Sequence[Commit]) -> str:
    """Return every measurement with its raw samples, where asv recorded them (`asv run --record-samples`)."""
    dates = {commit.hash: day(commit.date_s) for commit in commits}
    lines = [f"commit,date,machine,versions,{history.benchmark.unit or 'value'},low,high,samples"]
    for point in history.points:
        ends = ["" if end is None else f"{end:.6g}" for end in (point.low, point.high)]
        samples = " ".join(f"{sample:.6g}" for sample in point.samples)
        quoted = [f'"{text}"' for text in (point.setup.machine.replace('"', "'"), point.setup.versions)]
        lines.append(",".join([point.commit, dates[point.commit], *quoted, f"{point.value:.6g}", *ends, samples]))
    return "\n".join(lines) + "\n"


def _scaling(site: Site) -> dict[str, dict[str, Any]]:
    """Return the scaling graphs' data by environment: the look of each library, and a row per measurement."""
    found: dict[str, dict[str, Any]] = {}
    for row in site.scaling_rows:
        style = site.styles[row["library"]]
        of_env = found.setdefault(row["env"], {"env": row["env"], "styles": {}, "rows": []})
        of_env["styles"][row["library"]] = [style.light, style.dark, style.dash]
        rates = [_short(float(row[f"steps_per_s{end}"] or row["steps_per_s"])) for end in ("", "_low", "_high")]
        device = f"{row.get('device', '')}: {hardware_text(dict(row))}"
        of_env["rows"].append(
            [row["library"], int(row["num_envs"]), device, row["commit"], row["timestamp"][:8], *rates]
        )
    return found
