"""`perfgate accept`: print the entry of accepted.toml that accepts a regression."""

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from perfgate.config import Accepted, find_rules, read_accepted, today, validated
from perfgate.errors import UsageError
from perfgate.files import DAMAGE, read_json, text
from perfgate.options import DEFAULT_OUTPUT, Parser, add_suite_config, guarded


def main(argv: Sequence[str]) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return guarded(lambda: accept(_parse(argv)), "stopped; nothing was accepted")


def accept(options: argparse.Namespace) -> int:
    """Print the entries and the file that they belong in, and return the exit code."""
    _, file = find_rules(options.suite_config.resolve().parent)
    read_accepted(file)  # Nothing belongs in a file that has a mistake or is not ours.
    if options.expires < today():
        raise UsageError(f"--expires must not be in the past, but got {options.expires}.")
    for metric, ratio in _ratios(options).items():
        entry = {"benchmark": options.benchmark, "metric": metric, "ratio": ratio}
        entry |= {"reason": options.reason}
        validated(Accepted, entry | {"expires": options.expires}, "accept")
        # It begins with an empty line, so it can be appended. TOML reads JSON's texts and numbers.
        print("\n[[accepted]]")
        for name, value in entry.items():
            print(f"{name} = {json.dumps(value, ensure_ascii=False)}")
        print(f"expires = {options.expires}")
    print(f"Paste this into {os.path.relpath(file)} and commit it.", file=sys.stderr)
    return 0


def _ratios(options: argparse.Namespace) -> dict[str, float]:
    """Return the metrics to accept, each with its ratio."""
    if options.ratio is not None:
        return {options.metric or "time": options.ratio}
    if options.metric == "missing":
        return {"missing": 1.0}  # what is gone has no ratio
    failed, known = _read_report(options.report, options.benchmark)
    metrics = [options.metric] if options.metric else failed
    if not metrics:
        raise UsageError(
            f"no metric of {options.benchmark} failed in the last report; "
            "name the one to accept with --metric."
        )
    if unknown := [metric for metric in metrics if metric not in known]:
        raise UsageError(
            f"the last report has no ratio of {unknown[0]} for {options.benchmark}; "
            "give one with --ratio."
        )
    return {metric: known[metric] for metric in metrics}


def _read_report(file: Path, benchmark: str) -> tuple[list[str], dict[str, float]]:
    """Return the metrics of a benchmark that failed in a report, and the ratio of each metric.

    Ratios are rounded away from 1, so that they cover the measured value.
    """
    if not file.is_file():
        raise UsageError(
            f"there is no {file}; "
            "give the accepted ratio with --ratio, or the report with --report."
        )
    try:
        rows = {row["name"]: row for row in read_json(file)["rows"]}
        if benchmark not in rows:
            raise UsageError(
                f"the last report has no benchmark {benchmark!r}; "
                "write its name as the report does."
            )
        row = rows[benchmark]
        ratios = {"time": row.get("ratio")}
        for each in row["changes"]:  # of nothing there is no ratio: it is head's value
            ratios[each["metric"]] = each["ratio"] if each["base"] else each["head"]
        rounded = {
            name: round(ratio + math.copysign(0.0005, ratio - 1), 3) or 0.0  # and not -0.0
            for name, ratio in ratios.items()
            if ratio is not None
        }
        return [text(metric) for metric in row["failed"]], rounded | {"missing": 1.0}
    except DAMAGE:  # the file may hold anything
        raise UsageError(f"{file} is not a report of the gate.") from None


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
        type=date.fromisoformat,
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
    return parser.parse_args(argv)
