"""What the charts show: steps per second against the number of environments.

The first page draws the charts with choices, and the page Scaling all of them.
"""

from typing import Any

from markupsafe import Markup

from ci.site import formatting
from ci.site.charts import scaling_svg
from ci.site.comparisons import Comparison
from ci.site.measurements import MeasuredRow
from ci.site.model import Site

# the suites of what environments and chunks cost
_COSTS = {
    "memory_envs": "Memory by environments",
    "memory_scan": "Memory by scan chunk",
    "scan_chunk": "Speed, memory and compiling by scan chunk",
}


def row_id(row: MeasuredRow) -> str:
    """Return the name of a row in the page's address."""
    names = ("suite", "library", "num_envs", "scan_chunk_size", "timestamp", "env", "agent")
    return formatting.slug("row-" + "-".join(row[name] for name in names))


def chart_svg(chart: Comparison) -> Markup:
    """Draw a chart without script."""
    lines = [(line.library.style, [row for row in line.rows if row]) for line in chart.drawn]
    title = f"{chart.env}, {chart.kind}: steps per second against environments"
    return scaling_svg(lines, title)


def chart_data(chart: Comparison) -> dict[str, Any]:
    """Return what the script draws: of each library its look and its points."""
    lines = []
    for line in chart.lines:
        points = []
        for row in filter(None, line.rows):
            ends = (row[f"steps_per_s{end}"] or row["steps_per_s"] for end in ("", "_low", "_high"))
            points.append([int(row["num_envs"]), *map(float, ends), row["scan_chunk_size"]])
        look = line.library.style
        names = [line.library.name, line.library.label, line.library.variant_of]
        lines.append([*names, look.light, look.dark, look.dash, look.path, points])
    about = ("env", "agent", "kind", "device", "sizes")
    return {name: getattr(chart, name) for name in about} | {"lines": lines}


def scaling_page(site: Site) -> dict[str, Any]:
    """Return the charts, every row behind them, and whether a GPU was measured."""
    choices: dict[tuple[str, ...], Comparison] = {}
    for each in site.comparisons:
        if not each.recorded:
            choices.setdefault((each.env, each.agent, each.device), each)
    charts: dict[tuple[str, str], Comparison] = {}
    for each in choices.values():
        charts.setdefault((each.env, each.agent), each)
    every: dict[tuple[str, str], dict[tuple[str, ...], MeasuredRow]] = {key: {} for key in charts}
    for each in reversed(site.comparisons):
        for row in each.measured if not each.recorded else ():
            key = (each.machine, row["num_envs"].zfill(12), row["library"], row["scan_chunk_size"])
            every[each.env, each.agent][key] = row
    return {
        "charts": list(charts.values()),
        "choices": list(choices.values()),
        "rows": {key: [found[key] for key in sorted(found)] for key, found in every.items()},
        "costs": _costs(site),
        "runs": site.measurements.runs,
        "has_gpu": any(not each.device.startswith("cpu") for each in choices.values()),
    }


def _costs(site: Site) -> list[tuple[str, list[MeasuredRow]]]:
    """Return the newest row of each size and chunk, by suite, environment and agent."""
    found: dict[tuple[str, str, str], dict[tuple[str, ...], MeasuredRow]] = {}
    for row in sorted(site.measurements.rows, key=lambda row: row["timestamp"]):
        if row["suite"] in _COSTS and row["status"] == "ok":
            sizes = (row["num_envs"].zfill(12), row["scan_chunk_size"].zfill(12))
            found.setdefault((row["suite"], row["env"], row["agent"]), {})[sizes] = row
    return [
        (_COSTS[suite], [rows[sizes] for sizes in sorted(rows)])
        for (suite, *_), rows in sorted(found.items())
    ]
