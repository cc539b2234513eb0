"""Measure the false-positive rate of the gate on this machine, and the smallest slowdown it finds.

    python -m ci.validation.selftest                               everything that is still missing
    python -m ci.validation.selftest --runs 100 --bench cartpole   these benchmarks alone
    python -m ci.validation.selftest --runs 0 --live 10            planted slowdowns alone

It writes these tables, with a row per run or pair. Each row is saved as soon as it is measured, so
a second call continues where the first was stopped.

    selftest_itself.csv         a tree against itself, same programs timed too; a core is busy in
                                every second run
    selftest_itself_pairs.csv   the log ratio of every pair of those runs
    selftest_live.csv           what the gate said of slowdowns planted in a project of five
                                benchmarks, run as anybody runs it

From these it makes and prints `noise_*.csv`. They hold the false alarms, each benchmark's noise
with the smallest slowdown that the full number of pairs finds, and the planted slowdowns that were
found.
"""

import argparse
import csv
import functools
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ci.validation.planted import BENCHMARKS, make_project
from ci.validation.selftest_runs import Row, against_itself, on_planted
from perfgate import machine
from perfgate.config import Rules, find_rules, read_rules
from perfgate.errors import UsageError
from perfgate.files import replace_text
from perfgate.measure.progress import say
from perfgate.options import Parser, add_suite_config, guarded
from perfgate.stats.evidence import Plan, noise

PLANTED = (1.10, 1.05, 1.03)


@dataclass(frozen=True)
class Table:
    """A CSV file that grows by whole rows."""

    path: Path

    def rows(self) -> list[dict[str, str]]:
        """Return the rows."""
        if not self.path.is_file():
            return []
        with self.path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def add(self, new: Sequence[Row]) -> None:
        """Append rows. A reader finds all of them or none."""
        rows = [*self.rows(), *new]
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        replace_text(self.path, text.getvalue())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return run_keeping(run, _parser(), argv)


def _parser() -> Parser:
    parser = Parser("python -m ci.validation.selftest", (__doc__ or "").split("\n")[0])
    add_suite_config(parser)
    parser.add_argument(
        "--runs", type=count, default=100, help="runs of the tree against itself (default: 100)"
    )
    parser.add_argument(
        "--bench", default="", metavar="REGEX", help="benchmarks in those runs (default: all)"
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="seconds of timing in one such run, about 15 for each benchmark (default: 60)",
    )
    parser.add_argument(
        "--live", type=count, default=10, help="whole runs for each planted slowdown (default: 10)"
    )
    return parser


def run_keeping(
    run: Callable[[argparse.Namespace], int], parser: Parser, argv: Sequence[str] | None
) -> int:
    """Run a command whose tables go to `--output`, and keep them if it is stopped.

    Args:
        run: the command, which returns the exit code.
        parser: the parser of its other options.
        argv: the arguments; None means those of this process.
    """
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results/csv"),
        metavar="DIR",
        help="default: results/csv",
    )
    return guarded(
        lambda: run(parser.parse_args(argv)), "stopped; all measurements so far are kept"
    )


def count(text: str) -> int:
    """Parse a flag that is a whole number."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, but got {text!r}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Make the missing measurements, then save and print the tables of all of them.

    Return 1 if a tree against itself was called slower.
    """
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.suite_config.resolve()
    if not file.is_file():
        raise UsageError(f"there is no {file.name}; name the suite's asv.conf.json.")
    rules = read_rules(*find_rules(file.parent))
    _run_against_itself(options)
    _run_on_planted(options, rules.timing.budget_s)
    alike = here(_table(options, "itself"), bench=options.bench, budget_s=options.budget)
    runs = {row["timestamp"] for row in alike}
    every_pair = here(_table(options, "itself_pairs"))
    alike_pairs = [pair for pair in every_pair if pair["timestamp"] in runs]
    live = here(_table(options, "live"))
    for name, rows, summary in (
        ("noise_false_alarms", alike, false_alarms),
        ("noise_by_benchmark", alike_pairs, functools.partial(scatter, rules=rules)),
        ("noise_planted_live", live, lived),
    ):
        if rows:
            table = summary(pd.DataFrame(rows))
            replace_text(options.output / f"{name}.csv", table.to_csv())
            print(f"{name}\n{table}\n")
    return 1 if any(row["exit_code"] == "1" for row in alike) else 0


