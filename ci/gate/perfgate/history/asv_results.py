"""Read the results of `asv run`: one point per benchmark, commit, machine and versions.

This is version 2 of asv's format. `<machine>/<commit>-<environment>.json` holds a row for each
benchmark and names the columns. A benchmark with parameters has one value per combination in each
column. `benchmarks.json` describes the benchmarks.
"""

import ast
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfgate.errors import UsageError
from perfgate.source.git import git

_NO_RESULTS = {"machine.json", "benchmarks.json"}


@dataclass(frozen=True, slots=True)
class Setup:
    """What a time depends on besides the commit. Points of two setups are never compared."""

    machine: str
    versions: str
    benchmark_version: str


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement; `low` and `high` are asv's 99% interval of the median, if it has one."""

    commit: str
    date_s: float
    setup: Setup
    value: float
    low: float | None
    high: float | None
    samples: tuple[float, ...]


@dataclass(frozen=True)
class Commit:
    """A commit that has results."""

    hash: str
    date_s: float
    subject: str


@dataclass(frozen=True)
class Benchmark:
    """One combination of parameters of one benchmark of the suite."""

    name: str
    function: str
    parameters: tuple[str, ...]
    unit: str
    code: str

    @property
    def source(self) -> str:
        """The file that declares it."""
        return f"benchmarks/{self.function.split('.')[0]}.py"

    @property
    def meaning(self) -> str:
        """What it measures, in the words of its own docstrings."""
        try:
            tree = ast.parse(self.code)
        except SyntaxError:  # asv joins the sources of setup and method, at times half a class
            return ""
        kinds = (ast.FunctionDef, ast.ClassDef)
        texts = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
        return " ".join(text.splitlines()[0] for text in texts if text)


@dataclass
class Archive:
    """All that a results folder holds: `points` by benchmark, in the order of `commits`.

    `measured` is when the newest measurement began, in seconds since 1970, and on which machine.
    """

    commits: list[Commit] = field(default_factory=list)
    benchmarks: dict[str, Benchmark] = field(default_factory=dict)
    points: dict[str, list[Point]] = field(default_factory=dict)
    measured: tuple[float, str] = (0.0, "")
    unreadable: list[str] = field(default_factory=list)


def read_archive(folder: Path) -> Archive:
    """Return what `folder` holds of main's commits; an empty archive if there is nothing."""
    archive = Archive()
    described = folder / "benchmarks.json"
    descriptions = _read_json(described, archive) if described.exists() else {}
    on_main = _main_subjects(folder)
    dates: dict[str, float] = {}
    for path in sorted(folder.glob("*/*.json")):
        run = _read_json(path, archive) if path.name not in _NO_RESULTS else {}
        if not {"commit_hash", "results", "result_columns"} <= run.keys() or (
            on_main and run["commit_hash"] not in on_main
        ):
            continue
        dates[run["commit_hash"]] = run.get("date", 0) / 1000
        archive.measured = max(archive.measured, (_started_s(run), _machine(run)))
        for benchmark, point in _points(run, descriptions):
            archive.benchmarks[benchmark.name] = benchmark
            archive.points.setdefault(benchmark.name, []).append(point)
    order = {commit: place for place, commit in enumerate(on_main)}
    ordered = sorted(dates, key=lambda commit: (order.get(commit, 0), dates[commit], commit))
    archive.commits = [Commit(commit, dates[commit], on_main.get(commit, "")) for commit in ordered]
    places = {commit: place for place, commit in enumerate(ordered)}
    for points in archive.points.values():
        points.sort(key=lambda point: places[point.commit])
    return archive


def _read_json(path: Path, archive: Archive) -> dict[str, Any]:
    """Return a file's object; note and skip a file that a killed run left half written."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    if isinstance(found, dict):
        return found
    archive.unreadable.append(f"{path.parent.name}/{path.name}")
    return {}


def _main_subjects(folder: Path) -> dict[str, str]:
    """Return the subjects of main's commits, oldest first; none where there is no main."""
    log = ("log", "--first-parent", "--reverse", "--format=%H%x09%s", "main", "--")
    try:
        text = git(*log, cwd=folder.parent)
    except (UsageError, OSError):
        return {}
    lines = (line.partition("\t") for line in text.splitlines())
    return {commit: subject for commit, _, subject in lines}


def _points(run: dict[str, Any], descriptions: dict[str, Any]) -> Iterator[tuple[Benchmark, Point]]:
    machine = _machine(run)
    versions = _versions(run)
    for function, row in run["results"].items():
        # asv leaves out empty columns at the end.
        columns = dict(zip(run["result_columns"], row, strict=False))
        setup = Setup(machine, versions, columns.get("version") or "")
        described = descriptions.get(function, {})
        values: Sequence[float | None] = columns.get("result") or []
        for place, parameters in enumerate(itertools.product(*(columns.get("params") or []))):
            value = values[place] if place < len(values) else None
            if value is None or not math.isfinite(value):  # it failed there, or was skipped
                continue
            low, high = (_finite(_at(columns, f"stats_ci_99_{end}", place)) for end in "ab")
            samples = tuple(_at(columns, "samples", place) or ())
            point = Point(
                run["commit_hash"], run.get("date", 0) / 1000, setup, value, low, high, samples
            )
            yield _benchmark(function, parameters, described), point


def _started_s(run: dict[str, Any]) -> float:
    """Return when its last benchmark started; asv's `date` is the commit's."""
    rows = (dict(zip(run["result_columns"], row, strict=False)) for row in run["results"].values())
    started = [row["started_at"] for row in rows if row.get("started_at")]
    return max(started, default=run.get("date", 0)) / 1000


def _benchmark(function: str, parameters: tuple[str, ...], described: dict[str, Any]) -> Benchmark:
    plain = tuple(text.strip("'\"") for text in parameters)
    name = f"{function}({', '.join(plain)})" if plain else function
    # Without a description the name decides: asv's timing benchmarks are in seconds.
    is_timed = function.rsplit(".", 1)[-1].startswith("time")
    unit = described.get("unit") or ("seconds" if is_timed else "")
    return Benchmark(name, function, plain, unit, described.get("code", ""))


def _at(columns: dict[str, Any], name: str, place: int) -> Any:
    column = columns.get(name)
    return column[place] if column and place < len(column) else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _machine(run: dict[str, Any]) -> str:
    """Name the hardware: another processor makes another machine, even of the same name."""
    params = run.get("params", {})
    parts = [params.get("machine", ""), params.get("cpu", "")]
    cores = f"{params['num_cpu']} cores" if params.get("num_cpu") else ""
    return ", ".join(part for part in (*parts, cores) if part) or "unknown machine"


def _versions(run: dict[str, Any]) -> str:
    python = str(run.get("python", ""))
    # The site shows no paths.
    python = f"Python {python}" if python and "/" not in python else "the caller's Python"
    required = sorted((run.get("requirements") or {}).items())
    return ", ".join([python, *(f"{name} {version}".strip() for name, version in required)])
