"""`perfgate history`: prints the change points of main's history.

Change points show slow drifts and steps that no single pull request showed. A new machine, new
versions or a changed benchmark starts a new series. Only points of one series are compared. A
hosted machine may have another processor on each night. Each processor is then compared with itself
alone, and what they show is put together. A level that moves where no commit can have moved it is
the machine's, and no change. In asv lower is always better, so a ratio above 1 is a slowdown.
"""

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfgate.errors import UsageError
from perfgate.history.asv_results import (
    CONFIG,
    Archive,
    Point,
    RecordedBenchmark,
    Setup,
    read_archive,
    results_dir,
)
from perfgate.history.shifts import find_shifts, without_machine
from perfgate.options import Parser, add_suite_config, guarded
from perfgate.stats.change_points import (
    MIN_EFFECT,
    MIN_SEGMENT,
    Ratio,
    change_points,
    on_one_scale,
    ratio_between,
)

_FEW = 3  # benchmarks in seconds, and as many in bytes, that one change of code seldom moves alike
# The points of a level on any processor, each with its value on the scale of one machine.
_Level = Sequence[tuple[Point, float]]


@dataclass(frozen=True)
class Segment:
    """Points of one setup on one level."""

    points: Sequence[Point]
    middle: float


@dataclass(frozen=True)
class LevelChange:
    """A change of level. `ratio` is new over old, `point` the first point of the new level."""

    benchmark: RecordedBenchmark
    previous: Point
    point: Point
    ratio: Ratio

    @property
    def word(self) -> str:
        """Return the word for the change, which depends on the benchmark's unit."""
        words = {"seconds": ("slower", "faster"), "bytes": ("larger", "smaller")}
        return words.get(self.benchmark.unit, ("higher", "lower"))[self.ratio.middle < 1]


@dataclass(frozen=True)
class SetupHistory:
    """The levels of one setup."""

    setup: Setup
    segments: Sequence[Segment]


@dataclass(frozen=True)
class BenchmarkHistory:
    """A benchmark over main's commits: the levels of each setup, and the changes within each.

    `open` holds the slowdowns that still last. Each compares the newest level with the best one of
    its setup, so that several small steps count as one. `cut_off` holds slowdowns that lasted until
    the machine or the versions changed, because nobody can tell whether these still last.
    """

    benchmark: RecordedBenchmark
    points: Sequence[Point]
    stretches: Sequence[SetupHistory]
    changes: Sequence[LevelChange]
    open: Sequence[LevelChange]
    cut_off: Sequence[LevelChange]

    def without(self, commits: Collection[str]) -> "BenchmarkHistory":
        """Return the history without what changed at the commits."""
        all_of = {name: getattr(self, name) for name in ("changes", "open", "cut_off")}
        kept = {k: [x for x in v if x.point.commit not in commits] for k, v in all_of.items()}
        return replace(self, **kept)

    @property
    def can_tell(self) -> bool:
        """Whether as many commits as make a level were measured as the newest one was."""
        newest = self.points[-1].setup
        return sum(point.setup.series == newest.series for point in self.points) >= MIN_SEGMENT

    @property
    def scatter(self) -> float:
        """Noise of a measurement as a share of its level: a robust standard deviation."""
        levels = [level for each in self.stretches for level in each.segments if level.middle]
        away = [abs(point.value / level.middle - 1) for level in levels for point in level.points]
        return 1.4826 * statistics.median(away) if away else 0.0


