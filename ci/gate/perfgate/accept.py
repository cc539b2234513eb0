"""`perfgate accept`: print the entry of accepted.toml that accepts a regression."""

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from perfgate.config import Accepted, find_rules, read_accepted, validated
from perfgate.errors import UsageError
from perfgate.files import read_text
from perfgate.options import DEFAULT_OUTPUT, Parser, add_suite_config, guarded


def main(argv: Sequence[str]) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return guarded(lambda: accept(_parse(argv)), "stopped; nothing was accepted")


def accept(options: argparse.Namespace) -> int:
    """Print the entries and the file that they belong in, and return the exit code."""
    _, file = find_rules(options.suite_config.resolve().parent)
    read_accepted(file)  # Nothing belongs in a file that has a mistake or is not ours.
    try:
        ratios = _ratios(options)
    except (ValueError, LookupError, TypeError, AttributeError):  # the file may hold anything
        raise UsageError(f"{options.report} is not a report of the gate.") from None
    fields = {name: getattr(options, name) for name in ("benchmark", "reason", "expires")}
    entries = [
        validated(Accepted, fields | {"metric": metric, "ratio": ratio}, "accept")
        for metric, ratio in ratios.items()
    ]
    if entries[0].is_expired:
        raise UsageError(f"--expires must not be in the past, but got {options.expires}.")
    for entry in entries:
        print(_as_toml(entry))
    print(f"Paste this into {os.path.relpath(file)} and commit it.", file=sys.stderr)
    return 0


def _ratios(options: argparse.Namespace) -> dict[str, float]:
    """Return the metrics to accept, each with its ratio.

    Those of the last report are rounded away from 1, so that they cover the measured value.
    """
    if options.ratio is not None:
        return {options.metric or "time": options.ratio}
    if options.metric == "missing":
        return {"missing": 1.0}  # what is gone has no ratio
    row = _reported_row(options)
    # If the base has none of a metric, the entry holds head's value.
    known = {
        each["metric"]: each["ratio"] if each["base"] else each["head"] for each in row["changes"]
    }
    known |= {"time": row.get("ratio"), "missing": 1.0}
    metrics = [options.metric] if options.metric else row["failed"]
    if not metrics:
        raise UsageError(
            f"no metric of {row['name']} failed in the last report; "
            "name the one to accept with --metric."
        )
    found = {}
    for metric in metrics:
        ratio = known.get(metric)
        if ratio is None:
            raise UsageError(
                f"the last report has no ratio of {metric} for {options.benchmark}; "
                "give one with --ratio."
            )
        rounded = round(ratio + math.copysign(0.0005, ratio - 1), 3) or 0.0  # and not -0.0
        found[metric] = 1.0 if metric == "missing" else rounded
    return found


def _reported_row(options: argparse.Namespace) -> dict[str, Any]:
    """Return the benchmark's row of the last report."""
    if not options.report.is_file():
        raise UsageError(
            f"there is no {options.report}; "
            "give the accepted ratio with --ratio, or the report with --report."
        )
    rows = json.loads(read_text(options.report))["rows"]
    row = next((each for each in rows if each["name"] == options.benchmark), None)
    if row is None:
        raise UsageError(
            f"the last report has no benchmark {options.benchmark!r}; "
            "write its name as the report does."
        )
    return row


def _as_toml(entry: Accepted) -> str:
    """Return a table of accepted.toml. It begins with an empty line, so it can be appended."""
    # TOML reads JSON's strings and numbers as they are.
    lines = [
        f"{name} = {json.dumps(getattr(entry, name), ensure_ascii=False)}"
        for name in ("benchmark", "metric", "ratio", "reason")
    ]
    return "\n".join(["", "[[accepted]]", *lines, f"expires = {entry.expires}"])


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        "perfgate accept",
        "Accept a regression. This prints what to paste into accepted.toml, which is reviewed like "
        "code.",
    )
    parser.add_argument(
        "benchmark", help="the benchmark's name as the report writes it, with its parameters"
    )
    parser.add_argument(
        "--reason",
        required=True,
        help="why you accept it, for somebody who reads the entry in a year",
    )
    parser.add_argument(
        "--expires",
        required=True,
        type=_day,
        metavar="YYYY-MM-DD",
        help="the last day on which the entry counts",
    )
    parser.add_argument(
        "--metric",
        help="time, a metric of the report, or `missing` if the benchmark is gone "
        "(default: all that failed in the last report)",
    )
    parser.add_argument(
        "--ratio", type=float, help="the largest ratio accepted (default: the last report's)"
    )
    parser.add_argument(
        "--report",
        type=Path,
        default=DEFAULT_OUTPUT / "gate.json",
        metavar="FILE",
        help="file of the last report (default: %(default)s)",
    )
    add_suite_config(parser)
    options = parser.parse_args(argv)
    if not options.reason.strip():
        parser.error("--reason must not be empty")
    return options


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a day such as 2030-01-31, but got {text!r}"
        ) from None
