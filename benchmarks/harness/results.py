"""The tidy table that every suite writes and every plot reads: a row per library and workload."""

import csv
import functools
import io
import json
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.harness.files import make_folder, samples_beside, write_text
from benchmarks.harness.interleave import Budget, Outcome, ratios
from benchmarks.harness.libraries import OURS
from benchmarks.harness.process.supervisor import ROOT

COLUMNS: tuple[str, ...] = (
    *("suite", "library", "library_version", "env", "agent", "arm"),
    *("num_envs", "scan_chunk_size", "num_steps", "devices", "processes"),
    *("device", "device_name", "cores", "memory_total_bytes"),
    *("steps_per_s", "steps_per_s_low", "steps_per_s_high", "run_s", "samples", "compile_s"),
    *("efficiency", "efficiency_low", "efficiency_high"),
    *("argument_bytes", "temp_bytes", "peak_bytes", "state_bytes", "sharded_bytes"),
    *("status", "reason"),
    *("package_version", "commit", "jax_version", "jaxlib_version", "numpy_version"),
    *("python_version", "timestamp"),
)

# The columns that every version of the table has had. Older files may lack the other columns.
_NEEDED: tuple[str, ...] = (
    "agent",
    "env",
    "library",
    "num_envs",
    "status",
    "steps_per_s",
    "suite",
    "timestamp",
)

CSV_FOLDER = ROOT / "results" / "csv"
LEAST_SAMPLES = Budget.min_rounds  # the fewest samples whose median has a 95% interval
PLOTS_FOLDER = ROOT / "results" / "plots"

Row = dict[str, Any]
TextRow = dict[str, str]  # a row as read from a CSV file


def machine_columns() -> Row:
    """Return the columns for this process's machine and versions. This starts JAX's backend."""
    # Imported inside the function, because asv imports the suites even on commits without these.
    import jax

    import myriad
    from myriad import hardware

    machine = hardware.fingerprint()
    versions = hardware.package_versions()
    return {
        "library": OURS,
        "library_version": myriad.__version__,
        "devices": jax.local_device_count(),
        "processes": jax.process_count(),
        "device": machine.device_kind,
        "device_name": machine.device_name,
        "cores": machine.cores,
        "memory_total_bytes": _or_empty(machine.memory_total_bytes),
        "package_version": myriad.__version__,
        **_versions_of(versions),
    }


def new_row(suite: str, timestamp: str, **columns: Any) -> Row:
    """Return a row of the tidy table, with its commit and Python filled in.

    Raises:
        TypeError: there is no such column.
    """
    if strange := columns.keys() - set(COLUMNS):
        raise TypeError(f"no column is called {min(strange)!r}")
    known = {
        "commit": commit(),
        "python_version": platform.python_version(),
        "status": "ok",
        "timestamp": timestamp,
    }
    return dict.fromkeys(COLUMNS, "") | known | {"suite": suite} | columns


def spread(values: Sequence[float], name: str) -> Row:
    """Return the columns of a measured value: its median and the ends of its 95% interval.

    With fewer than `LEAST_SAMPLES` values, the ends are the minimum and the maximum.
    """
    from myriad.timing import median_interval

    low = min(values)
    high = max(values)
    if len(values) >= LEAST_SAMPLES:
        low, high = median_interval(values)
    return {
        name: statistics.median(values),
        f"{name}_low": low,
        f"{name}_high": high,
        "samples": len(values),
    }


def row_of(outcome: Outcome, suite: str, timestamp: str) -> Row:
    """Return the tidy row of one outcome. Columns that don't apply are empty.

    Rates are environment steps per second: the median over the calls, and the ends of its 95%
    interval.
    """
    workload = outcome.case.workload
    hardware = outcome.hello.get("hardware", {})
    versions = outcome.hello.get("versions", {})
    row = new_row(suite, timestamp) | {
        "library": outcome.case.side,
        "library_version": outcome.hello.get("library_version", ""),
        "env": workload.env,
        "agent": workload.agent,
        "arm": f"{workload.num_seeds} seeds" if workload.num_seeds else "",
        "num_envs": workload.num_envs,
        "scan_chunk_size": workload.scan_chunk_size,
        "num_steps": outcome.prepared.get("num_steps", ""),
        "devices": outcome.hello.get("devices", ""),
        "processes": 1,
        "device": hardware.get("device_kind", ""),
        "device_name": hardware.get("device_name", ""),
        "cores": hardware.get("cores", ""),
        "memory_total_bytes": hardware.get("memory_total_bytes", ""),
        "status": outcome.status,
        "reason": outcome.reason,
        "package_version": versions.get("myriad", ""),
        **_versions_of(versions),
    }
    return row | (_measured(outcome) if outcome.status == "ok" else {})


def _versions_of(versions: Mapping[str, str]) -> Row:
    return {f"{name}_version": versions.get(name, "") for name in ("jax", "jaxlib", "numpy")}


