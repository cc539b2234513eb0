"""How many times as fast as each peer we are. A ratio needs two libraries that took turns in a run.

The ratios of a run are one table: the other libraries are rows, and sizes are columns.
`ci.site.pages` shows the table with the most libraries first, and the sentence above it.
"""

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ci.site.formatting import counted, kind_of_rate, slug, times
from ci.site.measurements import LibrarySamples, SuiteRun, measured_at
from ci.site.project import Library, Project

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Speedup:
    """How many times as fast as a peer we are, over the rounds of one alternation.

    Attributes:
        middle: the median of the rounds' ratios.
        low: the lower end of its 95% interval, None if there are too few rounds.
        high: the upper end.
        ours: our samples.
        peer: the peer's samples.
        run: the run that measured both.
        variants: the same ratio with a variant in the place of its library, by the variant's name.
    """

    middle: float
    low: float | None
    high: float | None
    ours: LibrarySamples
    peer: LibrarySamples
    run: SuiteRun
    variants: dict[str, float]

    @property
    def interval(self) -> str:
        """The interval in words."""
        if self.low is None or self.high is None:
            return "too few rounds"
        return f"{times(self.low)} to {times(self.high)}"

    @property
    def is_clear(self) -> bool:
        """Whether the interval is on one side of 1, so that one of the two is faster."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high

    @property
    def anchor(self) -> str:
        """Where the comparison's page shows what is behind it."""
        written = "-recorded" if self.ours.recorded else ""
        return slug(f"of-{self.run.name}-{self.peer.library}-{self.ours.workload}{written}")


@dataclass(frozen=True)
class RatioRow:
    """One peer's row.

    Attributes:
        peer: the library.
        version: its version.
        cells: our speedup over it at each size, None where it was not measured.
        statuses: why a cell is empty: refused, failed, ...; "" where nobody tried.
        reason: what differs in the work that it does, "" where nothing does.
    """

    peer: Library
    version: str
    cells: Sequence[Speedup | None]
    statuses: Sequence[str]
    reason: str

    @property
    def median(self) -> float:
        """The median of its ratios, by which the rows are ordered."""
        return statistics.median(cell.middle for cell in self.cells if cell)


@dataclass(frozen=True)
class RatioTable:
    """The ratios that one run measured in one environment, the fastest peer first, limits last.

    Attributes:
        env: the environment.
        agent: what chose the actions.
        recorded: whether every step was written to a trajectory.
        run: the run that called all of them in turn.
        sizes: the numbers of environments.
        ours: our samples at each size.
        rows: a row for each peer that was measured at any size.
        absent: the status of each peer that was measured at none, by its name.
    """

    env: str
    agent: str
    recorded: bool
    run: SuiteRun
    sizes: Sequence[int]
    ours: Sequence[LibrarySamples]
    rows: Sequence[RatioRow]
    absent: dict[str, str]

    @property
    def hardware(self) -> str:
        """The machine."""
        return self.ours[0].hardware

    @property
    def kind(self) -> str:
        """What the rates are the rates of."""
        return kind_of_rate(self.agent)

    @property
    def rivals(self) -> list[RatioRow]:
        """The rows of libraries, without those of what the machine can do at most."""
        return [row for row in self.rows if not row.peer.is_limit]

    @property
    def sooner(self) -> list[str]:
        """The packages that compile less than we do at every size, or nothing."""
        found = {
            row.peer.package
            for row in self.rivals
            if all(line.peer.compile_s < line.ours.compile_s for line in row.cells if line)
        }
        return sorted(found)

    @property
    def anchor(self) -> str:
        """A name for its notes."""
        written = "-recorded" if self.recorded else ""
        return slug(f"note-{self.run.name}-{self.env}-{self.agent}{written}")

    @property
    def variants(self) -> list[str]:
        """The libraries under other options that were called in turn with both."""
        lines = (line for row in self.rows for line in row.cells if line)
        return list(dict.fromkeys(name for line in lines for name in line.variants))

    @property
    def fixed_sizes(self) -> list[str]:
        """Say which peers always step the same number of environments."""
        notes = []
        for row in self.rows:
            lines = [line for line in row.cells if line]
            sizes = {line.peer.num_envs for line in lines}
            if sizes != {line.ours.num_envs for line in lines}:
                each = " and ".join(counted(size, "environment") for size in sorted(sizes))
                notes.append(f"{row.peer.label} always steps {each}: it is not faster with more.")
        return notes

    @property
    def strongest(self) -> list[Speedup]:
        """Our speedup over the fastest other library at each size."""
        by_size = zip(*(row.cells for row in self.rivals), strict=True)
        found = [[cell for cell in cells if cell] for cells in by_size]
        return [min(cells, key=lambda cell: cell.middle) for cells in found if cells]

    @property
    def fastest_others(self) -> list[tuple[str, int, int]]:
        """The other libraries that are fastest, each with its first size and its last in a row."""
        groups = itertools.groupby(self.strongest, key=lambda line: line.peer.library)
        sizes = [(name, [line.ours.num_envs for line in lines]) for name, lines in groups]
        return [(name, each[0], each[-1]) for name, each in sizes]


