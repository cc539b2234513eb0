"""Read what the suites publish: the rows of every CSV file, and the commands that measured them.

`ci.site.model` calls it.
"""

import csv
import io
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ci.site.formatting import hardware
from perfgate.files import DAMAGE, integer, number, read_json, read_text, table, text

MeasuredRow = dict[str, str]
# the suites whose rows measure one program at many sizes; the last one writes every step
SUITES_OF_RATES = ("throughput", "comparison", "trajectory")
PUBLISHED = "published"  # the folder of results that are committed
_NEEDED = {"suite", "library", "env", "num_envs", "steps_per_s", "status", "commit", "timestamp"}
_OPTIONAL = (
    *("library_version", "steps_per_s_low", "steps_per_s_high", "compile_s", "reason"),
    *("scan_chunk_size", "device", "jax_version", "argument_bytes", "temp_bytes", "peak_bytes"),
)
_BESIDE = "gymnax"  # which throughput.py measures beside ours at one size
_NO_AGENT = "random"  # of a row that names no agent
_MOST_ENVS = 10**15
_SLOWEST = 1e-30  # steps/s: a chart's logarithm needs more than 0


@dataclass(frozen=True)
class OtherTable:
    """A CSV file with other columns, which the site shows unchanged."""

    name: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]

    def column(self, name: str) -> list[str]:
        """Return the cells of a column, none if there is no such column."""
        return [row[self.headers.index(name)] for row in self.rows if name in self.headers]


@dataclass(frozen=True)
class SuiteRun:
    """One run of a suite's command.

    Attributes:
        command: what measured it, without the folder that it wrote to.
        file: the file of its raw samples.
    """

    command: str
    file: str

    def again(self, row: MeasuredRow, *, is_ours: bool = False) -> str:
        """Return the commands that measure a row again: if the suite can, this point alone."""
        commit = row["commit"]
        checkout = f"git checkout {commit[:8]} && " * bool(commit and not commit.endswith("-dirty"))
        whole, size = self.command, f" --num-envs {row['num_envs']}"
        if "/comparison.py" in whole and " --full" in whole:
            alone = re.sub(r" --library \S+", "", whole).replace(" --full", size)
            return f"{checkout}{alone} --library {shlex.quote(row['library'])}"
        alone = re.sub(" --(full|targets)(?= |$)", "", whole)
        if "/memory_profile.py --profile envs" in whole:
            return f"{checkout}{alone}{size}"
        if "/scan_chunk.py" in whole:
            return f"{checkout}{alone}{size} --scan-chunk-sizes {row['scan_chunk_size']}"
        is_measured = is_ours or row["library"] == _BESIDE
        if "/throughput.py" in whole and alone != whole and is_measured:
            return f"{checkout}{alone}{size} --scan-chunk-size {row['scan_chunk_size']}"
        return checkout + whole


@dataclass(frozen=True)
class Measurements:
    """All that the folders of CSV files hold; `runs` has that behind the rows of each `file`."""

    rows: Sequence[MeasuredRow]
    runs: Mapping[str, SuiteRun]
    tables: Sequence[OtherTable]
    files: Sequence[Path]
    unreadable: Sequence[str] = ()

    @property
    def libraries(self) -> set[str]:
        """The libraries that the files name."""
        return {row["library"] for row in self.rows}


NOTHING = Measurements((), {}, (), ())


def read_measurements(folders: Sequence[Path]) -> Measurements:
    """Return what the folders hold. Missing folders are left out.

    A damaged file is left out whole, and named in `unreadable`. So is a published file that was
    measured on uncommitted changes, because nobody can repeat it.
    """
    rows: list[MeasuredRow] = []
    tables: list[OtherTable] = []
    runs: dict[str, SuiteRun] = {}
    commits: dict[str, set[str]] = {}
    files: list[Path] = []
    unreadable: list[str] = []
    found_files = [path for folder in folders for path in sorted(folder.glob("*"))]
    for path in found_files:
        if path.suffix not in {".csv", ".json"}:
            continue
        try:
            if path.suffix == ".csv":
                headers, found = _read_csv(path)
                commits[path.stem] = {row.get("commit", "") for row in found}
                _require_committed(path, *commits[path.stem])
                if set(headers) >= _NEEDED:
                    rows += [_measured(row) | {"file": path.stem} for row in found]
                elif headers:
                    cells = [[row[name] for name in headers] for row in found]
                    tables.append(OtherTable(path.stem, headers, cells))
            elif path.stem.endswith("_samples"):
                name = path.stem.removesuffix("_samples")
                _require_committed(path, *commits.get(name, ()))
                # the folder of the output belongs to the machine that ran it
                said = text(table(read_json(path)).get("command", ""))
                runs[name] = SuiteRun(re.sub(r" --output[ =]\S+", "", said), path.name)
            else:
                read_json(path)
        except (*DAMAGE, csv.Error):
            unreadable.append(f"{path.parent.name}/{path.name}")
        else:
            files.append(path)
    return Measurements(rows, runs, tables, files, unreadable)


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
    needs_rate = row["status"] == "ok" and row["suite"] in SUITES_OF_RATES
    for end in ("", "_low", "_high"):
        if (rate := row[f"steps_per_s{end}"]) or (needs_rate and not end):
            number(float(rate), _SLOWEST)
    for name in ("compile_s", "argument_bytes", "temp_bytes", "peak_bytes"):
        if row[name]:
            number(float(row[name]), 0)
    return row
