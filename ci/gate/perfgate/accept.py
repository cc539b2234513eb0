"""`perfgate accept`: writes a regression that a person accepts into accepted.toml, for review."""

import argparse
import json
import math
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from perfgate.config import Accepted, find_rules
from perfgate.errors import UsageError
from perfgate.files import replace_text
from perfgate.options import DEFAULT_OUTPUT, Parser, add_suite_config, guarded

_HEADER = "# Regressions that were accepted, each with its reason and last day.\n"


def main(argv: Sequence[str]) -> int:
    """Run the command line; bad input gives one sentence and exit code 2."""
    return guarded(lambda: accept(_parse(argv)), "stopped; nothing was accepted")


def accept(options: argparse.Namespace) -> int:
    """Write the entry, print what it allows, and return the exit code."""
    ratio = options.ratio
    if ratio is None:
        # A benchmark that is gone has no ratio.
        is_missing = options.metric == "missing"
        ratio = 1.0 if is_missing else _reported_ratio(options)
    entry = Accepted(options.benchmark, options.metric, ratio, options.reason, options.expires)
    if entry.is_expired:
        raise UsageError(f"--expires must not be in the past, but got {options.expires}.")
    _, file = find_rules(options.suite_config.resolve().parent)
    write_accepted(file, entry)
    print(
        f"{file.name} now accepts {entry.metric} of {entry.benchmark} "
        f"up to {ratio:g} times until {entry.expires}"
    )
    return 0


def _reported_ratio(options: argparse.Namespace) -> float:
    """Return the last report's ratio, rounded away from 1 so that it covers what was seen.

    Where the base has none of the metric, this is head's value.
    """
    if not options.report.is_file():
        raise UsageError(
            f"there is no {options.report}; "
            "give the accepted ratio with --ratio, or the report with --report."
        )
    rows = json.loads(options.report.read_text(encoding="utf-8"))["rows"]
    row = next((each for each in rows if each["name"] == options.benchmark), None)
    if row is None:
        raise UsageError(
            f"the last report has no benchmark {options.benchmark!r}; "
            "write its name as the report does."
        )
    changes = {
        each["metric"]: each["ratio"] if each["base"] else each["head"] for each in row["changes"]
    }
    found = row.get("ratio") if options.metric == "time" else changes.get(options.metric)
    if found is None:
        raise UsageError(
            f"the last report has no ratio of {options.metric} for {options.benchmark}; "
            "give one with --ratio."
        )
    return round(found + math.copysign(0.0005, found - 1), 3)


def write_accepted(file: Path, entry: Accepted) -> None:
    """Append an entry, all at once; a file that is not there yet is begun."""
    text = file.read_text(encoding="utf-8") if file.is_file() else _HEADER
    fields: dict[str, Any] = {
        "benchmark": entry.benchmark,
        "metric": entry.metric,
        "ratio": entry.ratio,
        "reason": entry.reason,
    }
    # A JSON string or number is a TOML one too.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    lines = [text.rstrip("\n"), "", "[[accepted]]", *lines, f"expires = {entry.expires}", ""]
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_text(file, "\n".join(lines))


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        "perfgate accept",
        "Accept a regression: writes an entry into accepted.toml, which is reviewed like code.",
    )
    parser.add_argument("benchmark", help="its name as the report writes it, with its parameters")
    parser.add_argument("--reason", required=True, help="why, for somebody who reads it in a year")
    parser.add_argument(
        "--expires", required=True, type=_day, metavar="YYYY-MM-DD", help="the last day it counts"
    )
    parser.add_argument(
        "--metric",
        default="time",
        help="time, a metric of the report, or `missing` where the benchmark is gone "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--ratio", type=float, help="the largest ratio accepted (default: the last report's)"
    )
    parser.add_argument(
        "--report",
        type=Path,
        default=DEFAULT_OUTPUT / "gate.json",
        metavar="FILE",
        help="the last report (default: %(default)s)",
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
