"""Read what the suites publish: the rows of every CSV file, and the raw samples behind the ratios.

`ci.site.model` calls it.
"""

import csv
import io
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ci.site.formatting import hardware
from perfgate.files import DAMAGE, array, integer, number, read_json, read_text, table, text

MeasuredRow = dict[str, str]
PUBLISHED = "published"  # the folder of results that are committed
_NEEDED = {"suite", "library", "env", "num_envs", "steps_per_s", "status", "commit", "timestamp"}
_OPTIONAL = ("library_version", "steps_per_s_low", "steps_per_s_high", "compile_s", "reason")
_NO_AGENT = "random"  # of a row that names no agent
_MOST_ENVS = 10**15
_SLOWEST = 1e-30  # steps/s: a chart's logarithm needs more than 0
_SHORTEST_S = 1e-12


@dataclass(frozen=True)
class OtherTable:
    """A CSV file with other columns, which the site shows unchanged."""

    name: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class LibrarySamples:
    """What one library did in an alternation: a rate per round, None where the round failed."""

    library: str
    library_version: str
    env: str
    agent: str
    workload: str
    num_envs: int
    recorded: bool
    status: str
    reason: str
    device: str
    hardware: str
    jax_version: str
    rates: Sequence[float | None]
    compile_s: float


@dataclass(frozen=True)
class SuiteRun:
    """One run of a suite's command.

    Attributes:
        command: what measured it, without the folder that it wrote to.
        commit: of the newest row beside the samples, as is the time.
        alternations: of libraries that were called in turn.
    """

    command: str
    commit: str
    measured: datetime | None
    file: str
    alternations: Sequence[Sequence[LibrarySamples]]

    @property
    def name(self) -> str:
        """The name of its file without what all files of samples end in."""
        return self.file.partition(".")[0].removesuffix("_samples")

    def again(self, num_envs: int, library: str = "") -> str:
        """Return the commands that measure a run again.

        Of a comparison at every size, they measure this size alone, beside this library if given.
        """
        is_known = self.commit and not self.commit.endswith("-dirty")
        checkout = f"git checkout {self.commit[:8]} && " if is_known else ""
        command = self.command
        if "/comparison.py" in command and " --full" in command:
            command = command.replace(" --full", f" --num-envs {num_envs}")
            command += f" --library {shlex.quote(library)}" if library else ""
        return checkout + command


@dataclass(frozen=True)
class Measurements:
    """All that the folders of CSV files hold."""

    rows: Sequence[MeasuredRow]
    runs: Sequence[SuiteRun]
    tables: Sequence[OtherTable]
    files: Sequence[Path]
    unreadable: Sequence[str] = ()

    @property
    def libraries(self) -> set[str]:
        """The libraries that the files name."""
        of_runs = {
            samples.library
            for run in self.runs
            for alternation in run.alternations
            for samples in alternation
        }
        return of_runs | {row["library"] for row in self.rows}


NOTHING = Measurements((), (), (), ())


def read_measurements(folders: Sequence[Path]) -> Measurements:
    """Return what the folders hold. Missing folders are left out.

    A damaged file is left out whole, and named in `unreadable`. So is a published file that was
    measured on uncommitted changes, because nobody can repeat it.
    """
    rows: list[MeasuredRow] = []
    tables: list[OtherTable] = []
    runs: list[SuiteRun] = []
    files: list[Path] = []
    unreadable: list[str] = []
    found_files = [path for folder in folders for path in sorted(folder.glob("*"))]
    for path in found_files:
        if path.suffix not in {".csv", ".json"}:
            continue
        try:
            if path.suffix == ".csv":
                headers, found = _read_csv(path)
                _require_committed(path, *(row.get("commit", "") for row in found))
                if set(headers) >= _NEEDED:
                    rows += [_measured(row) for row in found]
                elif headers:
                    cells = [[row[name] for name in headers] for row in found]
                    tables.append(OtherTable(path.stem, headers, cells))
            elif path.stem.endswith("_samples"):
                run = _read_run(path)
                _require_committed(path, run.commit)
                runs.append(run)
            else:
                read_json(path)
        except (*DAMAGE, csv.Error):
            unreadable.append(f"{path.parent.name}/{path.name}")
        else:
            files.append(path)
    return Measurements(rows, runs, tables, files, unreadable)


