"""The one rate of each library and size, and how many times as fast as each peer we are.

A comparison holds the rows of one environment, agent, machine and commit. `best_chunks.py` chooses
those that count. Charts, tables and sentences of all pages take their numbers from here.
"""

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ci.site.best_chunks import best_chunks
from ci.site.formatting import hardware, kind_of_rate, slug, times
from ci.site.measurements import SUITES_OF_RATES, MeasuredRow
from ci.site.project import Library, Project


@dataclass(frozen=True)
class Speedup:
    """How many times as fast as a peer we are at one size, each at its best chunk.

    Our median over theirs. The interval reaches from our lower end over their upper end to the
    reverse, so it errs on the wide side.
    """

    library: Library
    ours: MeasuredRow
    theirs: MeasuredRow

    def _ratio(self, ours: str, theirs: str) -> float | None:
        if not (self.ours[f"steps_per_s{ours}"] and self.theirs[f"steps_per_s{theirs}"]):
            return None
        return float(self.ours[f"steps_per_s{ours}"]) / float(self.theirs[f"steps_per_s{theirs}"])

    @property
    def middle(self) -> float:
        """The ratio."""
        return float(self.ours["steps_per_s"]) / float(self.theirs["steps_per_s"])

    @property
    def low(self) -> float | None:
        """The lower end of its interval, None if a rate has none."""
        return self._ratio("_low", "_high")

    @property
    def high(self) -> float | None:
        """The upper end."""
        return self._ratio("_high", "_low")

    @property
    def interval(self) -> str:
        """The interval in words."""
        if self.low is None or self.high is None:
            return "no interval"
        return f"{times(self.low)} to {times(self.high)}"

    @property
    def is_clear(self) -> bool:
        """Whether the interval is on one side of 1, so that one of the two is faster."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high

    @property
    def anchor(self) -> str:
        """Where the comparison's page shows what is behind it."""
        row = self.theirs
        names = ("suite", "env", "agent", "library", "num_envs", "timestamp")
        return slug("of-" + "-".join(row[name] for name in names))


@dataclass(frozen=True)
class Line:
    """One library.

    Attributes:
        library: the library.
        rows: its row at each size, None where it was not measured.
        statuses: why there is none: refused, failed, ...; "" where nobody tried.
        cells: our speedup over it at each size, None where ours or its row is missing.
    """

    library: Library
    rows: Sequence[MeasuredRow | None]
    statuses: Sequence[str]
    cells: Sequence[Speedup | None]

    @property
    def version(self) -> str:
        """The version of its first row."""
        return next((row["library_version"] for row in self.rows if row), "")

    @property
    def reason(self) -> str:
        """What differs in the work that it does; each size gives the same with its own figures."""
        return next((row["reason"] for row in self.rows if row and row["reason"]), "")


