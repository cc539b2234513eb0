"""The ratios of one run as one table: the other libraries are rows, and sizes are columns.

`ci.site.pages` shows the table with the most libraries first, and the sentence above it.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ci.site.formatting import counted, slug, times
from ci.site.measurements import LibrarySamples, SuiteRun
from ci.site.project import Library, Project
from ci.site.speedups import Speedup, speedups_of

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


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
    """The ratios that one run measured in one environment, the fastest peer first.

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
    def anchor(self) -> str:
        """A name for its notes."""
        run = self.run.file.partition(".")[0].removesuffix("_samples")
        return slug(f"note-{run}-{self.env}-{self.agent}{'-recorded' if self.recorded else ''}")

    @property
    def variants(self) -> list[str]:
        """The libraries under other options that were called in turn with both."""
        lines = [line for row in self.rows for line in row.cells if line]
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
        by_size = zip(*(row.cells for row in self.rows), strict=True)
        found = [[cell for cell in cells if cell] for cells in by_size]
        return [min(cells, key=lambda cell: cell.middle) for cells in found if cells]

    @property
    def fastest_peers(self) -> list[str]:
        """The names of the libraries that are the fastest other one at a size."""
        return list(dict.fromkeys(line.peer.library for line in self.strongest))


def ratio_tables(runs: Sequence[SuiteRun], project: Project) -> list[RatioTable]:
    """Return a table for each run, environment, agent and machine: the one with most peers first.

    Among tables with equally many peers the one with more sizes comes first, then the newer one.
    """
    tables = [table for run in runs for table in _tables_of(run, project)]
    tables.sort(key=lambda table: table.run.measured or _LONG_AGO, reverse=True)
    return sorted(
        tables, key=lambda table: (table.recorded, -len(table.rows), -len(table.sizes), table.env)
    )


def _tables_of(run: SuiteRun, project: Project) -> Iterator[RatioTable]:
    lines: dict[tuple[str, str, bool, str], list[Speedup]] = {}
    for line in speedups_of(run, project):
        ours = line.ours
        lines.setdefault((ours.env, ours.agent, ours.recorded, ours.hardware), []).append(line)
    for (env, agent, recorded, _), found in lines.items():
        ours = {line.ours.num_envs: line.ours for line in found}
        sizes = sorted(ours)
        cells = {(line.peer.library, line.ours.num_envs): line for line in found}
        statuses = _statuses(run, env, agent)
        peers = project.order(library for library, _ in cells)
        rows = [_row(project.libraries[peer], sizes, cells, statuses) for peer in peers]
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
            rows=sorted(rows, key=lambda row: row.median),
            absent=absent,
        )


def _row(
    peer: Library,
    sizes: Sequence[int],
    cells: dict[tuple[str, int], Speedup],
    statuses: dict[tuple[str, int], str],
) -> RatioRow:
    found = [cells.get((peer.name, size)) for size in sizes]
    measured = [cell.peer for cell in found if cell]
    return RatioRow(
        peer=peer,
        version=measured[0].library_version,
        cells=found,
        statuses=[statuses.get((peer.name, size), "") for size in sizes],
        # each size gives the same reason with figures of its own
        reason=next((samples.reason for samples in measured if samples.reason), ""),
    )


def _statuses(run: SuiteRun, env: str, agent: str) -> dict[tuple[str, int], str]:
    """Return how each library fared at each size."""
    return {
        (samples.library, samples.num_envs): samples.status
        for alternation in run.alternations
        for samples in alternation
        if (samples.env, samples.agent) == (env, agent)
    }


def headline(table: RatioTable | None, title: str) -> str:
    """Say how fast we are beside the fastest other library, at the worst size and at the best."""
    if table is None:
        return f"How fast {title} is beside other libraries: not measured yet."
    strongest = table.strongest
    ends = [times(pick(line.middle for line in strongest)) for pick in (min, max)]
    many = " to ".join(dict.fromkeys(ends))
    # A ratio whose interval holds 1 is no lead.
    if all((line.low or line.middle) > 1 for line in strongest):
        count = len(table.rows) + 1
        return (
            f"{title} is the fastest of {count} measured here: "
            f"{many} times the steps per second of the next."
        )
    return f"{title} makes {many} times the steps per second of the fastest other library here."
