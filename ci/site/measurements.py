"""Read what the suites publish: the rows of every CSV file, and the raw samples behind the ratios.

`ci.site.model` calls it. A ratio needs two libraries that were called in turn in the same run.
"""

import csv
import json
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from ci.site.formatting import hardware
from ci.site.project import Project

MeasuredRow = dict[str, str]
_NEEDED = {"suite", "library", "env", "num_envs", "steps_per_s", "status", "commit", "timestamp"}
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class OtherTable:
    """A CSV file with other columns, which the site shows unchanged."""

    name: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class LibrarySamples:
    """What one library did in an alternation: a rate per round, None where the round failed."""

    library: str
    library_version: str
    env: str
    agent: str
    workload: str
    num_envs: int
    recorded: bool
    status: str
    reason: str
    hardware: str
    jax_version: str
    rates: Sequence[float | None]
    prepared: dict[str, Any]
    stats: dict[str, Any]


@dataclass(frozen=True)
class SuiteRun:
    """One run of a suite's command. In each of its alternations libraries were called in turn."""

    suite: str
    command: str
    commit: str
    measured: datetime | None
    file: str
    alternations: Sequence[Sequence[LibrarySamples]]


@dataclass(frozen=True)
class Speedup:
    """How many times as fast as a peer we are, over the rounds of one alternation.

    Attributes:
        ours: our samples.
        peer: the peer's samples.
        run: the run that measured both.
        middle: the median of the rounds' ratios.
        low: the lower end of its 95% interval, None where there are too few rounds.
        high: the upper end.
        variants: the same ratio with a variant in the place of its library, by the variant's name.
    """

    ours: LibrarySamples
    peer: LibrarySamples
    run: SuiteRun
    middle: float
    low: float | None
    high: float | None
    variants: dict[str, float]


@dataclass(frozen=True)
class Measurements:
    """All that the folders of CSV files hold."""

    rows: Sequence[MeasuredRow]
    runs: Sequence[SuiteRun]
    tables: Sequence[OtherTable]
    files: Sequence[Path]

    @property
    def libraries(self) -> set[str]:
        """The libraries that the files name."""
        of_runs = {
            samples.library
            for run in self.runs
            for alternation in run.alternations
            for samples in alternation
        }
        return of_runs | {row["library"] for row in self.rows}


def read_measurements(folders: Sequence[Path]) -> Measurements:
    """Return what the folders hold. Missing folders and broken files are left out."""
    rows: list[MeasuredRow] = []
    tables: list[OtherTable] = []
    runs: list[SuiteRun] = []
    found_files = [path for folder in folders for path in sorted(folder.glob("*"))]
    files = [path for path in found_files if path.suffix in {".csv", ".json"}]
    for path in files:
        if path.suffix == ".csv":
            headers, found = _read_csv(path)
            if set(headers) >= _NEEDED:
                rows += found
            elif headers:
                cells = [[row[name] or "" for name in headers] for row in found]
                tables.append(OtherTable(path.stem, headers, cells))
        elif path.stem.endswith("_samples"):
            runs += _read_run(path)
    return Measurements(rows, runs, tables, files)