def _measured(outcome: Outcome) -> Row:
    rates = [rate for rate in outcome.steps_per_s() if rate is not None]
    found = outcome.prepared | outcome.stats
    return spread(rates, "steps_per_s") | {
        "run_s": statistics.median(seconds for seconds in outcome.seconds if seconds is not None),
        "compile_s": _or_empty(found["compile_s"]),
        "argument_bytes": _or_empty(found["argument_bytes"]),
        "temp_bytes": _or_empty(found["temp_bytes"]),
        "peak_bytes": found["peak_bytes"],
    }


def _or_empty(value: float | None) -> float | str:
    return "" if value is None else value


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

    Args:
        suite: the first word of the file's name.
        output: a file that ends in .csv, or a folder; None means results/csv.
        command: the command that reproduces the numbers.

    Raises:
        InvalidArgumentError: the folder can't be created.
    """

    def __init__(self, suite: str, output: Path | None, command: str):
        self.command = command
        self.suite = suite
        self._output = output or CSV_FOLDER
        make_folder(self._output.parent if self._output.suffix == ".csv" else self._output)
        self.timestamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        commit()  # read when the run begins, because files that are edited later are not measured
        self.rows: list[Row] = []
        self._samples: list[dict[str, Any]] = []

    @functools.cached_property
    def path(self) -> Path:
        """The path of the CSV file. Its name holds the device that the first alternation found."""
        if self._output.suffix == ".csv":
            return self._output
        device = next((row["device"] for row in self.rows if row["device"]), "unknown")
        return self._output / f"{self.suite}_{device}_{self.timestamp}.csv"

    @property
    def samples_path(self) -> Path:
        """The path of the command and the raw samples."""
        return samples_beside(self.path)

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Append the outcomes of one alternation, and write both files."""
        rows = []
        for outcome in outcomes:
            suite = "trajectory" if outcome.case.record else self.suite
            rows.append(row_of(outcome, suite, self.timestamp))
        self.add_rows(rows, {outcome.case.label: asdict(outcome) for outcome in outcomes})

    def add_rows(self, rows: Sequence[Row], samples: Any) -> None:
        """Append rows and their raw samples, which must be JSON values, and write both files."""
        self.rows += rows
        self._samples.append(samples)
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, COLUMNS)
        writer.writeheader()
        writer.writerows(self.rows)
        write_text(self.path, text.getvalue())
        samples_of_run = {"command": self.command, "alternations": self._samples}
        write_text(self.samples_path, json.dumps(samples_of_run, indent=1))


def read_csv(path: Path) -> list[TextRow]:
    """Return the rows of a CSV file, with every value as text.

    Columns that an older file lacks are empty.

    Raises:
        InvalidArgumentError: the file can't be read, is not a table of results, or is damaged.
    """
    from myriad.citation import read_table

    empty = dict.fromkeys(COLUMNS, "")
    return [empty | row for row in read_table(path, _NEEDED)]


def missing_columns(path: Path) -> set[str]:
    """Return the columns that a CSV file lacks to be a table of results of any version.

    Raises:
        InvalidArgumentError: the file can't be read.
    """
    from myriad.citation import columns_of

    columns = columns_of(path)
    return {name for name in _NEEDED if name not in columns}


def markdown(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table that looks the same on a terminal and in a Markdown file."""
    lines = [headers, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    text = [
        "| "
        + " | ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    ]
    return "\n".join(
        [text[0], "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|", *text[1:]]
    )


def scaling_table(groups: Sequence[Sequence[Outcome]]) -> str:
    """Return a line per workload: the steps/s of each side, the ratio and the compile time."""
    sides = [outcome.case.side for outcome in max(groups, key=len)]
    headers = ["environments", "scan chunk", *(f"{side}, M steps/s" for side in sides)]
    headers += ["times as fast (95% interval)"] * (len(sides) > 1) + ["compiling, s"]
    rows = []
    for group in groups:
        workload = group[0].case.workload
        cells = [f"{workload.num_envs:,}", f"{workload.scan_chunk_size:,}", *map(_rate, group)]
        cells += [times(*group)] if len(group) > 1 else []
        compile_s = [outcome.prepared.get("compile_s") for outcome in group]
        shown = ["-" if seconds is None else f"{seconds:.1f}" for seconds in compile_s]
        rows.append([*cells, " / ".join(shown)])
    return markdown(headers, rows)


def times(of: Outcome, to: Outcome) -> str:
    """Write the ratio of `of`'s steps/s to `to`'s: its median over the rounds, and its interval."""
    from myriad.timing import median_interval

    found = ratios(of, to)
    if of.status != "ok" or to.status != "ok":
        return "-"
    low, high = median_interval(found)
    digits = 1 if statistics.median(found) < 10 else 0
    return f"{statistics.median(found):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def last_rate(outcome: Outcome) -> str:
    """Write the last call's million steps/s, or nothing before the first call."""
    rates = [rate for rate in outcome.steps_per_s() if rate is not None]
    return _millions(rates[-1]) if rates else ""


def _rate(outcome: Outcome) -> str:
    rates = [rate for rate in outcome.steps_per_s() if rate is not None]
    if not rates or outcome.status != "ok":
        return outcome.status
    star = "*" if outcome.reason else ""
    return _millions(statistics.median(rates)) + star


def _millions(rate: float) -> str:
    return f"{rate / 1e6:,.{1 if rate >= 1e7 else 3}f}"
