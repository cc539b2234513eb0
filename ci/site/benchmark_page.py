"""What the page of one benchmark shows, and its row in the list. `ci.site.pages` calls it."""

import statistics
from collections.abc import Sequence
from typing import Any

from ci.site import formatting as wording
from ci.site.drawing import history_svg, sparkline
from perfgate.history.levels import BenchmarkHistory, Stretch
from ci.site.model import Entry


def benchmark_page(entry: Entry, same_workload: Sequence[Entry]) -> dict[str, Any]:
    """Return the context of a benchmark's page; `same_workload` are the benchmarks with the same parameters."""
    history, benchmark = entry.history, entry.benchmark
    context: dict[str, Any] = {
        "entry": entry,
        "b": benchmark,
        "history": history,
        "now": _now(entry),
        "state": _state(history),
        "declared": bool(entry.measured),
        "meaning": benchmark.meaning or _meaning(entry),
        "companions": [_companion(other) for other in same_workload if _tracks_program(other, entry)],
        "programs": _newest_sides(entry),
        "runs": list({run.file: (run, side.hardware) for run, side in entry.measured}.values()),
    }
    if history:
        places = {id(point): place for place, point in enumerate(history.points)}
        changes = [places[id(change.point)] for change in history.changes]
        firsts = [places[id(stretch.segments[0].points[0])] for stretch in history.stretches]
        title = f"{benchmark.name}: {len(history.points)} measurements, {len(changes)} changes of level"
        context["svg"] = history_svg([p.value for p in history.points], changes, sorted(firsts)[1:], title)
        context["levels"] = _levels(history)
        context["recent"] = list(reversed(history.points[-30:]))
    return context


def _meaning(entry: Entry) -> str:
    if not entry.measured:
        return ""
    side = entry.measured[0][1]
    return f"Environment steps per second of {side.env} with {side.num_envs:,} environments side by side."


def _tracks_program(other: Entry, of: Entry) -> bool:
    """Tell whether `other` follows the same workload in another unit than time."""
    same = bool(of.benchmark.parameters) and other.history is not None
    return same and other is not of and other.benchmark.unit != "seconds"


def _companion(entry: Entry) -> dict[str, Any]:
    values = [point.value for point in entry.history.points] if entry.history else []
    spark = sparkline(values, width=720, height=56, max_points=240)
    return {"slug": entry.slug, "function": entry.benchmark.function, "now": _now(entry), "spark": spark}


def _newest_sides(entry: Entry) -> list[Any]:
    newest: dict[tuple[str, bool], Any] = {}
    for run, side in reversed(entry.measured):  # they come newest first
        newest[side.library, side.recorded] = (run, side)
    return [newest[key] for key in sorted(newest, key=lambda key: (not key[0].startswith("myriad"), key))]


def _levels(history: BenchmarkHistory) -> list[dict[str, Any]]:
    changes = {id(change.point): change for change in history.changes}
    rows = [
        {
            "first": segment.points[0],
            "count": len(segment.points),
            "middle": segment.middle,
            "setup": stretch.setup,
            "change": changes.get(id(segment.points[0])),
            "marker": _marker(history.stretches[:place], stretch) if segment is stretch.segments[0] else "",
        }
        for place, stretch in enumerate(history.stretches)
        for segment in stretch.segments
    ]
    return sorted(rows, key=lambda row: row["first"].date_s)


def _marker(earlier: Sequence[Stretch], stretch: Stretch) -> str:
    """Say what is new in a stretch's setup."""
    if not earlier:
        return ""
    before = next((old.setup for old in reversed(earlier) if old.setup.machine == stretch.setup.machine), None)
    if before is None:
        return "another machine"
    return "other versions" if before.versions != stretch.setup.versions else "another benchmark"


def listed(entry: Entry) -> dict[str, Any]:
    """Return a benchmark's row in the list."""
    history = entry.history
    last = max(history.changes, key=lambda change: change.point.date_s, default=None) if history else None
    return {
        "slug": entry.slug,
        "name": entry.benchmark.name,
        "value": history.points[-1].value if history else 0,
        "now": _now(entry),
        "count": len(history.points) if history else 0,
        "spark": sparkline([point.value for point in history.points]) if history else "",
        "change": last,
        "open": bool(history and history.open),
        "state": _state(history),
    }


def _now(entry: Entry) -> str:
    """Write the newest value: of main's history, or else our own rate in the newest comparison."""
    if entry.history:
        return wording.quantity(entry.history.points[-1].value, entry.benchmark.unit)
    ours = [side for _, side in entry.measured if side.library == "myriad"]
    if not ours:
        return wording.NOT_MEASURED
    # the newest without a trajectory, if there is one
    side = min(ours, key=lambda side: side.recorded)
    return f"{median_rate(side.rates)} steps/s{', trajectory written' if side.recorded else ''}"


def _state(history: BenchmarkHistory | None) -> str:
    if history is None:
        return f"history {wording.NOT_MEASURED}"
    standing = history.open or history.cut_off
    if not standing:
        return "no slowdown"
    worst = max(standing, key=lambda change: change.ratio.middle)
    since = f"{wording.percent(worst.ratio.middle)} {worst.word} since {wording.day(worst.point.date_s)}"
    return since if history.open else f"{since}, until machine or versions changed"


def median_rate(rates: Sequence[float | None]) -> str:
    """Write the median of a side's rates."""
    measured = [rate for rate in rates if rate]
    return wording.rate(statistics.median(measured)) if measured else ""