def measured_at(run: SuiteRun) -> datetime:
    """Return when a run was measured. An undated one comes before all others."""
    return run.measured or datetime.min.replace(tzinfo=UTC)


def when(timestamp: str) -> datetime | None:
    """Read a row's timestamp."""
    try:
        return datetime.strptime(timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def _read_csv(path: Path) -> tuple[list[str], list[MeasuredRow]]:
    reader = csv.DictReader(io.StringIO(text(read_text(path)), newline=""))
    rows = list(reader)
    if rows and not _is_whole(rows[-1]):
        rows.pop()  # a run that was killed leaves half a line at the end
    if not all(_is_whole(row) for row in rows):
        raise ValueError(f"a line of {path} has too many or too few cells")
    return list(reader.fieldnames or ()), rows


def _require_committed(path: Path, *commits: str) -> None:
    if path.parent.name == PUBLISHED and any(each.endswith("-dirty") for each in commits):
        raise ValueError(f"{path} was measured on uncommitted changes")


def _is_whole(row: MeasuredRow) -> bool:
    return None not in row.values() and None not in row


def _measured(row: MeasuredRow) -> MeasuredRow:
    """Return a row that has every column, and whose numbers are numbers."""
    row = dict.fromkeys(_OPTIONAL, "") | {"agent": _NO_AGENT} | row
    if row["num_envs"]:  # a column that doesn't apply is empty
        integer(int(row["num_envs"]), 1, _MOST_ENVS)
    hardware(row)
    rates = [row[f"steps_per_s{end}"] for end in ("", "_low", "_high")]
    for rate in rates:
        if rate or (row["status"] == "ok" and rate is rates[0]):
            number(float(rate), _SLOWEST)
    for name in ("compile_s", "peak_bytes"):
        if row.get(name):
            number(float(row[name]), 0)
    return row


def _read_run(path: Path) -> SuiteRun:
    found = read_json(path)
    alternations = []
    for group in map(table, array(found["alternations"])):
        outcomes = [each for each in group.values() if isinstance(each, dict)]
        # A suite may write other kinds of groups too, which the site doesn't draw.
        if any({"hello", "prepared"} & each.keys() for each in outcomes):
            alternations.append([_samples(outcome) for outcome in group.values()])
    try:
        rows = _read_csv(path.with_name(path.stem.removesuffix("_samples") + ".csv"))[1]
    except (*DAMAGE, csv.Error):
        rows = []
    newest = max(rows, key=lambda row: row.get("timestamp", ""), default={})
    # the folder of the output belongs to the machine that ran it
    command = re.sub(r" --output[ =]\S+", "", text(found.get("command", "")))
    return SuiteRun(
        command=command,
        commit=newest.get("commit", ""),
        measured=when(newest.get("timestamp", "")),
        file=path.name,
        alternations=alternations,
    )


def _samples(outcome: dict[str, Any]) -> LibrarySamples:
    case = outcome["case"]
    hello = table(outcome["hello"])
    prepared = table(outcome["prepared"])
    workload = case["workload"]
    num_envs = integer(workload["num_envs"], 1, _MOST_ENVS)
    steps = num_envs * number(prepared.get("num_steps", 0), 0)
    return LibrarySamples(
        library=text(case["side"]),
        library_version=text(hello.get("library_version", "")),
        env=text(workload["env"]),
        agent=text(workload.get("agent") or _NO_AGENT),
        workload=text(workload["name"]),
        num_envs=num_envs,
        recorded=bool(case.get("record")),
        status=text(outcome["status"]),
        reason=text(outcome.get("reason", "")),
        device=text(hello.get("hardware", {}).get("device_kind", "")) or "cpu",
        hardware=text(hardware(hello.get("hardware", {}))),
        jax_version=text(hello.get("versions", {}).get("jax", "")),
        rates=[seconds and steps / number(seconds, _SHORTEST_S) for seconds in outcome["seconds"]],
        compile_s=number(prepared.get("compile_s") or 0.0, 0),
    )
