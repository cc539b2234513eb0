"""The data files that the pages' scripts load.

A page that is opened from a folder may not fetch a file. So each data file is a script that assigns
to one global object, and each page loads only the files that it shows.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ci.site.formatting import day, hardware, slug
from ci.site.model import Site
from ci.site.palette import style
from ci.site.project import Library
from perfgate.history.asv_results import RecordedCommit
from perfgate.history.levels import BenchmarkHistory


def data_files(site: Site) -> dict[str, str]:
    """Return the data files by path."""
    files = {
        f"data/scaling/{slug(env)}.js": _script(f"scaling/{slug(env)}", found)
        for env, found in _scaling(site).items()
    }
    return files | _history_files(site) if site.archive.commits else files


def _history_files(site: Site) -> dict[str, str]:
    setups = _setups(site)
    commits = [[commit.hash, day(commit.date_s), commit.subject] for commit in site.archive.commits]
    places = site.places
    slugs = site.slugs
    listed = []
    files = {"data/commits.js": _script("commits", commits)}
    of_commit: dict[str, list[list[Any]]] = {commit.hash: [] for commit in site.archive.commits}
    for place, history in enumerate(site.histories):
        benchmark = history.benchmark
        name = f"b/{slugs[benchmark.name]}"
        listed.append(
            [benchmark.name, slugs[benchmark.name], benchmark.unit, _short(history.scatter)]
        )
        files[f"data/{name}.js"] = _script(
            name, _history(history, places, site.causes[benchmark.name])
        )
        files[f"data/{name}.csv"] = _csv(history, site.archive.commits)
        for point in history.points:
            value = [place, setups[_setup_key(point.setup)], _short(point.value)]
            of_commit[point.commit].append(value)
    compared = {"benchmarks": listed, "setups": list(setups)}
    files["data/benchmarks.js"] = _script("benchmarks", compared)
    for commit, values in of_commit.items():
        files[f"data/c/{commit[:12]}.js"] = _script(f"c/{commit[:12]}", values)
    return files


def _script(name: str, content: Any) -> str:
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    return f"(self.siteData??={{}})[{json.dumps(name)}]={text}\n"


def _short(value: float | None) -> float | None:
    """Round to six digits: no measurement has more, and the files are a third of the size."""
    return None if value is None else float(f"{value:.6g}")


def _setup_key(setup: Any) -> tuple[str, str]:
    return setup.machine, setup.versions


def _setups(site: Site) -> dict[tuple[str, str], int]:
    keys = dict.fromkeys(
        _setup_key(point.setup) for points in site.archive.points.values() for point in points
    )
    return {key: place for place, key in enumerate(keys)}


def _history(
    history: BenchmarkHistory, places: dict[str, int], causes: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return a benchmark's data; commits are given by their place in main's order."""
    stretches = [stretch.setup for stretch in history.stretches]
    of_setup = {setup: place for place, setup in enumerate(stretches)}
    points = [
        [places[p.commit], _short(p.value), _short(p.low), _short(p.high), of_setup[p.setup]]
        for p in history.points
    ]
    levels = [
        [
            place,
            places[segment.points[0].commit],
            places[segment.points[-1].commit],
            _short(segment.middle),
        ]
        for place, stretch in enumerate(history.stretches)
        for segment in stretch.segments
    ]
    changes = [
        [
            places[change.point.commit],
            *map(_short, (change.ratio.middle, change.ratio.low, change.ratio.high)),
            change.word,
            of_setup[change.point.setup],
        ]
        for change in history.changes
    ]
    machines = dict.fromkeys(setup.machine for setup in stretches)
    looks = [style(place) for place in range(len(machines))]
    return {
        "unit": history.benchmark.unit,
        "setups": [[each.machine, each.versions, each.benchmark_version[:8]] for each in stretches],
        "colours": [[look.light, look.dark] for look in looks],
        "points": points,
        "levels": levels,
        "changes": changes,
        "causes": [[places[commit], " ".join(said)] for commit, said in causes.items()],
    }


def _csv(history: BenchmarkHistory, commits: Sequence[RecordedCommit]) -> str:
    """Return every measurement, with the samples that `asv run --record-samples` keeps."""
    dates = {commit.hash: day(commit.date_s) for commit in commits}
    unit = history.benchmark.unit or "value"
    lines = [f"commit,date,machine,versions,{unit},low,high,samples"]
    for point in history.points:
        machine = point.setup.machine.replace('"', "'")
        ends = ["" if end is None else f"{end:.6g}" for end in (point.low, point.high)]
        samples = " ".join(f"{sample:.6g}" for sample in point.samples)
        cells = [
            point.commit,
            dates[point.commit],
            f'"{machine}"',
            f'"{point.setup.versions}"',
            f"{point.value:.6g}",
            *ends,
            samples,
        ]
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def _scaling(site: Site) -> dict[str, dict[str, Any]]:
    """Return a chart's data for each environment: the look of each library and its rows."""
    by_env: dict[str, list[dict[str, str]]] = {}
    for row in site.scaling_rows:
        by_env.setdefault(row["env"], []).append(row)
    return {env: _scaling_content(env, rows, site) for env, rows in by_env.items()}


def _scaling_content(env: str, rows: Sequence[dict[str, str]], site: Site) -> dict[str, Any]:
    """Return the rows, which name library, device, commit and run by their places in lists."""
    drawn = site.project.order(row["library"] for row in rows)
    columns = {
        "libraries": [row["library"] for row in rows],
        "devices": [f"{row.get('device', '')}: {hardware(row)}" for row in rows],
        "commits": [row["commit"] for row in rows],
        "runs": [row["timestamp"] for row in rows],
    }
    named = {name: list(dict.fromkeys(values)) for name, values in columns.items()}
    named["libraries"] = drawn
    places = {name: {each: at for at, each in enumerate(named[name])} for name in columns}
    lines = [
        [places[name][columns[name][at]] for name in columns] + [int(row["num_envs"]), *_rates(row)]
        for at, row in enumerate(rows)
    ]
    looks = [_look(site.project.libraries[name]) for name in drawn]
    lists = {"libraries": looks, "devices": named["devices"], "commits": named["commits"]}
    return {"env": env, **lists, "rows": lines}


def _look(library: Library) -> list[str]:
    look = library.style
    return [
        library.name,
        library.label,
        look.light,
        look.dark,
        look.dash,
        look.path,
        library.variant_of,
    ]


def _rates(row: dict[str, str]) -> list[float]:
    ends = [row[f"steps_per_s{end}"] or row["steps_per_s"] for end in ("", "_low", "_high")]
    return [float(f"{float(end):.5g}") for end in ends]
