"""What the scaling charts show: steps per second against the number of environments.

`ci.site.first_page` shows the chart of one environment, and the page Scaling all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ci.site import formatting
from ci.site.charts import Line, scaling_svg
from ci.site.measurements import MeasuredRow
from ci.site.model import Site
from ci.site.project import Library

_COLUMNS = ("steps_per_s", "steps_per_s_low", "steps_per_s_high")


@dataclass(frozen=True)
class ScalingChart:
    """One environment on one machine.

    Attributes:
        env: the environment.
        machine: the machine.
        sizes: the numbers of environments.
        lines: the row of each library at each size, None where it was not measured. All rows of
            a size are of one run, so that they can be compared.
        rows: every row of the environment, on any machine.
    """

    env: str
    machine: str
    sizes: Sequence[int]
    lines: Sequence[tuple[Library, Sequence[MeasuredRow | None]]]
    rows: Sequence[MeasuredRow]

    @property
    def slug(self) -> str:
        """The name of its data file."""
        return formatting.slug(self.env)

    @property
    def drawn(self) -> list[tuple[Library, Sequence[MeasuredRow | None]]]:
        """The lines that are drawn at first: the same library under other options is not."""
        return [line for line in self.lines if not line[0].variant_of]

    @property
    def has_limit(self) -> bool:
        """Whether the machine's own limit was measured."""
        return any(library.is_limit for library, _ in self.lines)

    def svg(self) -> Markup:
        """Draw it without script."""
        lines = []
        for library, rows in self.drawn:
            measured = [row for row in rows if row]
            columns = [
                [float(row[name] or row["steps_per_s"]) for row in measured] for name in _COLUMNS
            ]
            sizes = [int(row["num_envs"]) for row in measured]
            lines.append(Line(library.style, sizes, *columns))
        return scaling_svg(lines, f"{self.env}: steps per second against environments")


def scaling_charts(site: Site) -> list[ScalingChart]:
    """Return a chart for each environment, the one with the most libraries and sizes first."""
    by_env: dict[str, list[MeasuredRow]] = {}
    for row in site.scaling_rows:
        by_env.setdefault(row["env"], []).append(row)
    charts = [_chart(env, rows, site) for env, rows in by_env.items()]
    return sorted(charts, key=lambda each: (-len(each.drawn), -len(each.sizes), each.env))


def _chart(env: str, rows: Sequence[MeasuredRow], site: Site) -> ScalingChart:
    """Return the chart of the machine that was measured last; `rows` are the oldest first."""
    machine = formatting.hardware(rows[-1])
    of_size: dict[int, list[MeasuredRow]] = {}
    for row in rows:
        if formatting.hardware(row) == machine:
            of_size.setdefault(int(row["num_envs"]), []).append(row)
    newest = {
        (row["library"], size): row for size, those in of_size.items() for row in _widest(those)
    }
    sizes = sorted(of_size)
    libraries = site.project.order(library for library, _ in newest)
    lines = [
        (site.project.libraries[name], [newest.get((name, size)) for size in sizes])
        for name in libraries
    ]
    return ScalingChart(env, machine, sizes, lines, _newest_rows(rows, site))


def _widest(rows: Sequence[MeasuredRow]) -> list[MeasuredRow]:
    """Return the rows of the run that measured the most libraries, of the newest such run."""
    runs: dict[str, list[MeasuredRow]] = {}
    for row in rows:
        runs.setdefault(row["timestamp"], []).append(row)
    widest = max(runs, key=lambda run: (len({row["library"] for row in runs[run]}), run))
    return runs[widest]


def _newest_rows(rows: Sequence[MeasuredRow], site: Site) -> list[MeasuredRow]:
    """Return the newest row of each machine, size and library."""
    order = list(site.project.libraries)
    newest = {
        (formatting.hardware(row), int(row["num_envs"]), order.index(row["library"])): row
        for row in rows
    }
    return [newest[key] for key in sorted(newest)]


def scaling_page(site: Site) -> dict[str, Any]:
    """Return the context of the page Scaling."""
    machines = {row.get("device") for row in site.scaling_rows}
    return {
        "charts": scaling_charts(site),
        "has_gpu": not machines.isdisjoint({"gpu", "cuda", "rocm"}),
    }
