"""Read what `asv run` leaves behind: a point per benchmark, commit, machine and versions. `levels` calls it.

The format is asv's second: `<machine>/<commit>-<environment>.json` holds a row per benchmark whose
columns the file names, and each column of a parametrised benchmark a value per combination.
`benchmarks.json` describes the benchmarks.
"""

import ast
import itertools
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_NO_RESULTS = {"machine.json", "benchmarks.json"}


@dataclass(frozen=True, slots=True)
class Setup:
    """What a time depends on beside the commit. Points of two setups are never compared."""

    machine: str
    versions: str
    benchmark_version: str


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement; `low` and `high` enclose the true median with 99% confidence where asv could say so."""

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
        except (
            SyntaxError
        ):  # asv joins the sources of setup and method as they stand, half a class at times
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
    """Return what `folder` holds of main's commits; where there is nothing, an empty archive."""
    archive = Archive()
    descriptions = (
        _read_json(folder / "benchmarks.json", archive)
        if (folder / "benchmarks.json").exists()
        else {}
    )
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
    """Return a file's object; note one that a killed run left half written, and go on without it."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    if isinstance(found, dict):
        return found
    archive.unreadable.append(f"{path.parent.name}/{path.name}")
    return {}


def _main_subjects(folder: Path) -> dict[str, str]:
    """Return the subjects of main's commits, oldest first; none outside a repository or where it has no main."""
    command = (
        "git",
        "-C",
        str(folder.parent),
        "log",
        "--first-parent",
        "--reverse",
        "--format=%H%x09%s",
        "main",
        "--",
    )
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    return dict(line.split("\t", 1) for line in text.splitlines())


def _points(run: dict[str, Any], descriptions: dict[str, Any]) -> Iterator[tuple[Benchmark, Point]]:
    machine, versions = _machine(run), _versions(run)
    for function, row in run["results"].items():
        columns = dict(
            zip(run["result_columns"], row, strict=False)
        )  # asv leaves trailing empty columns out
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
    place = (
        run["result_columns"].index("started_at")
        if "started_at" in run["result_columns"]
        else sys.maxsize
    )
    started = [row[place] for row in run["results"].values() if len(row) > place and row[place]]
    return max(started, default=run.get("date", 0)) / 1000


def _benchmark(function: str, parameters: tuple[str, ...], described: dict[str, Any]) -> Benchmark:
    plain = tuple(text.strip("'\"") for text in parameters)
    name = f"{function}({', '.join(plain)})" if plain else function
    # Without a description, the name tells: asv's timing benchmarks are in seconds.
    unit = described.get("unit") or (
        "seconds" if function.rsplit(".", 1)[-1].startswith("time") else ""
    )
    return Benchmark(name, function, plain, unit, described.get("code", ""))


def _at(columns: dict[str, Any], name: str, place: int) -> Any:
    column = columns.get(name)
    return column[place] if column and place < len(column) else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _machine(run: dict[str, Any]) -> str:
    """Name the hardware: a machine of the same name with another processor is another machine."""
    params = run.get("params", {})
    parts = [params.get("machine", ""), params.get("cpu", "")]
    cores = f"{params['num_cpu']} cores" if params.get("num_cpu") else ""
    return ", ".join(part for part in (*parts, cores) if part) or "unknown machine"


def _versions(run: dict[str, Any]) -> str:
    python = str(run.get("python", ""))
    python = (
        f"Python {python}" if python and "/" not in python else "the caller's Python"
    )  # no paths on the site
    required = sorted((run.get("requirements") or {}).items())
    return ", ".join([python, *(f"{name} {version}".strip() for name, version in required)])
