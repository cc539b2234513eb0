"""The tidy table that every suite writes and every plot reads: a row per library and workload."""

import csv
import functools
import json
import math
import platform
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.harness.alternation import Budget, Outcome
from benchmarks.harness.process import ROOT
from benchmarks.harness.registry import OURS, library_of

COLUMNS: tuple[str, ...] = (
    *("suite", "library", "library_version", "env", "agent", "arm"),
    *("num_envs", "scan_chunk_size", "num_steps", "devices", "processes"),
    *("device", "device_name", "cores", "memory_total_bytes"),
    *("steps_per_s", "steps_per_s_low", "steps_per_s_high", "run_s", "samples", "compile_s"),
    *("ratio", "ratio_low", "ratio_high"),
    *("efficiency", "efficiency_low", "efficiency_high"),
    *("argument_bytes", "temp_bytes", "peak_bytes"),
    *("status", "reason"),
    *("package_version", "commit", "jax_version", "jaxlib_version", "numpy_version"),
    *("python_version", "timestamp"),
)
NUMBERS: tuple[str, ...] = (
    *("num_envs", "scan_chunk_size", "num_steps", "devices", "processes", "memory_total_bytes"),
    *("steps_per_s", "steps_per_s_low", "steps_per_s_high", "run_s", "samples", "compile_s"),
    *("ratio", "ratio_low", "ratio_high", "efficiency", "efficiency_low", "efficiency_high"),
    *("argument_bytes", "temp_bytes", "peak_bytes"),
)
# The columns that every version of the table has had. Older files may lack the other columns.
_NEEDED: tuple[str, ...] = (
    *("agent", "env", "library", "num_envs", "status", "steps_per_s", "suite", "timestamp"),
)

CSV_FOLDER = ROOT / "results" / "csv"
PLOTS_FOLDER = ROOT / "results" / "plots"
LEAST_SAMPLES = Budget.min_rounds  # the fewest samples whose median has a 95% interval

Row = dict[str, Any]


def machine_columns() -> Row:
    """Return the columns for this process's machine and versions. This starts JAX's backend."""
    # Imported inside the function, because asv imports the suites even on commits without these.
    import jax

    import myriad
    from myriad import hardware

    versions = hardware.package_versions()
    return {
        "library": OURS,
        "library_version": myriad.__version__,
        "devices": jax.local_device_count(),
        "processes": jax.process_count(),
    } | _columns_of_machine(asdict(hardware.fingerprint()), versions)


def _columns_of_machine(machine: Mapping[str, Any], versions: Mapping[str, str]) -> Row:
    packages = {f"{name}_version": versions.get(name, "") for name in ("jax", "jaxlib", "numpy")}
    return packages | {
        "device": machine.get("device_kind", ""),
        "device_name": machine.get("device_name", ""),
        "cores": machine.get("cores", ""),
        "memory_total_bytes": machine.get("memory_total_bytes", ""),
        "package_version": versions.get("myriad", ""),
    }


def columns_of(outcome: Outcome) -> Row:
    """Return the columns of one outcome.

    Rates are environment steps per second: the median over the calls, and the ends of its 95%
    interval.
    """
    workload = outcome.case.workload
    hello = outcome.hello
    row = _columns_of_machine(hello.get("hardware", {}), hello.get("versions", {})) | {
        "library": outcome.case.side,
        "library_version": hello.get("library_version", ""),
        "env": workload.env,
        "agent": workload.agent,
        "num_envs": workload.num_envs,
        "scan_chunk_size": workload.scan_chunk_size,
        "num_steps": outcome.prepared.get("num_steps", ""),
        "devices": hello.get("devices", ""),
        "processes": 1,
        "status": outcome.status,
        "reason": outcome.reason,
    }
    if outcome.case.record:
        row["suite"] = "trajectory"
    if outcome.status == "ok":
        found = outcome.prepared | outcome.stats
        row |= spread(outcome.rates(), "steps_per_s")
        row["run_s"] = statistics.median(each for each in outcome.seconds if each is not None)
        row |= {
            name: found[name]
            for name in ("compile_s", "argument_bytes", "temp_bytes", "peak_bytes")
        }
    return row


def new_row(suite: str, timestamp: str, **columns: Any) -> Row:
    """Return a row of the tidy table, with its commit and Python filled in."""
    known = {
        "suite": suite,
        "commit": commit(),
        "python_version": platform.python_version(),
        "status": "ok",
        "timestamp": timestamp,
    }
    return dict.fromkeys(COLUMNS, "") | known | columns


def spread(values: Sequence[float], name: str) -> Row:
    """Return the columns of a measured value: its median and the ends of its 95% interval.

    With fewer than `LEAST_SAMPLES` values, the ends are the minimum and the maximum.
    """
    from myriad.timing import median_interval

    enough = len(values) >= LEAST_SAMPLES
    low, high = median_interval(values) if enough else (min(values), max(values))
    return {
        name: statistics.median(values),
        f"{name}_low": low,
        f"{name}_high": high,
        "samples": len(values),
    }


@functools.cache
def commit() -> str:
    """Return the checkout's commit, with `-dirty` if files differ from it.

    Outside a repository the text is empty.
    """
    describe = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    command = ("git", "-C", str(ROOT), *describe)
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


