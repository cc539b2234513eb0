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
from ci.site.project import Library


@dataclass(frozen=True)
class ScalingChart:
    """One environment and agent on one machine.

    Attributes:
        env: the environment.
        agent: what chose the actions.
        machine: the machine.
        sizes: the numbers of environments.
        lines: the row of each library at each size, None where it was not measured. All rows of
            a size are of one run, so that they can be compared.
        rows: every row of the environment, on any machine.
    """

    env: str
    agent: str
    machine: str
    sizes: Sequence[int]
    lines: Sequence[tuple[Library, Sequence[MeasuredRow | None]]]
    rows: Sequence[MeasuredRow]

    @property
    def slug(self) -> str:
        """The name of its data file."""
        return formatting.slug(self.env)

    @property
    def kind(self) -> str:
        """What its rates are the rates of."""
        return formatting.kind_of_rate(self.agent)

    @property
    def drawn(self) -> list[tuple[Library, Sequence[MeasuredRow | None]]]:
        """The lines that are drawn at first: the same library under other options is not."""
        return [line for line in self.lines if not line[0].variant_of]

    @property
    def has_memory(self) -> bool:
        """Whether the memory of a process was measured."""
        return any(row and row.get("peak_bytes") for _, rows in self.drawn for row in rows)

    def svg(self) -> Markup:
        """Draw it without script."""
        lines = [(library.style, [row for row in rows if row]) for library, rows in self.drawn]
        title = f"{self.env}, {self.kind}: steps per second against environments"
        return scaling_svg(lines, title)


def scaling_charts(site: Site) -> list[ScalingChart]:
    """Return a chart for each environment and agent, random actions first.

    Then come those with the most libraries and sizes.
    """
    charts = [_chart(env, agent, rows, site) for (env, agent), rows in site.scaling_rows.items()]
    return sorted(
        charts,
        key=lambda each: (
            *(each.agent != "random", -len(each.drawn), -len(each.sizes)),
            *(each.env, each.agent),
        ),
    )


def _chart(env: str, agent: str, rows: Sequence[MeasuredRow], site: Site) -> ScalingChart:
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
    ordered = [newest[key] for key in sorted(newest)]
    return ScalingChart(env, agent, machine, list(widest), lines, ordered)


def row_id(row: MeasuredRow) -> str:
    """Return the name of a row in the page's address."""
    names = (row["library"], row["num_envs"], row["timestamp"], row["env"], row["agent"])
    return formatting.slug("row-" + "-".join(names))


def scaling_page(site: Site) -> dict[str, Any]:
    """Return the charts, the run behind a row by its time, and whether a GPU was measured."""
    charts = scaling_charts(site)
    devices = {row.get("device") for chart in charts for row in chart.rows}
    return {
        "charts": charts,
        "runs": {run.measured: run for run in site.measurements.runs},
        "has_gpu": not devices.isdisjoint({"gpu", "cuda", "rocm"}),
    }
