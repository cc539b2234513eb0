"""What the page of one benchmark shows, and its row in the list. `ci.site.pages` calls it."""

from typing import Any

from ci.site import formatting
from ci.site.charts import history_svg, sparkline
from ci.site.model import Site, levels
from perfgate.history.asv_results import Setup
from perfgate.history.benchmark_history import BenchmarkHistory


def benchmark_page(history: BenchmarkHistory, site: Site) -> dict[str, Any]:
    """Return the context of a benchmark's page."""
    benchmark = history.benchmark
    return {
        "b": benchmark,
        "history": history,
        "now": _now(history),
        "state": _state(history, site),
        "is_slower": any(map(site.is_slower, [*history.open, *history.cut_off])),
        "meaning": benchmark.meaning,
        # What else was tracked of the same workload, such as bytes and instructions.
        "companions": [
            {
                "slug": site.slugs[other.benchmark.name],
                "function": other.benchmark.function,
                "now": _now(other),
                "spark": sparkline(_values(other), width=720, height=56, max_points=240),
            }
            for other in site.histories
            if other is not history
            and other.benchmark.parameters == benchmark.parameters != ()
            and other.benchmark.unit != "seconds"
        ],
        "svg": history_svg(history),
        "levels": _levels(history),
        "recent": list(reversed(history.points[-30:])),
    }


def _values(history: BenchmarkHistory) -> list[float]:
    return [point.value for point in history.points]


def _levels(history: BenchmarkHistory) -> list[dict[str, Any]]:
    changes = {id(change.point): change for change in history.changes}
    before: list[Setup] = []
    rows = []
    for setup, segment in levels(history):
        first = segment.points[0]
        rows.append(
            {
                "first": first,
                "count": len(segment.points),
                "middle": segment.middle,
                "setup": setup,
                "change": changes.get(id(first)),
                # where several processors took turns, one of them has the change
                "marker": "" if setup in before else _marker(before, setup),
            }
        )
        before.append(setup)
    return sorted(rows, key=lambda row: row["first"].date_s)


def _marker(before: list[Setup], setup: Setup) -> str:
    """Say what is new about a setup, compared with the last one of its machine."""
    if not before:
        return "first"
    versions = [each.versions for each in before if each.machine == setup.machine]
    if not versions:
        return "another machine"
    return "other versions" if versions[-1] != setup.versions else "another benchmark"


def listed(history: BenchmarkHistory, site: Site) -> dict[str, Any]:
    """Return a benchmark's row in the list."""
    values = _values(history)
    last = max(history.changes, key=lambda change: change.point.date_s, default=None)
    return {
        "name": history.benchmark.name,
        "now": _now(history),
        "state": _state(history, site),
        "value": values[-1],
        "count": len(values),
        "spark": sparkline(values),
        "change": last,
        "open": any(map(site.is_slower, history.open)),
    }


def _now(history: BenchmarkHistory) -> str:
    return formatting.quantity(history.points[-1].value, history.benchmark.unit)


def _state(history: BenchmarkHistory, site: Site) -> str:
    slowdowns = history.open or history.cut_off
    if not slowdowns:
        return "no slowdown" if history.can_tell else "too few commits to tell"
    worst = max(slowdowns, key=lambda change: change.ratio.middle)
    size = formatting.percent(worst.ratio.middle)
    since = f"{size} {worst.word} since {formatting.day(worst.point.date_s)}"
    if not any(map(site.is_slower, slowdowns)):
        since += ", within the gate's limit"
    # Nobody can tell whether a slowdown is still there once the machine or the versions changed.
    return since if history.open else f"{since}, until machine or versions changed"
