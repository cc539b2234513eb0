"""`myriad cite`: say how to repeat a figure and why to believe it, from a CSV of results."""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from myriad.errors import InvalidArgumentError

Row = Mapping[str, str]

# The columns without which a row names neither its machine nor what was measured.
_NEEDED = (
    "suite", "library", "env", "agent", "num_envs", "scan_chunk_size", "device_name",
    "steps_per_s", "status", "package_version", "commit", "jax_version", "timestamp",
)  # fmt: skip
_HEADERS = (
    "suite", "library", "environment", "agent", "environments", "chunk",
    "steps/s (95% interval)", "run, s", "compiling, s", "peak memory",
)  # fmt: skip
_LEAST_SAMPLES = 6  # the fewest that have a 95% interval of their median


def cite(path: Path) -> str:
    """Return a block to paste: machine, versions, commit, date, a table, and the command.

    Notes stand beneath the table: what a reader must know of a row, such as that a peer steps
    another environment, and which rows were not measured.

    Raises:
        InvalidArgumentError: the file can't be read, or is not a table of results.
    """
    every = _read(path)
    rows = [row for row in every if row["status"] == "ok"]
    if not rows:
        raise InvalidArgumentError(f"{path} holds no row that was measured.")
    sources = dict.fromkeys(map(_source, rows))
    blocks = [
        f"{source}\n\n{_table([row for row in rows if _source(row) == source])}"
        for source in sources
    ]
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


def _read(path: Path) -> Sequence[Row]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
            columns = reader.fieldnames or ()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InvalidArgumentError(f"results {path} can't be read: {reason}.") from error
    if missing := [name for name in _NEEDED if name not in columns]:
        raise InvalidArgumentError(
            f"{path} is no table of results: it lacks the column {missing[0]!r}."
        )
    return rows


def _source(row: Row) -> str:
    """Say where, with what and when a row was measured."""
    memory = f", {_readable(row['memory_total_bytes'])}" if row.get("memory_total_bytes") else ""
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


def _table(rows: Iterable[Row]) -> str:
    lines = [_HEADERS, ("---",) * len(_HEADERS), *map(_line, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _line(row: Row) -> Sequence[str]:
    library = f"{row['library']} {row.get('library_version', '')}".strip()
    counts = [
        f"{int(row[name]):,}" if row[name] else "-" for name in ("num_envs", "scan_chunk_size")
    ]
    compiling = f"{float(row['compile_s']):.2f}" if row.get("compile_s") else "-"
    peak = _readable(row["peak_bytes"]) if row.get("peak_bytes") else "-"
    seconds = f"{float(row['run_s']):.3g}" if row.get("run_s") else "-"
    return (
        row["suite"],
        library,
        row["env"],
        row["agent"],
        *counts,
        _rate(row),
        seconds,
        compiling,
        peak,
    )


def _rate(row: Row) -> str:
    if not row["steps_per_s"]:
        return "-"
    middle = float(row["steps_per_s"])
    if int(row.get("samples") or 0) < _LEAST_SAMPLES:
        return f"{middle:,.0f}"
    low = float(row.get("steps_per_s_low") or middle)
    high = float(row.get("steps_per_s_high") or middle)
    return f"{middle:,.0f} ({low:,.0f} to {high:,.0f})"


def _readable(count: str) -> str:
    return f"{int(count) / 2**30:.2f} GiB"


def _command(path: Path) -> str:
    """Return the command in the raw samples beside the CSV, or nothing if there are none."""
    samples = path.with_name(f"{path.stem}_samples.json")
    try:
        return str(json.loads(samples.read_text(encoding="utf-8")).get("command", ""))
    except (OSError, ValueError):
        return ""