def history_of(
    benchmark: RecordedBenchmark, points: Sequence[Point], archive: Archive
) -> BenchmarkHistory:
    """Find the levels of one benchmark, whose `points` are in the order of the commits."""
    series: dict[tuple[str, ...], list[Point]] = {}
    for point in points:
        series.setdefault(point.setup.series, []).append(point)
    by_level = [_levels(those, archive) for those in series.values()]
    segments: dict[Setup, list[Segment]] = {}
    for level in itertools.chain.from_iterable(by_level):
        # A level that goes on where the machine moved has a segment on each side.
        for setup, scale in dict.fromkeys((point.setup, point.scale) for point, _ in level):
            own = [point for point, _ in level if (point.setup, point.scale) == (setup, scale)]
            middle = statistics.median(point.value for point in own)
            segments.setdefault(setup, []).append(Segment(own, middle))
    changes = [
        LevelChange(benchmark, before[-1][0], after[0][0], ratio)
        for levels in by_level
        for before, after in itertools.pairwise(levels)
        if (ratio := _ratio(before, after))
        and not archive.is_idle(before[-1][0].commit, after[0][0].commit)
    ]
    # The setups of the newest commits show the branch as it is now. The setups before them show
    # slowdowns that may still be there.
    current = _newest_setups(points)
    before = _newest_setups([point for point in points if point.setup not in current])
    still_open, cut_off = (
        [found for levels in by_level if (found := _open(benchmark, archive, levels, setups))]
        for setups in (current, before)
    )
    by_setup = [SetupHistory(*each) for each in segments.items()]
    return BenchmarkHistory(benchmark, points, by_setup, changes, still_open, cut_off)


def _newest_setups(points: Sequence[Point]) -> set[Setup]:
    """Return the setups of the newest commits, each of which may have results of several."""
    commits = list(dict.fromkeys(point.commit for point in points))[-2 * MIN_SEGMENT :]
    return {point.setup for point in points if point.commit in commits}


def histories(archive: Archive) -> tuple[list[BenchmarkHistory], list[str]]:
    """Return the history of every benchmark, by name, and what to say of all of them.

    Code seldom moves the seconds and the bytes of every benchmark at one commit. A machine that was
    installed anew does, so such a commit is said once and is a change of no benchmark.
    """
    shifts = find_shifts(archive)
    found = [
        history_of(archive.benchmarks[name], without_machine(archive, name, shifts), archive)
        for name in sorted(archive.points)
    ]
    moving = [each for each in found if each.changes]
    measured = [{point.commit for point in each.points} for each in moving]
    moved = [{change.point.commit for change in each.changes} for each in moving]
    everywhere: dict[str, str] = {}
    for commit in dict.fromkeys(change.point.commit for each in found for change in each.changes):
        units = [x.benchmark.unit for x, own in zip(moving, measured, strict=True) if commit in own]
        have_moved = len(units) == sum(commit in own for own in moved)
        if have_moved and min(units.count("seconds"), units.count("bytes")) >= _FEW:
            everywhere[commit] = (
                f"All {len(units)} benchmarks that ever moved did so at {commit[:10]}, in seconds "
                "and in bytes: the machine, what is installed on it, or a dependency."
            )
    sentences = [*(shift.sentence for shift in shifts), *everywhere.values()]
    return [each.without(everywhere.keys()) for each in found], sentences


def _levels(points: Sequence[Point], archive: Archive) -> list[_Level]:
    values = [point.value / point.scale for point in points]
    if min(values) > 0:
        values = on_one_scale(values, [point.setup for point in points])
    is_idle = [
        archive.is_idle(before.commit, after.commit) for before, after in itertools.pairwise(points)
    ]
    measured = list(zip(points, values, strict=True))
    bounds = [0, *change_points(values, [False, *is_idle]), len(values)]
    while len(bounds) > 2:
        ratios = [
            _ratio(measured[a:b], measured[b:c])
            for a, b, c in zip(bounds, bounds[1:], bounds[2:], strict=False)
        ]
        effects = [  # 0 where nobody can tell that the ratio isn't 1
            0.0 if each is None or each.low <= 1 <= each.high else abs(math.log(each.middle))
            for each in ratios
        ]
        least = min(range(len(effects)), key=effects.__getitem__)
        if effects[least] >= math.log(MIN_EFFECT):
            break
        del bounds[least + 1]
    return [measured[a:b] for a, b in itertools.pairwise(bounds)]


def _ratio(before: _Level, after: _Level) -> Ratio | None:
    """Return the ratio that the processors show that measured both, None if they are too few."""
    both = {point.setup for point, _ in before} & {point.setup for point, _ in after}
    compared = [
        [value for point, value in level if point.setup in both] for level in (before, after)
    ]
    if any(len(values) < MIN_SEGMENT or min(values) <= 0 for values in compared):
        return None  # a track_ benchmark may be 0, which has no ratio
    return ratio_between(*compared)