def ratio_tables(runs: Sequence[SuiteRun], project: Project) -> list[RatioTable]:
    """Return a table for each run, environment, agent and machine.

    Random actions come first, then the table with the most rivals, the most sizes, the newest run.
    """
    newest_first = sorted(runs, key=measured_at, reverse=True)
    tables = [table for run in newest_first for table in _tables_of(run, project)]
    return sorted(
        tables,
        key=lambda table: (
            *(not table.rivals, table.recorded, table.agent != "random"),
            *(-len(table.rivals), -len(table.sizes), table.env),
        ),
    )


def not_ahead(tables: Sequence[RatioTable]) -> list[Speedup]:
    """Return the newest ratios to libraries that aren't clearly above 1, the worst first."""
    newest: dict[tuple[str, str, str, int, bool, str], Speedup] = {}
    for table in sorted(tables, key=lambda table: measured_at(table.run)):
        for line in (each for row in table.rivals for each in row.cells if each):
            ours = line.ours
            peer = line.peer.library
            key = (ours.env, ours.agent, peer, ours.num_envs, ours.recorded, ours.hardware)
            newest[key] = line
    return sorted(
        (line for line in newest.values() if line.middle < 1 or not line.is_clear),
        key=lambda line: line.middle,
    )


def headline(table: RatioTable | None, title: str) -> str:
    """Say how fast we are beside the fastest other library, at the worst size and at the best."""
    if table is None or not table.rivals:
        return f"How fast {title} is beside other libraries: not measured yet."
    strongest = table.strongest
    ends = [times(pick(line.middle for line in strongest)) for pick in (min, max)]
    many = " to ".join(dict.fromkeys(ends))
    count = len({row.peer.package for row in table.rivals})
    fastest = f"the fastest of {count} other libraries" if count > 1 else table.rows[0].peer.label
    where = f"{table.env}, {table.kind}, {table.ours[0].device.upper()}"
    sentence = f"{title} is {many} times as fast as {fastest}: {where}."
    # A ratio whose interval holds 1 is no difference.
    if all(line.is_clear for line in strongest):
        return sentence
    unclear = ", ".join(f"{line.ours.num_envs:,}" for line in strongest if not line.is_clear)
    return f"{sentence} Nobody can tell which is faster at {unclear} environments."


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


def _tables_of(run: SuiteRun, project: Project) -> Iterator[RatioTable]:
    lines: dict[tuple[str, str, bool, str], list[Speedup]] = {}
    for line in (each for group in run.alternations for each in _speedups(run, group, project)):
        ours = line.ours
        lines.setdefault((ours.env, ours.agent, ours.recorded, ours.hardware), []).append(line)
    for (env, agent, recorded, _), found in lines.items():
        ours = {line.ours.num_envs: line.ours for line in found}
        sizes = sorted(ours)
        cells = {(line.peer.library, line.ours.num_envs): line for line in found}
        # how each library fared at each size
        statuses = {
            (samples.library, samples.num_envs): samples.status
            for alternation in run.alternations
            for samples in alternation
            if (samples.env, samples.agent) == (env, agent)
        }
        peers = project.order(library for library, _ in cells)
        rows = []
        for peer in peers:
            of_peer = [cells.get((peer, size)) for size in sizes]
            measured = [cell.peer for cell in of_peer if cell]
            rows.append(
                RatioRow(
                    peer=project.libraries[peer],
                    version=measured[0].library_version,
                    cells=of_peer,
                    statuses=[statuses.get((peer, size), "") for size in sizes],
                    # each size gives the same reason with figures of its own
                    reason=next((samples.reason for samples in measured if samples.reason), ""),
                )
            )
        absent = {
            name: status
            for (name, _), status in statuses.items()
            if name not in peers and status != "ok" and not project.libraries[name].variant_of
        }
        yield RatioTable(
            env=env,
            agent=agent,
            recorded=recorded,
            run=run,
            sizes=sizes,
            ours=[ours[size] for size in sizes],
            rows=sorted(rows, key=lambda row: (row.peer.is_limit, row.median)),
            absent=absent,
        )


def _speedups(
    run: SuiteRun, alternation: Sequence[LibrarySamples], project: Project
) -> Iterator[Speedup]:
    """Yield our speedup over each peer of an alternation."""
    # Reversed, so that of a library measured twice the first counts.
    by_library = {samples.library: samples for samples in reversed(alternation)}
    rates = {name: samples.rates for name, samples in by_library.items() if samples.status == "ok"}

    def ratios(of: str, to: str) -> list[float]:
        """Return the ratio of two libraries' rates in each round that neither failed."""
        rounds = zip(rates.get(of, ()), rates.get(to, ()), strict=False)
        return [ours / theirs for ours, theirs in rounds if ours and theirs]

    for name in rates:
        found = ratios(project.ours, name)
        if not found or name == project.ours or project.libraries[name].variant_of:
            continue
        pairs = {variant: (project.ours, variant) for variant in project.variants_of(name)}
        pairs |= {variant: (variant, name) for variant in project.variants_of(project.ours)}
        yield Speedup(
            statistics.median(found),
            *median_interval(found),
            ours=by_library[project.ours],
            peer=by_library[name],
            run=run,
            variants={
                variant: statistics.median(each)
                for variant, pair in pairs.items()
                if (each := ratios(*pair))
            },
        )