class ResultsFile:
    """The CSV file of one invocation, and beside it a file with its command and raw samples.

    Both files are whole on the disk after every `add`.

    `output` is a file that ends in .csv, or a folder, and None means results/csv. In a folder the
    file's name begins with `suite`.

    Raises:
        InvalidArgumentError: the folder can't be created.
    """

    def __init__(self, suite: str, output: Path | None, command: str):
        self.command = command
        self.suite = suite
        self._output = output or CSV_FOLDER
        self._is_file = self._output.suffix == ".csv" and not self._output.is_dir()
        make_folder(self._output.parent if self._is_file else self._output)
        self.timestamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        commit()  # read when the run begins, because files that are edited later are not measured
        self.rows: list[Row] = []
        self._samples: list[Any] = []

    @functools.cached_property
    def path(self) -> Path:
        """The path of the CSV file. Its name holds the device that the first alternation found."""
        if self._is_file:
            return self._output
        device = next((row["device"] for row in self.rows if row["device"]), "unknown")
        return self._output / f"{self.suite}_{device}_{self.timestamp}.csv"

    def add(self, rows: Sequence[Row], samples: Any) -> None:
        """Append rows, given by their columns, and their samples as JSON. Write both files."""
        from myriad.files import replacing

        for columns in rows:
            self.rows.append(
                new_row(**{"suite": self.suite, "timestamp": self.timestamp} | columns)
            )
        self._samples.append(samples)
        write_csv(self.path, COLUMNS, self.rows)
        samples_of_run = {"command": self.command, "alternations": self._samples}
        with replacing(samples_beside(self.path)) as part:
            part.write_text(json.dumps(samples_of_run, indent=1), encoding="utf-8")


def samples_beside(path: Path) -> Path:
    """Return the file of the command and the raw samples beside a CSV file."""
    return path.with_name(f"{path.stem}_samples.json")


def require_new(path: Path, *, force: bool) -> None:
    """Refuse to replace a CSV file or the samples beside it, unless they are empty or `force`.

    Raises:
        InvalidArgumentError: a file holds something.
    """
    from myriad.files import require_free

    # A folder such as `.` has no name for a file beside it.
    for each in () if path.is_dir() else (path, samples_beside(path)):
        require_free(each, force=force)


def make_folder(folder: Path) -> None:
    """Create a folder for results, unless it exists.

    Raises:
        InvalidArgumentError: it can't be created.
    """
    from myriad.errors import InvalidArgumentError
    from myriad.files import unwritable

    if (problem := unwritable(folder)) is not None:
        raise InvalidArgumentError(f"{folder} {problem}.")
    folder.mkdir(parents=True, exist_ok=True)


def write_csv(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a table. A reader finds the old file or the new one, never a part.

    Raises:
        InvalidArgumentError: the file can't be written.
    """
    from myriad.files import replacing

    with replacing(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(columns))
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: Path) -> list[Row]:
    """Read the rows of a table, with every cell as a text."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_table(path: Path) -> Any:
    """Read a CSV file as pandas' table with the columns of results, empty where it lacks one.

    The columns of `NUMBERS` are floats, NaN where a row has none. All others are texts.

    Raises:
        InvalidArgumentError: the file can't be read, is not a table of results, or is damaged.
    """
    import pandas as pd

    from myriad.errors import InvalidArgumentError
    from myriad.files import regular

    try:
        table = pd.read_csv(regular(path), dtype=str, keep_default_na=False, index_col=False)
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        raise InvalidArgumentError(f"results {path} can't be read: {error}.") from error
    if missing := [name for name in _NEEDED if name not in table]:
        raise InvalidArgumentError(
            f"{path} is not a table of results: it lacks the column {missing[0]!r}."
        )
    damaged = f"results {path} are damaged in line"
    if (short := table.timestamp == "").any():  # it comes last, and no row is without one
        raise InvalidArgumentError(
            f"{damaged} {short.to_numpy().argmax() + 2}: it has too few cells."
        )
    table = table.reindex(columns=list(COLUMNS), fill_value="")
    try:
        numbers = table[list(NUMBERS)].replace("", "nan").astype(float)
    except ValueError as error:
        raise InvalidArgumentError(f"results {path} are damaged: {error}.") from error
    return table.assign(**numbers)


def is_table_of_results(path: Path) -> bool:
    """Whether a CSV file has the columns of a table of results of any version."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        return set(_NEEDED) <= set(next(csv.reader(file), ()))


def provenance(rows: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """Return what a reader needs to judge measured rows: the machine, and the versions."""
    rows = list(rows)
    first = next((row for row in rows if library_of(row["library"]) == OURS), rows[0])
    memory = float(first["memory_total_bytes"] or "nan")
    size = "" if math.isnan(memory) else f", {memory / 2**30:.0f} GiB"
    jax = first["jax_version"]
    versions = {}
    for row in rows:
        other = f" (on jax {row['jax_version']})" if row["jax_version"] not in ("", jax) else ""
        versions[f"{library_of(row['library'])} {row['library_version']}{other}"] = None
    commits = [
        f"commit {name[:10] or 'unknown'}{' with changes' if name.endswith('-dirty') else ''}"
        for name in dict.fromkeys(row["commit"] for row in rows)
    ]
    shown = ", ".join([*versions, f"jax {jax}", *commits])
    return f"{first['device_name']}, {first['cores']} cores{size}", shown
