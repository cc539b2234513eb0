"""What the pages know: the measurements, the history of every benchmark, and the project.

`read_site` reads a folder of results for `ci.site.pages` and `ci.site.data_files`.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path

from ci.site.annotations import (
    NAME,
    Annotation,
    causes_by_commit,
    read_annotations,
    without_place,
)
from ci.site.formatting import hardware, natural, slugs
from ci.site.measurements import (
    NOTHING,
    PUBLISHED,
    MeasuredRow,
    Measurements,
    read_measurements,
)
from ci.site.parts import FailedPart, read_failed_parts
from ci.site.project import Project, read_project
from ci.site.ratios import RatioTable, ratio_tables
from ci.site.studies import Study, read_studies
from perfgate.config import Accepted, read_accepted
from perfgate.errors import UsageError
from perfgate.history.asv_results import (
    CONFIG,
    Archive,
    read_archive,
    results_dir,
)
from perfgate.history.benchmark_history import BenchmarkHistory, LevelChange, histories, worst_first
from perfgate.source.git import git

# the suites whose rows measure one program at many sizes
_SCALING_SUITES = {"throughput", "comparison"}
_MOST_BEHIND = 20  # commits since the newest measured one; with more, nothing is said about now


@dataclass(frozen=True)
class Site:
    """Everything that the pages are made from.

    `own` holds the runs that nobody published, which have a page of their own. `unreadable` names
    the damaged files, which were left out. `ages` counts the commits of the measured code since a
    commit, where git knows it.
    """

    built: datetime
    measurements: Measurements
    own: Measurements
    archive: Archive
    histories: Sequence[BenchmarkHistory]
    project: Project
    accepted: Sequence[Accepted] = ()
    annotations: Sequence[Annotation] = ()
    studies: Sequence[Study] = ()
    failed_parts: Sequence[FailedPart] = ()
    unreadable: Sequence[str] = ()
    ages: Mapping[str, int] = field(default_factory=dict)

    @property
    def of_own_runs(self) -> "Site":
        """The same site with the runs that nobody published in the place of the others."""
        return replace(self, measurements=self.own)

    @property
    def commits_behind(self) -> int:
        """The commits of the branch since the newest measured one, if those are too many."""
        main = self.archive.main
        newest = self.archive.commits[-1].hash if self.archive.commits else ""
        behind = len(main) - 1 - main.index(newest) if newest in main else 0
        return behind if behind > _MOST_BEHIND else 0

    @cached_property
    def causes(self) -> dict[str, dict[str, list[str]]]:
        """Why a benchmark shifted, by its name and by the measured commit."""
        return {
            each.benchmark.name: causes_by_commit(self.annotations, each, self.archive)
            for each in self.histories
        }

    @property
    def misplaced(self) -> list[Annotation]:
        """The annotations that fit no commit or no benchmark of the history."""
        return without_place(self.annotations, self.histories, self.archive)

    @cached_property
    def ratio_tables(self) -> list[RatioTable]:
        """The ratios of each run, the table with the most libraries first."""
        return ratio_tables(self.measurements.runs, self.project)

    @property
    def changes(self) -> list[LevelChange]:
        """Every change of level, the largest first."""
        return worst_first([change for each in self.histories for change in each.changes])

    @property
    def open(self) -> list[LevelChange]:
        """The slowdowns that are still there, the worst first."""
        return worst_first([change for each in self.histories for change in each.open])

    @property
    def cut_off(self) -> list[LevelChange]:
        """The slowdowns that were still there when machine or versions changed, the worst first."""
        return worst_first([change for each in self.histories for change in each.cut_off])

    @cached_property
    def slugs(self) -> dict[str, str]:
        """The file name of each benchmark's page."""
        return slugs(history.benchmark.name for history in self.histories)

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each commit in main's order."""
        return {commit.hash: place for place, commit in enumerate(self.archive.commits)}

    @cached_property
    def scaling_rows(self) -> dict[tuple[str, str], list[MeasuredRow]]:
        """The rows of the scaling chart of each environment and agent, the oldest first.

        A run may measure a library twice at a size. The first time it stands beside all others.
        """
        rows = [
            row
            for row in self.measurements.rows
            if row["suite"] in _SCALING_SUITES
            and row["status"] == "ok"
            and row["num_envs"]
            and not row.get("arm")
        ]
        first: dict[tuple[str, ...], MeasuredRow] = {}
        for row in sorted(rows, key=lambda row: row["timestamp"]):
            key = (row[name] for name in ("timestamp", "env", "agent", "library", "num_envs"))
            first.setdefault((*key, hardware(row)), row)
        charts: dict[tuple[str, str], list[MeasuredRow]] = {}
        for row in first.values():
            charts.setdefault((row["env"], row["agent"]), []).append(row)
        return charts

    @property
    def envs(self) -> list[str]:
        """The environments that have a scaling chart."""
        return list(dict.fromkeys(env for env, _ in self.scaling_rows))


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
    studies, unreadable_studies = read_studies([results / "tuning", results / PUBLISHED])
    failed_parts, unreadable_parts = read_failed_parts(results / "csv" / "parts")
    return Site(
        built=built,
        measurements=measurements,
        own=own,
        archive=archive,
        histories=sorted(histories(archive), key=lambda each: natural(each.benchmark.name)),
        project=project,
        accepted=read_accepted(accepted),
        annotations=read_annotations(results / PUBLISHED / NAME),
        studies=studies,
        failed_parts=failed_parts,
        unreadable=[
            *unreadable,
            *archive.unreadable,
            *unreadable_studies,
            *unreadable_parts,
        ],
        ages=_ages([*measurements.rows, *own.rows], repository, project.code),
    )


def _ages(rows: Sequence[MeasuredRow], repository: Path, code: str) -> dict[str, int]:
    found = {}
    for commit in {row["commit"] for row in rows} - {""}:
        since = f"{commit.removesuffix('-dirty')}..HEAD"
        with contextlib.suppress(UsageError):  # this clone may lack the commit
            found[commit] = int(
                git("rev-list", "--count", "--end-of-options", since, "--", code, cwd=repository)
            )
    return found
