"""What the page of one benchmark shows, and its row in the list. `ci.site.pages` calls it."""

from collections.abc import Sequence
from typing import Any

from ci.site import formatting
from ci.site.charts import history_svg, sparkline
from ci.site.measurements import LibrarySamples, SuiteRun
from ci.site.model import Entry, Site
from ci.site.project import Project
from perfgate.history.levels import BenchmarkHistory, Stretch


def benchmark_page(entry: Entry, same_workload: Sequence[Entry], site: Site) -> dict[str, Any]:
    """Return the context of a benchmark's page.

    Args:
        entry: the benchmark.
        same_workload: the benchmarks with the same parameters.
        site: what is known of all of them.
    """
    history = entry.history
    project = site.project
    meaning = entry.benchmark.meaning
    if entry.measured and not meaning:
        samples = entry.measured[0][1]
        environments = formatting.counted(samples.num_envs, "environment")
        meaning = f"Environment steps per second of {samples.env} with {environments} side by side."
    # What else was tracked of the same workload, such as bytes and instructions.
    companions = [
        {
            "slug": other.slug,
            "function": other.benchmark.function,
            "now": _now(other, project),
            "spark": sparkline(_values(other.history), width=720, height=56, max_points=240),
        }
        for other in same_workload
        if other is not entry
        and other.benchmark.parameters
        and other.history
        and other.benchmark.unit != "seconds"
    ]
    context: dict[str, Any] = {
        "entry": entry,
        "b": entry.benchmark,
        "history": history,
        "now": _now(entry, project),
        "state": _state(history),
        "meaning": meaning,
        "companions": companions,
        "programs": _newest_samples(entry, project),
        "runs": list(
            {run.file: (run, samples.hardware) for run, samples in entry.measured}.values()
        ),
    }
    if history:
        causes = site.causes[entry.benchmark.name]
        # Two machines may have measured the same commit.
        points = {point.commit: point for point in reversed(history.points)}
        context |= {
            "svg": history_svg(history),
            "levels": _levels(history),
            "causes": [
                (points[commit], causes[commit]) for commit in site.places if commit in causes
            ],
            "recent": list(reversed(history.points[-30:])),
        }
    return context


def _values(history: BenchmarkHistory | None) -> list[float]:
    return [point.value for point in history.points] if history else []


def _newest_samples(entry: Entry, project: Project) -> list[tuple[SuiteRun, LibrarySamples]]:
    """Return the newest samples of each library, ours first."""
    newest: dict[tuple[str, bool], tuple[SuiteRun, LibrarySamples]] = {}
    for run, samples in reversed(entry.measured):  # the newest come first
        newest[samples.library, samples.recorded] = (run, samples)
    ordered = sorted(newest, key=lambda key: (not project.is_ours(key[0]), key))
    return [newest[key] for key in ordered]


def _levels(history: BenchmarkHistory) -> list[dict[str, Any]]:
    changes = {id(change.point): change for change in history.changes}
    rows = [
        {
            "first": segment.points[0],
            "count": len(segment.points),
            "middle": segment.middle,
            "setup": stretch.setup,
            "change": changes.get(id(segment.points[0])),
            "marker": _marker(history.stretches[:place], stretch)
            if segment is stretch.segments[0]
            else "",  # where several processors took turns, one of them has the change
        }
        for place, stretch in enumerate(history.stretches)
        for segment in stretch.segments
    ]
    return sorted(rows, key=lambda row: row["first"].date_s)


def _marker(earlier: Sequence[Stretch], stretch: Stretch) -> str:
    """Say what is new about the stretch's setup."""
    if not earlier:
        return "first"
    before = next(
        (old.setup for old in reversed(earlier) if old.setup.machine == stretch.setup.machine), None
    )
    if before is None:
        return "another machine"
    return "other versions" if before.versions != stretch.setup.versions else "another benchmark"


def listed(entry: Entry, site: Site) -> dict[str, Any]:
    """Return a benchmark's row in the list."""
    name = entry.benchmark.name
    history = entry.history
    values = _values(history)
    changes = history.changes if history else ()
    last = max(changes, key=lambda change: change.point.date_s, default=None)
    return {
        "slug": entry.slug,
        "name": name,
        "now": _now(entry, site.project),
        "state": _state(history),
        "value": values[-1] if values else 0,
        "count": len(values),
        "spark": sparkline(values),
        "change": last,
        "causes": site.causes[name].get(last.point.commit, []) if last else [],
        "open": bool(history and history.open),
    }


def _now(entry: Entry, project: Project) -> str:
    """Write the newest value on main, or else our newest rate in a comparison."""
    if entry.history:
        return formatting.quantity(entry.history.points[-1].value, entry.benchmark.unit)
    ours = [samples for _, samples in entry.measured if samples.library == project.ours]
    if not ours:
        return formatting.NOT_MEASURED
    # the newest that writes no trajectory, if there is one
    samples = min(ours, key=lambda samples: samples.recorded)
    suffix = ", trajectory written" if samples.recorded else ""
    return f"{formatting.median_rate(samples.rates)} steps/s{suffix}"


def _state(history: BenchmarkHistory | None) -> str:
    if history is None:
        return f"history {formatting.NOT_MEASURED}"
    slowdowns = history.open or history.cut_off
    if not slowdowns:
        return "no slowdown" if history.can_tell else "too few commits to tell"
    worst = max(slowdowns, key=lambda change: change.ratio.middle)
    size = formatting.percent(worst.ratio.middle)
    since = f"{size} {worst.word} since {formatting.day(worst.point.date_s)}"
    # Nobody can tell whether a slowdown is still there once the machine or the versions changed.
    return since if history.open else f"{since}, until machine or versions changed"