@dataclass(frozen=True)
class Comparison:
    """The libraries in one environment on one machine at one commit.

    Attributes:
        env: the environment.
        agent: what chose the actions.
        recorded: whether every step was written to a trajectory.
        machine: the machine.
        sizes: the numbers of environments.
        ours: our row at each size, None where it was not measured.
        lines: every library that was measured, ours first.
        peers: those beside which ours was measured, the fastest first, limits last.
        measured: the row of each library, size and chunk, whether or not it counts.
        absent: the status of each library that was measured at no size, by its name.
        searched: whether any library was measured with more than one chunk.
    """

    env: str
    agent: str
    recorded: bool
    machine: str
    sizes: Sequence[int]
    ours: Sequence[MeasuredRow | None]
    lines: Sequence[Line]
    peers: Sequence[Line]
    measured: Sequence[MeasuredRow]
    absent: dict[str, str]
    searched: bool

    @property
    def kind(self) -> str:
        """What the rates are the rates of."""
        return kind_of_rate(self.agent)

    @property
    def rows(self) -> list[MeasuredRow]:
        """Every row that counts, ours first."""
        return [row for line in self.lines for row in line.rows if row]

    @property
    def device(self) -> str:
        """The device and the machine."""
        return f"{self.rows[0]['device'] or 'cpu'}: {self.machine}"

    @property
    def newest(self) -> MeasuredRow:
        """The row that was measured last."""
        return max(self.rows, key=lambda row: row["timestamp"])

    @property
    def files(self) -> list[str]:
        """The files of its rows."""
        return list(dict.fromkeys(row["file"] for row in self.rows))

    @property
    def drawn(self) -> list[Line]:
        """The lines that are drawn at first: ours under other options is not."""
        return [line for line in self.lines if not line.library.variant_of]

    @property
    def under_options(self) -> list[str]:
        """The libraries that count under our options, by the names of these ways to run them."""
        rows = ((line.library.name, row) for line in self.lines for row in line.rows if row)
        return list(dict.fromkeys(row["library"] for name, row in rows if row["library"] != name))

    @property
    def has_memory(self) -> bool:
        """Whether the memory of a process was measured."""
        return any(row["peak_bytes"] for row in self.rows)

    @property
    def rivals(self) -> list[Line]:
        """The peers that are libraries, without those of what the machine can do at most."""
        return [line for line in self.peers if not line.library.is_limit]

    @property
    def compile_s(self) -> float:
        """The longest that ours compiles."""
        return max(_compile_s(row) for row in self.ours if row)

    @property
    def sooner(self) -> list[str]:
        """The packages that compile less than we do at every size."""
        found = {
            line.library.package
            for line in self.rivals
            if all(_compile_s(c.theirs) < _compile_s(c.ours) for c in line.cells if c)
        }
        return sorted(found)

    @property
    def anchor(self) -> str:
        """A name for its notes."""
        names = ("env", "agent", "timestamp", "suite")
        return slug("note-" + "-".join(self.newest[name] for name in names))

    @property
    def strongest(self) -> list[Speedup]:
        """Our speedup over the fastest other library at each size."""
        by_size = zip(*(line.cells for line in self.rivals), strict=True)
        found = [[cell for cell in cells if cell] for cells in by_size]
        return [min(cells, key=lambda cell: cell.middle) for cells in found if cells]

    @property
    def fastest_others(self) -> list[tuple[str, int, int]]:
        """The other libraries that are fastest, each with its first size and its last in a row."""
        groups = itertools.groupby(self.strongest, key=lambda cell: cell.library.label)
        sizes = [(name, [int(c.ours["num_envs"]) for c in cells]) for name, cells in groups]
        return [(name, each[0], each[-1]) for name, each in sizes]

    def headline(self, title: str) -> str:
        """Say how fast we are beside the fastest other library, at the worst size and the best."""
        where = f"{self.env}, {self.kind}, {self.device.partition(':')[0].upper()}"
        if not self.rivals:
            return f"How fast {title} is beside other libraries: not measured yet ({where})."
        strongest = self.strongest
        ends = [times(pick(cell.middle for cell in strongest)) for pick in (min, max)]
        many = " to ".join(dict.fromkeys(ends))
        count = len({line.library.package for line in self.rivals})
        names = " or ".join(dict.fromkeys(cell.library.label for cell in strongest))
        beside = f"{names}, the fastest of {count} other libraries" if count > 1 else names
        chunk = ", each at its best chunk" if self.searched else ""
        sentence = f"{title} is {many} times as fast as {beside}{chunk}: {where}."
        # A ratio whose interval holds 1 is no difference.
        unclear = ", ".join(
            f"{int(cell.ours['num_envs']):,}" for cell in strongest if not cell.is_clear
        )
        if not unclear:
            return sentence
        return f"{sentence} Nobody can tell which is faster at {unclear} environments."