def _open(
    benchmark: RecordedBenchmark, archive: Archive, levels: Sequence[_Level], setups: set[Setup]
) -> LevelChange | None:
    """Return the slowdown from the best level to the last one, as some setups show it."""
    shown = [[each for each in level if each[0].setup in setups] for level in levels]
    shown = [level for level in shown if level]
    found = [
        LevelChange(benchmark, level[-1][0], worse[0][0], ratio)
        for level, worse in itertools.pairwise(shown)
        if (ratio := _ratio(level, shown[-1]))
        and ratio.low >= MIN_EFFECT
        and not archive.is_idle(level[-1][0].commit, worse[0][0].commit)
    ]
    return max(found, key=lambda change: change.ratio.middle, default=None)


def worst_first(changes: Sequence[LevelChange]) -> list[LevelChange]:
    """Sort by the size of the change, slowdowns before speedups of the same size."""
    return sorted(
        changes, key=lambda change: (-abs(math.log(change.ratio.middle)), -change.ratio.middle)
    )


def main(argv: Sequence[str]) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return guarded(lambda: _print_changes(_parse(argv)), "stopped")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        "perfgate history", "Print when main became slower or faster, from the results of asv run."
    )
    add_suite_config(parser)
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="folder of the results (default: results_dir of the configuration)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(argv)


def _print_changes(options: argparse.Namespace) -> int:
    """Print the change points. They don't affect the exit code."""
    if options.results is not None and not options.results.is_dir():
        raise UsageError(f"--results must name a folder, but {options.results} is none.")
    config: Path | None = options.suite_config if options.suite_config.is_file() else None
    if config is None and (options.results is None or options.suite_config != CONFIG):
        raise UsageError(
            f"there is no {options.suite_config}; name the suite's asv.conf.json with "
            "--suite-config."
        )
    folder = options.results or results_dir(options.suite_config)
    archive = read_archive(folder, config=config)
    found, sentences = histories(archive)
    by_name = {history.benchmark.name: history for history in found}
    changes = worst_first([change for history in found for change in history.changes])
    rows = [_row(change, by_name[change.benchmark.name]) for change in changes]
    if options.json:
        print(json.dumps(rows, indent=1))
    elif not archive.commits:
        print(
            f"not measured yet: {folder} has no results of {archive.branch}; run `asv run` first."
        )
    else:
        print(
            f"{len(found)} benchmarks, {len(archive.commits)} commits, {len(changes)} change points"
        )
        print(_table(rows))
    for sentence in [*archive.left_out, *sentences]:
        print(sentence, file=sys.stderr)
    for name in archive.unreadable:
        print(f"{name} can't be read and was left out", file=sys.stderr)
    return 0


def _belongs_to(change: LevelChange, standing: Sequence[LevelChange]) -> bool:
    """Tell whether a change for the worse is part of a slowdown that still lasts."""
    return change.ratio.middle > 1 and any(
        change.point.setup == whole.point.setup and change.point.date_s >= whole.point.date_s
        for whole in standing
    )


def _row(change: LevelChange, history: BenchmarkHistory) -> dict[str, Any]:
    return {
        "benchmark": change.benchmark.name,
        "commit": change.point.commit,
        "previous_commit": change.previous.commit,
        "ratio": round(change.ratio.middle, 4),
        "low": round(change.ratio.low, 4),
        "high": round(change.ratio.high, 4),
        "change": change.word,
        "since": datetime.fromtimestamp(change.point.date_s, UTC).date().isoformat(),
        "machine": change.point.setup.machine,
        "versions": change.point.setup.versions,
        "open": _belongs_to(change, history.open),
        "cut_off": _belongs_to(change, history.cut_off),
    }


def _table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [("benchmark", "commit", "since", "ratio (95% interval)", "", "machine, versions")]
    for row in rows:
        ratio = f"{row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
        change = row["change"]
        if row["open"]:
            change += ", still"
        elif row["cut_off"]:
            change += ", until the setup changed"
        setup = f"{row['machine']}, {row['versions']}"
        lines.append((row["benchmark"], row["commit"][:10], row["since"], ratio, change, setup))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
