"""Write a regression that a person accepts into accepted.toml, for another to review."""

import argparse
import json
import math
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from perfgate.config import Accepted, find_rules, today
from perfgate.errors import UsageError
from perfgate.process.entry import guarded, replace_text

DEFAULT_OUTPUT = Path(".asv/gate")


def main(argv: Sequence[str]) -> int:
    """Run the command line; bad input gives one sentence and exit code 2."""
    return guarded(lambda: accept(argv), "stopped; nothing was accepted")


def accept(argv: Sequence[str]) -> int:
    """Write an accepted regression for a person to review."""
    options = _parse(argv)
    report = options.report or DEFAULT_OUTPUT / "gate.json"
    ratio = options.ratio
    if ratio is None and options.metric == "missing":
        ratio = 1.0
    if ratio is None:
        if not report.is_file():
            raise UsageError(
                f"there is no {report}; give the accepted ratio with --ratio, or the report with --report."
            )
        ratio = _reported_ratio(json.loads(report.read_text()), options.benchmark, options.metric)
    if options.expires < today():
        raise UsageError(
            f"--expires {options.expires} is past; an accepted regression needs a last day to come."
        )
    _, file = find_rules(options.suite_config.resolve().parent)
    write_accepted(
        file, Accepted(options.benchmark, options.metric, ratio, options.reason, options.expires)
    )
    print(
        f"accepted {options.metric} of {options.benchmark} up to {ratio:g} times, until {options.expires}: {file.name}"
    )
    return 0


def _reported_ratio(report: dict[str, Any], benchmark: str, metric: str) -> float:
    """Return the last report's ratio, rounded away from 1: what was seen is what is accepted.

    Where the base has none of it, that is head's value.
    """
    row = next((each for each in report["rows"] if each["name"] == benchmark), None)
    if row is None:
        raise UsageError(
            f"the last report has no benchmark {benchmark!r}; write its name as the report does."
        )
    changes = {
        each["metric"]: each["ratio"] if each["base"] else each["head"] for each in row["changes"]
    }
    found = row.get("ratio") if metric == "time" else changes.get(metric)
    if found is None:
        raise UsageError(
            f"the last report has no ratio of {metric} for {benchmark}; give one with --ratio."
        )
    return round(found + math.copysign(0.0005, found - 1), 3)


def write_accepted(file: Path, entry: Accepted) -> None:
    """Append an entry, for a person to review, all at once; a file that is not there yet is begun."""
    text = (
        file.read_text()
        if file.is_file()
        else "# Regressions that were accepted, each with its reason and last day.\n"
    )
    fields = {
        "benchmark": entry.benchmark,
        "metric": entry.metric,
        "ratio": entry.ratio,
        "reason": entry.reason,
    }
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_text(
        file,
        "\n".join(
            [text.rstrip("\n"), "", "[[accepted]]", *lines, f"expires = {entry.expires}", ""]
        ),
    )


class Parser(argparse.ArgumentParser):
    """Raises what the gate answers with one sentence."""

    def error(self, message: str) -> Any:
        raise UsageError(f"{message}; --help lists the flags.")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="perfgate accept", description="Accept a regression, for review.", allow_abbrev=False
    )
    parser.add_argument("benchmark", help="as the report writes it, parameters included")
    parser.add_argument("--reason", required=True, help="for the person who reads it in a year")
    parser.add_argument(
        "--expires", required=True, type=_day, metavar="YYYY-MM-DD", help="the last day it counts"
    )
    parser.add_argument(
        "--metric", default="time", help="time (default), a metric of gate.toml, or missing"
    )
    parser.add_argument(
        "--ratio", type=float, help="the most that is accepted (default: the last report's)"
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help=f"default: {DEFAULT_OUTPUT}/gate.json"
    )
    add_suite_config(parser)
    options = parser.parse_args(argv)
    if not options.reason.strip():
        parser.error("--reason must not be empty")
    return options


def add_suite_config(parser: argparse.ArgumentParser) -> None:
    """Let a command be told which suite is meant."""
    default = Path("asv.conf.json")
    parser.add_argument(
        "--suite-config", type=Path, default=default, metavar="FILE", help=f"default: {default}"
    )


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a day such as 2030-01-31, but got {text!r}"
        ) from None
