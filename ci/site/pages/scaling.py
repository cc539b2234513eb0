"""What the scaling charts show: steps per second against the number of environments.

The first page shows the chart of one environment, and the page Scaling all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ci.site import formatting
from ci.site.charts import scaling_svg
from ci.site.measurements import MeasuredRow
from ci.site.model import Site
from ci.site.pages.gains import device_tables
from ci.site.project import Library

_ENOUGH = 0.8  # of the best rate: from there on the curve is flat


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

    @property
    def has_memory(self) -> bool:
        """Whether the memory of a process was measured."""
        return any(row and row.get("peak_bytes") for _, rows in self.drawn for row in rows)

    def svg(self) -> Markup:
        """Draw it without script."""
        lines = [(library.style, [row for row in rows if row]) for library, rows in self.drawn]
        return scaling_svg(lines, f"{self.env}: steps per second against environments")


def scaling_charts(site: Site) -> list[ScalingChart]:
    """Return a chart for each environment, the one with the most libraries and sizes first."""
    charts = [_chart(env, rows, site) for env, rows in site.scaling_rows.items()]
    return sorted(charts, key=lambda each: (-len(each.drawn), -len(each.sizes), each.env))


def _chart(env: str, rows: Sequence[MeasuredRow], site: Site) -> ScalingChart:
    """Return the chart of the machine that was measured last; `rows` are the oldest first."""
    machine = formatting.hardware(rows[-1])
    runs_of_size: dict[int, dict[str, dict[str, MeasuredRow]]] = {}
    order = list(site.project.libraries)
    newest: dict[tuple[str, int, int], MeasuredRow] = {}
    for row in rows:
        hardware = formatting.hardware(row)
        size = int(row["num_envs"])
        if hardware == machine:
            runs = runs_of_size.setdefault(size, {})
            runs.setdefault(row["timestamp"], {})[row["library"]] = row
        newest[hardware, size, order.index(row["library"])] = row
    # Of each size, the run with the most libraries counts, and of several such runs the newest.
    widest = {
        size: runs[max(runs, key=lambda run: (len(runs[run]), run))]
        for size, runs in sorted(runs_of_size.items())
    }
    drawn = site.project.order(name for row_of in widest.values() for name in row_of)
    lines = [
        (site.project.libraries[name], [row_of.get(name) for row_of in widest.values()])
        for name in drawn
    ]
    return ScalingChart(env, machine, list(widest), lines, [newest[key] for key in sorted(newest)])


def row_id(row: MeasuredRow) -> str:
    """Return the name of a row in the page's address."""
    names = (row["library"], row["num_envs"], row["timestamp"], row["env"])
    return formatting.slug("row-" + "-".join(names))


def scaling_page(site: Site, plots: Sequence[str]) -> dict[str, Any]:
    """Return the context of the page Scaling; `plots` are the paths of the drawn plots."""
    charts = scaling_charts(site)
    machines = {row.get("device") for chart in charts for row in chart.rows}
    return {
        "charts": charts,
        "devices": device_tables(site.measurements.runs),
        "runs": {run.measured: run for run in site.measurements.runs},
        "has_gpu": not machines.isdisjoint({"gpu", "cuda", "rocm"}),
        "found": [found for chart in charts if (found := _flattening(chart, site))],
        "plots": plots,
    }


def _flattening(chart: ScalingChart, site: Site) -> dict[str, Any] | None:
    """Say from which size on our curve reaches most of its best rate."""
    rows = next((rows for library, rows in chart.lines if library.name == site.project.ours), ())
    rates = {int(row["num_envs"]): float(row["steps_per_s"]) for row in rows if row}
    if len(rates) < 2:
        return None
    best_size = max(rates, key=lambda size: rates[size])
    best = rates[best_size]
    enough = min(size for size, rate in rates.items() if rate >= _ENOUGH * best)
    return {
        "env": chart.env,
        "machine": chart.machine,
        "best": best,
        "best_size": best_size,
        "enough": enough,
    }