def comparisons(rows: Iterable[MeasuredRow], project: Project) -> list[Comparison]:
    """Return every comparison that the rows allow.

    Random actions come first, then the one with the most rivals, the most sizes, the newest.
    """
    rows = [
        row
        for row in sorted(rows, key=lambda row: row["timestamp"], reverse=True)
        if row["suite"] in SUITES_OF_RATES and row["num_envs"] and not row.get("arm")
    ]
    # A library that needs no GPU runs on the processor of the machine that ours runs on.
    machines = {row["timestamp"]: hardware(row) for row in rows if row["library"] == project.ours}
    groups: dict[tuple[Any, ...], list[MeasuredRow]] = {}
    for row in rows:
        # Uncommitted changes may differ from run to run.
        version = row["timestamp"] if row["commit"].endswith("-dirty") else row["commit"]
        where = (machines.get(row["timestamp"], hardware(row)), version)
        recorded = row["suite"] == SUITES_OF_RATES[-1]
        groups.setdefault((row["env"], row["agent"], recorded, *where), []).append(row)
    found = [_comparison(each, machine, project) for (*_, machine, _), each in groups.items()]
    return sorted(
        filter(None, found),
        key=lambda each: (
            *(not each.rivals, each.recorded, each.agent != "random"),
            *(-len(each.rivals), -len(each.sizes), each.env),
        ),
    )


def _comparison(rows: list[MeasuredRow], machine: str, project: Project) -> Comparison | None:
    """Choose the rows that count from those of one group, the newest first."""
    statuses: dict[tuple[str, int], str] = {}
    for row in rows:
        if row["status"] != "ok":
            statuses.setdefault((row["library"], int(row["num_envs"])), row["status"])

    def counts_for(name: str) -> str:
        runs = project.libraries[name].variant_of
        return runs if runs and runs != project.ours else name

    found = best_chunks(rows, counts_for)
    best = found.best
    if not best:
        return None
    sizes = sorted({size for _, size in best})
    ours = [best.get((project.ours, size)) for size in sizes]
    lines = []
    for name in project.order(name for name, _ in best):
        own = [best.get((name, size)) for size in sizes]
        library = project.libraries[name]
        pairs = zip(ours, own, strict=True)
        cells = [Speedup(library, us, them) if us and them else None for us, them in pairs]
        why = [statuses.get((name, size), "") for size in sizes]
        lines.append(Line(library, own, why, cells))
    peers = [
        line
        for line in lines
        if any(line.cells) and project.ours not in (line.library.name, line.library.variant_of)
    ]
    median = {
        line.library.name: statistics.median(cell.middle for cell in line.cells if cell)
        for line in peers
    }
    names = {line.library.name for line in lines}
    return Comparison(
        env=rows[0]["env"],
        agent=rows[0]["agent"],
        recorded=rows[0]["suite"] == SUITES_OF_RATES[-1],
        machine=machine,
        sizes=sizes,
        ours=ours,
        lines=lines,
        peers=sorted(peers, key=lambda p: (p.library.is_limit, median[p.library.name])),
        measured=list(found.measured.values()),
        absent={
            name: status
            for (name, _), status in statuses.items()
            if name not in names and not project.libraries[name].variant_of
        },
        searched=found.searched,
    )


def not_ahead(found: Sequence[Comparison]) -> list[tuple[Comparison, Speedup]]:
    """Return the newest ratios to libraries that aren't clearly above 1, the worst first."""
    newest: dict[tuple[str, ...], tuple[Comparison, Speedup]] = {}
    for each in sorted(found, key=lambda each: each.newest["timestamp"]):
        for line in each.rivals:
            for cell in filter(None, line.cells):
                at = (each.env, each.agent, each.machine, f"{each.recorded}")
                newest[(*at, line.library.name, cell.ours["num_envs"])] = each, cell
    return sorted(
        (each for each in newest.values() if each[1].middle < 1 or not each[1].is_clear),
        key=lambda each: each[1].middle,
    )


def _compile_s(row: MeasuredRow) -> float:
    return float(row["compile_s"] or 0)
