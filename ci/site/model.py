"""What the pages know: the measurements, the history of every benchmark, and the project.

`read_site` reads a folder of results for `ci.site.pages` and `ci.site.data_files`.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path

from ci.site.comparisons import Comparison, comparisons
from ci.site.formatting import natural, slugs
from ci.site.measurements import NOTHING, PUBLISHED, Measurements, read_measurements
from ci.site.project import Project, read_project
from perfgate.config import WORSE, Rules, find_rules, read_rules
from perfgate.errors import UsageError
from perfgate.files import DAMAGE, read_json, text
from perfgate.history.asv_results import CONFIG, Archive, Setup, read_archive, results_dir
from perfgate.history.benchmark_history import (
    BenchmarkHistory,
    LevelChange,
    Segment,
    histories,
    worst_first,
)
from perfgate.source.git import git

_GATE = "ci/gate"
_MOST_BEHIND = 20  # commits since the newest measured one; with more, nothing is said about now


@dataclass(frozen=True)
class FailedPart:
    """A part of the last night that failed, so its figures are those of the day it succeeded."""

    name: str
    reason: str
    failed: datetime
    succeeded: datetime | None


@dataclass(frozen=True)
class Site:
    """Everything that the pages are made from; `rules` are those of the gate.

    `own` holds the runs that nobody published, which have a page of their own. `unreadable` names
    the damaged files, which were left out. `ages` counts the commits of the measured code since a
    commit, where git knows it. `gate_ages` has the day of a commit, and counts those of the gate.
    """

    built: datetime
    measurements: Measurements
    own: Measurements
    archive: Archive
    histories: Sequence[BenchmarkHistory]
    project: Project
    rules: Rules
    failed_parts: Sequence[FailedPart] = ()
    unreadable: Sequence[str] = ()
    ages: Mapping[str, int] = field(default_factory=dict)
    gate_ages: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def commits_behind(self) -> int:
        """The commits of the branch since the newest measured one, if those are too many."""
        main = self.archive.main
        newest = self.archive.commits[-1].hash if self.archive.commits else ""
        behind = len(main) - 1 - main.index(newest) if newest in main else 0
        return behind if behind > _MOST_BEHIND else 0

    @cached_property
    def slower(self) -> list[LevelChange]:
        """The slowdowns that last and that the gate would call one, the worst first."""
        lasting = (change for each in self.histories for change in each.open)
        return worst_first([change for change in lasting if self.is_slower(change)])

    def is_slower(self, change: LevelChange) -> bool:
        """Tell whether the gate's rule calls a change slower.

        The lower end of its interval, over the processes of both levels, must be above the limit of
        the benchmark's class. No history shows it, so it is a host's unless the rules say hot.
        """
        benchmark = change.benchmark
        kind = benchmark.function.rpartition(".")[2].partition("_")[0].lower()
        if kind.startswith("time"):
            is_hot = self.rules.is_hot(benchmark.name, seems=False)
            limits = self.rules.limits_of(benchmark.name, is_hot=is_hot)
            return change.ratio.low > limits.fail_ratio
        metric = {"peakmem": "peakmemory", "mem": "memory"}.get(kind, "track")
        rule = self.rules.rule_of(metric, benchmark.name, benchmark.unit)
        before = change.previous.value
        return rule.compare(before, before * change.ratio.low) == WORSE

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """What the rows compare, random actions with the most libraries first."""
        return comparisons(self.measurements.rows, self.project)

    @cached_property
    def slugs(self) -> dict[str, str]:
        """The file name of each benchmark's page."""
        return slugs(history.benchmark.name for history in self.histories)


def levels(history: BenchmarkHistory) -> list[tuple[Setup, Segment]]:
    """Return the levels of a history with what measured them, setup by setup."""
    return [(each.setup, segment) for each in history.stretches for segment in each.segments]


def read_site(results: Path, built: datetime, accepted: Path, repository: Path) -> Site:
    """Read a folder of results. The site leaves out what the folder lacks.

    Args:
        results: the folder.
        built: the time that the pages give as theirs.
        accepted: the file of accepted regressions.
        repository: the folder of the repository that was measured.

    Raises:
        UsageError: a file of the repository has a mistake.
    """
    own = read_measurements([results / "csv"])
    measurements = read_measurements([results / PUBLISHED])
    project = read_project(repository, measurements.libraries | own.libraries)
    unreadable = [*measurements.unreadable, *own.unreadable]
    if not measurements.rows:  # a repository that publishes nothing shows the runs that it has
        measurements, own = read_measurements([results / PUBLISHED, results / "csv"]), NOTHING
    config = repository / CONFIG if (repository / CONFIG).is_file() else None
    measured = results / "asv"
    if config and not measured.is_dir():
        measured = results_dir(config)
    archive = read_archive(measured, results / PUBLISHED / "asv", config=config)
    found, moved = histories(archive)
    archive.left_out.extend(moved)
    failed_parts = _read_failed_parts(results / "csv" / "parts", unreadable)
    return Site(
        built=built,
        measurements=measurements,
        own=own,
        archive=archive,
        histories=sorted(found, key=lambda each: natural(each.benchmark.name)),
        project=project,
        rules=read_rules(find_rules(repository)[0], accepted),
        failed_parts=failed_parts,
        unreadable=[*unreadable, *archive.unreadable],
        ages={
            commit: int(count)
            for commit in {row["commit"] for row in (*measurements.rows, *own.rows)} - {""}
            if (count := _since(commit, repository, project.code))
        },
        gate_ages={
            commit: (day, int(count))
            for commit in {cell for each in measurements.tables for cell in each.column("commit")}
            if (count := _since(commit, repository, _GATE))
            and (day := _git(repository, "log", "-1", "--format=%cs", "--end-of-options", commit))
        },
    )


def _read_failed_parts(folder: Path, unreadable: list[str]) -> list[FailedPart]:
    """Read how the parts of the last night ended, which `ci/part.sh` writes as `NAME.json`."""
    parts = []
    for path in sorted(folder.glob("*.json")):
        try:
            outcome = read_json(path)
            ended = datetime.fromisoformat(outcome["ended"])
            last = outcome["succeeded"]
            succeeded = datetime.fromisoformat(last) if last else None
            parts.append(FailedPart(text(path.stem), text(outcome["reason"]), ended, succeeded))
        except DAMAGE:
            unreadable.append(f"{folder.name}/{path.name}")
    return [part for part in parts if part.reason]


def _since(commit: str, repository: Path, code: str) -> str:
    """Return how many commits changed the code since, "" if this clone lacks the commit."""
    since = f"{commit.removesuffix('-dirty')}..HEAD"
    return _git(repository, "rev-list", "--count", "--end-of-options", since, "--", code)


def _git(repository: Path, *words: str) -> str:
    with contextlib.suppress(UsageError):
        return git(*words, cwd=repository)
    return ""