def _table(options: argparse.Namespace, name: str) -> Table:
    return Table(options.output / f"selftest_{name}.csv")


def here(table: Table, **asked: object) -> list[dict[str, str]]:
    """Return the rows of a machine like this one that were measured with these options."""
    asked["cpu"] = machine.describe()["cpu"]
    return [
        row for row in table.rows() if all(row[name] == str(value) for name, value in asked.items())
    ]


def _run_against_itself(options: argparse.Namespace) -> None:
    itself, pairs = (_table(options, name) for name in ("itself", "itself_pairs"))
    asked = (options.suite_config.resolve(), options.bench, options.budget)
    # Other benchmarks have other error rates.
    known = here(itself, bench=options.bench, budget_s=options.budget)
    for number in range(len(known), options.runs):
        ended, its_pairs = against_itself(*asked, number)
        if its_pairs:
            pairs.add(its_pairs)
        itself.add([ended])  # last, so that pairs of a stopped run don't count
        say(f"against itself: {number + 1} of {options.runs}")


def _run_on_planted(options: argparse.Namespace, budget_s: float) -> None:
    """Make the missing runs on planted slowdowns."""
    live = _table(options, "live")
    if not any(_missing(live, ratio, options.live) for ratio in PLANTED):
        return
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        project = make_project(Path(folder) / "project")
        for ratio in PLANTED:
            head = project.plant(ratio)
            while missing := _missing(live, ratio, options.live):
                live.add(on_planted(project.root, ratio, head, budget_s))
                say(f"{ratio:g} times: {missing - 1} runs to go")


def _missing(live: Table, ratio: float, wanted: int) -> int:
    """Return how many runs on a planted slowdown are still missing."""
    there = Counter(row["benchmark"] for row in here(live) if float(row["planted"]) == ratio)
    return max(0, wanted - min(there[f"work.time_{name}"] for name in BENCHMARKS))


# --- tables of what was recorded, each a DataFrame of strings


def false_alarms(runs: Any) -> Any:
    """Count how the runs of a tree against itself ended, beside an idle and a busy core."""
    codes = pd.crosstab(runs.other_core, "exit " + runs.exit_code)
    seconds = runs.seconds.astype(float).groupby(runs.other_core)
    return codes.assign(
        **{"median s": seconds.median().round(), "longest s": seconds.max().round()}
    )


def scatter(pairs: Any, rules: Rules) -> Any:
    """Return the noise of each benchmark's pairs, and the slowdown that it lets the gate find."""
    log_ratios = pairs.log_ratio.astype(float)
    of_name = log_ratios.groupby(pairs.benchmark)
    noises = pd.crosstab(pairs.benchmark, pairs.other_core, log_ratios, aggfunc=_noise)
    noises = noises.map("{:.2%}".format).add_prefix("noise, ").add_suffix(" (sd)")
    plan = Plan.make(rules.verdict, len(noises))
    found = of_name.agg(_noise).map(plan.smallest_detectable).round(3)
    return noises.assign(**{"pairs": of_name.size(), "smallest found": found})


def _noise(log_ratios: Any) -> float:
    return noise(log_ratios.to_numpy())


def lived(runs: Any) -> Any:
    """Count the gate's verdicts in whole runs on planted slowdowns."""
    return pd.crosstab([runs.planted, runs.benchmark], runs.verdict)


if __name__ == "__main__":
    sys.exit(main())
