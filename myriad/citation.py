"""`myriad cite`: say how to reproduce a figure and why to believe it, from a CSV of results."""

import contextlib
import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from myriad.errors import InvalidArgumentError
from myriad.files import read_text, regular, user_path
from myriad.ranges import checked

Row = Mapping[str, str]

# The columns that a row needs to name its machine and what was measured.
_NEEDED = (
    "suite", "library", "env", "agent", "num_envs", "scan_chunk_size", "device_name",
    "steps_per_s", "status", "package_version", "commit", "jax_version", "timestamp",
)  # fmt: skip
# Columns that must hold numbers, if they are there.
_NUMBERS = (
    "num_envs", "scan_chunk_size", "num_steps", "devices", "processes", "samples",
    "memory_total_bytes", "argument_bytes", "temp_bytes", "peak_bytes", "state_bytes",
    "sharded_bytes", "steps_per_s", "steps_per_s_low", "steps_per_s_high", "run_s", "compile_s",
    "ratio", "ratio_low", "ratio_high", "efficiency", "efficiency_low", "efficiency_high",
)  # fmt: skip
_HEADERS = (
    "suite", "library", "environment", "agent", "environments", "chunk",
    "steps/s (95% interval)", "run, s", "compiling, s", "peak memory",
)  # fmt: skip
_COUNTS = ("num_envs", "scan_chunk_size")
_LEAST_SAMPLES = 6  # The fewest samples whose median has a 95% interval.


@checked
def cite(path: str | Path) -> str:
    """Return a block to paste: machine, versions, commit, date, a table, and the command.

    Notes beneath the table say what a reader must know about a row, such as that a peer steps
    another environment, and which rows were not measured.

    Raises:
        InvalidArgumentError: the file can't be read or is not a table of results.
    """
    path = user_path(path)
    every = read_table(path, _NEEDED)
    rows = [row for row in every if row["status"] == "ok"]
    if not rows:
        raise InvalidArgumentError(f"{path} holds no row that was measured.")
    sources = dict.fromkeys(map(_source, rows))
    blocks = []
    for source in sources:
        lines = [_line(row) for row in rows if _source(row) == source]
        table = [_HEADERS, ("---",) * len(_HEADERS), *lines]
        blocks.append("\n".join([source, "", *(f"| {' | '.join(line)} |" for line in table)]))
    notes = dict.fromkeys(
        f"- {row['library']}, {row['env']}: {row['reason']}" for row in rows if row.get("reason")
    )
    notes |= dict.fromkeys(
        f"- not measured: {row['library']}, {row['env']}, "
        f"{row['num_envs'] or '?'} environments: {row['status']}"
        for row in every
        if row["status"] != "ok"
    )
    if notes:
        blocks.append("\n".join(notes))
    if command := _command(path):
        blocks.append(f"Reproduce with: `{command}`")
    return "\n\n".join(blocks)


def read_table(path: Path, needed: Sequence[str]) -> list[dict[str, str]]:
    """Read the rows of a CSV of results, with every value as text.

    Args:
        path: the file.
        needed: columns that it must have.

    Raises:
        InvalidArgumentError: the file can't be read, lacks a column, or has a damaged line.
    """
    columns = columns_of(path)
    if missing := [name for name in needed if name not in columns]:
        raise InvalidArgumentError(
            f"{path} is not a table of results: it lacks the column {missing[0]!r}."
        )
    with _reading(path) as reader:
        rows = []
        for row in reader:
            if damage := _damage(row):
                raise InvalidArgumentError(
                    f"results {path} are damaged in line {reader.line_num}: {damage}."
                )
            rows.append(row)
    return rows


def columns_of(path: Path) -> list[str]:
    """Read the names of the columns of a CSV.

    Raises:
        InvalidArgumentError: the file can't be read.
    """
    with _reading(path) as reader:
        return list(reader.fieldnames or ())


@contextlib.contextmanager
def _reading(path: Path) -> Iterator["csv.DictReader[str]"]:
    try:
        with regular(path).open(newline="", encoding="utf-8") as file:
            yield csv.DictReader(file)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InvalidArgumentError(f"results {path} can't be read: {reason}.") from error


def _damage(row: Row) -> str:
    """Say what is wrong with a row, or return nothing."""
    if None in row or None in row.values():
        return "it has more or fewer cells than there are columns"
    for name in _NUMBERS:
        try:
            fits = 0 <= float(row.get(name) or 0) < math.inf
        except ValueError:
            fits = False
        if not fits:
            return f"{name} is {row[name]!r}"
    return ""


def _source(row: Row) -> str:
    """Say on which machine, with which versions and when a row was measured."""
    memory = f", {_gib(row['memory_total_bytes'])}" if row.get("memory_total_bytes") else ""
    commit, _, changed = row["commit"].partition("-")
    commit = (commit[:10] or "unknown") + (" with local changes" if changed else "")
    day = row["timestamp"]
    return (
        f"{row['device_name']}, {row.get('cores') or '?'} cores{memory} "
        f"({row.get('device') or 'unknown'}); "
        f"Myriad {row['package_version']}, commit {commit}; "
        f"JAX {row['jax_version']}, Python {row.get('python_version') or 'unknown'}; "
        f"measured {day[:4]}-{day[4:6]}-{day[6:8]}."
    )


def _line(row: Row) -> Sequence[str]:
    rate = f"{float(row['steps_per_s']):,.0f}" if row["steps_per_s"] else "-"
    low, high = row.get("steps_per_s_low"), row.get("steps_per_s_high")
    if low and high and float(row.get("samples") or 0) >= _LEAST_SAMPLES:
        rate += f" ({float(low):,.0f} to {float(high):,.0f})"
    return (
        row["suite"],
        f"{row['library']} {row.get('library_version', '')}".strip(),
        row["env"],
        f"{row['agent']} {row.get('arm', '')}".strip(),
        *(f"{float(row[name]):,.0f}" if row[name] else "-" for name in _COUNTS),
        rate,
        f"{float(row['run_s']):.3g}" if row.get("run_s") else "-",
        f"{float(row['compile_s']):.2f}" if row.get("compile_s") else "-",
        _gib(row["peak_bytes"]) if row.get("peak_bytes") else "-",
    )


def _gib(count: str) -> str:
    return f"{float(count) / 2**30:.2f} GiB"


def _command(path: Path) -> str:
    """Return the command from the raw samples next to the CSV, or nothing if there are none."""
    samples = path.with_name(f"{path.stem}_samples.json")
    try:
        return str(json.loads(read_text(samples)).get("command", ""))
    except (ValueError, AttributeError, RecursionError):
        return ""
