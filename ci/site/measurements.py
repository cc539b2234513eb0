"""Read what the suites publish: the tidy rows of every CSV, and the raw samples from which ratios are made.

`ci.site.pages` calls it. A ratio is made only of two sides that were called in turn in one run.
"""

import csv
import json
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Row = dict[str, str]
OURS = "myriad"
_NEEDED = {"suite", "library", "env", "num_envs", "steps_per_s", "status", "commit", "timestamp"}
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Table:
    """A CSV of another schema, shown as it stands."""

    name: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Side:
    """What one side of an alternation did: a rate per round, None where the round failed."""

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
class Run:
    """One invocation of a suite: the command, the commit, when, and its alternations."""

    suite: str
    command: str
    commit: str
    measured: datetime | None
    file: str
    alternations: Sequence[Sequence[Side]]


@dataclass(frozen=True)
class Headline:
    """How many times the peer's steps/s ours are, in the rounds of one alternation; the interval is 95%."""

    ours: Side
    peer: Side
    run: Run
    middle: float
    low: float | None
    high: float | None
    others: dict[str, float]


@dataclass(frozen=True)
class Measurements:
    """All that the folders of CSVs hold: tidy rows, runs with raw samples, tables of other schemas, the files."""

    rows: Sequence[Row]
    runs: Sequence[Run]
    tables: Sequence[Table]
    files: Sequence[Path]


def read_measurements(folders: Sequence[Path]) -> Measurements:
    """Return what the folders hold; a missing folder holds nothing, and a broken file is left out."""
    rows: list[Row] = []
    tables, runs = [], []
    files = [path for folder in folders for path in sorted(folder.glob("*")) if path.suffix in {".csv", ".json"}]
    for path in files:
        if path.suffix == ".csv":
            headers, found = _read_csv(path)
            if set(headers) >= _NEEDED:
                rows += found
            elif headers:
                tables.append(Table(path.stem, headers, [[row[name] or "" for name in headers] for row in found]))
        elif path.stem.endswith("_samples"):
            runs += _read_run(path)
    return Measurements(rows, runs, tables, files)


def when(timestamp: str) -> datetime | None:
    """Read a row's timestamp."""
    try:
        return datetime.strptime(timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def _read_csv(path: Path) -> tuple[list[str], list[Row]]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        # a killed run's last line
        rows = [row for row in reader if None not in row.values() and None not in row]
        return list(reader.fieldnames or ()), rows


def _read_run(path: Path) -> Iterator[Run]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        alternations = [[_side(outcome) for outcome in group.values()] for group in found["alternations"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        return
    table = path.with_name(path.stem.removesuffix("_samples") + ".csv")
    rows = _read_csv(table)[1] if table.exists() else []
    newest = max(rows, key=lambda row: row.get("timestamp", ""), default={})
    # Where the output was written is the business of whoever ran it.
    command = re.sub(r" --output[ =]\S+", "", str(found.get("command", "")))
    suite = newest.get("suite") or path.stem.split("_")[0]
    yield Run(suite, command, newest.get("commit", ""), when(newest.get("timestamp", "")), path.name, alternations)


def _side(outcome: dict[str, Any]) -> Side:
    contender, hello, prepared = outcome["contender"], outcome["hello"], outcome["prepared"]
    workload = contender["workload"]
    steps = workload["num_envs"] * prepared.get("num_steps", 0)
    return Side(
        library=contender["side"],
        library_version=hello.get("library_version", ""),
        env=workload["env"],
        agent=workload.get("agent") or "random",
        workload=workload["name"],
        num_envs=workload["num_envs"],
        recorded=bool(contender.get("record")),
        status=outcome["status"],
        reason=outcome.get("reason", ""),
        hardware=hardware_text(hello.get("hardware", {})),
        jax_version=hello.get("versions", {}).get("jax", ""),
        rates=[seconds and steps / seconds for seconds in outcome["seconds"]],
        prepared=prepared,
        stats=outcome.get("stats", {}),
    )


def hardware_text(hardware: dict[str, Any]) -> str:
    """Name a machine as a reader would: model, cores, memory."""
    cores = int(hardware.get("cores") or 0)
    memory = float(hardware.get("memory_total_bytes") or 0)
    parts = [
        hardware.get("device_name", ""),
        f"{cores} core{'s' * (cores != 1)}" if cores else "",
        f"{memory / 2**30:.0f} GiB" if memory else "",
    ]
    return ", ".join(part for part in parts if part) or "unknown hardware"


def headlines(runs: Sequence[Run]) -> list[Headline]:
    """Return the newest ratio to each peer: per environment, agent, size, hardware, with a trajectory or without."""
    newest: dict[tuple[str, str, str, int, bool, str], Headline] = {}
    for run in sorted(runs, key=lambda run: run.measured or datetime.min.replace(tzinfo=UTC)):
        for sides in run.alternations:
            for found in _headlines(run, sides):
                ours = found.ours
                key = (ours.env, ours.agent, found.peer.library, ours.num_envs, ours.recorded, ours.hardware)
                newest[key] = found
    return [newest[key] for key in sorted(newest)]


def _headlines(run: Run, sides: Sequence[Side]) -> Iterator[Headline]:
    """Yield ours beside each peer; a peer under other options and ours without them are shown beside it."""
    by_library = {side.library: side for side in reversed(sides)}
    ours = by_library.get(OURS)
    for library, peer in by_library.items():
        if ours is None or library in {OURS, f"{OURS}-plain"} or library.endswith("-configured"):
            continue
        ratios = _ratios(ours, peer)
        if not ratios:
            continue
        beside = {f"{library}-configured": (OURS, f"{library}-configured"), f"{OURS}-plain": (f"{OURS}-plain", library)}
        others = {
            name: statistics.median(quotients)
            for name, (of, to) in beside.items()
            if of in by_library and to in by_library and (quotients := _ratios(by_library[of], by_library[to]))
        }
        yield Headline(ours, peer, run, statistics.median(ratios), *median_interval(ratios), others)


def _ratios(of: Side, to: Side) -> list[float]:
    if of.status != "ok" or to.status != "ok":
        return []
    return [a / b for a, b in zip(of.rates, to.rates, strict=False) if a and b]


def median_interval(samples: Sequence[float]) -> tuple[float, float] | tuple[None, None]:
    """Return the two samples that enclose the true median with at least 95% probability; None where too few.

    The k-th smallest lies above the median only if fewer than k of n fair coins show heads
    (Conover, Practical Nonparametric Statistics, 3.2). `myriad.timing` has the same for callers
    that may import it; the tests compare both.
    """
    allowed = (1 - _CONFIDENCE) / 2 * 2.0 ** len(samples)
    rank, below = 0, 1
    while below <= allowed:
        rank += 1
        below += math.comb(len(samples), rank)
    ordered = sorted(samples)
    return (ordered[rank - 1], ordered[-rank]) if rank else (None, None)