def when(timestamp: str) -> datetime | None:
    """Read a row's timestamp."""
    try:
        return datetime.strptime(timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def _read_csv(path: Path) -> tuple[list[str], list[MeasuredRow]]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        # a run that was killed leaves half a line at the end
        rows = [row for row in reader if None not in row.values() and None not in row]
        return list(reader.fieldnames or ()), rows


def _read_run(path: Path) -> Iterator[SuiteRun]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        alternations = [
            [_samples(outcome) for outcome in group.values()] for group in found["alternations"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return
    table = path.with_name(path.stem.removesuffix("_samples") + ".csv")
    rows = _read_csv(table)[1] if table.exists() else []
    newest = max(rows, key=lambda row: row.get("timestamp", ""), default={})
    # the folder of the output belongs to the machine that ran it
    command = re.sub(r" --output[ =]\S+", "", str(found.get("command", "")))
    suite = newest.get("suite") or path.stem.split("_")[0]
    measured = when(newest.get("timestamp", ""))
    yield SuiteRun(suite, command, newest.get("commit", ""), measured, path.name, alternations)


def _samples(outcome: dict[str, Any]) -> LibrarySamples:
    # Files from before the harness's present names say "contender".
    case = outcome["case"] if "case" in outcome else outcome["contender"]
    hello = outcome["hello"]
    prepared = outcome["prepared"]
    workload = case["workload"]
    steps = workload["num_envs"] * prepared.get("num_steps", 0)
    return LibrarySamples(
        library=case["side"],
        library_version=hello.get("library_version", ""),
        env=workload["env"],
        agent=workload.get("agent") or "random",
        workload=workload["name"],
        num_envs=workload["num_envs"],
        recorded=bool(case.get("record")),
        status=outcome["status"],
        reason=outcome.get("reason", ""),
        hardware=hardware(hello.get("hardware", {})),
        jax_version=hello.get("versions", {}).get("jax", ""),
        rates=[seconds and steps / seconds for seconds in outcome["seconds"]],
        prepared=prepared,
        stats=outcome.get("stats", {}),
    )


def speedups(runs: Sequence[SuiteRun], project: Project) -> list[Speedup]:
    """Return the newest speedup over each peer, for each environment, agent, size and machine."""
    newest: dict[tuple[str, str, str, int, bool, str], Speedup] = {}
    # The oldest first: a later run then replaces what an earlier one said.
    for run in sorted(runs, key=lambda run: run.measured or datetime.min.replace(tzinfo=UTC)):
        for alternation in run.alternations:
            for found in _speedups(run, alternation, project):
                ours = found.ours
                peer = found.peer.library
                machine = ours.hardware
                key = (ours.env, ours.agent, peer, ours.num_envs, ours.recorded, machine)
                newest[key] = found
    return [newest[key] for key in sorted(newest)]


def _speedups(
    run: SuiteRun, alternation: Sequence[LibrarySamples], project: Project
) -> Iterator[Speedup]:
    # Reversed, so that of a library measured twice the first counts.
    by_library = {samples.library: samples for samples in reversed(alternation)}
    ours = by_library.get(project.ours)
    for name, peer in by_library.items():
        if ours is None or name == project.ours or project.libraries[name].variant_of:
            continue
        ratios = _ratios(ours, peer)
        if not ratios:
            continue
        pairs = {variant: (ours.library, variant) for variant in project.variants_of(name)}
        pairs |= {variant: (variant, name) for variant in project.variants_of(project.ours)}
        variants = {
            variant: statistics.median(quotients)
            for variant, (of, to) in pairs.items()
            if variant in by_library and (quotients := _ratios(by_library[of], by_library[to]))
        }
        middle = statistics.median(ratios)
        yield Speedup(ours, peer, run, middle, *median_interval(ratios), variants)


def _ratios(of: LibrarySamples, to: LibrarySamples) -> list[float]:
    if of.status != "ok" or to.status != "ok":
        return []
    return [a / b for a, b in zip(of.rates, to.rates, strict=False) if a and b]


def median_interval(samples: Sequence[float]) -> tuple[float, float] | tuple[None, None]:
    """Return the two samples that enclose the true median with a probability of at least 95%.

    Both are None if there are too few samples. The k-th smallest lies above the median only if
    fewer than k of n fair coins show heads (Conover, Practical Nonparametric Statistics, 3.2).
    """
    # Exact, since a float overflows at 2**1024.
    allowed = (1 - Fraction(_CONFIDENCE)) * 2 ** len(samples) / 2
    rank = 0
    below = 1
    while below <= allowed:
        rank += 1
        below += math.comb(len(samples), rank)
    ordered = sorted(samples)
    return (ordered[rank - 1], ordered[-rank]) if rank else (None, None)
