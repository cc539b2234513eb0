"""Measure how often the gate fails a changed comment if every benchmark scatters.

    python -m ci.validation.random_sizes                   100 ordinary runs of the gate
    python -m ci.validation.random_sizes --time-identical  100 runs in which every row is measured

It makes a small repository of 40 benchmarks. Each of them draws the size of its input anew at every
setup, so times, peaks and tracked bytes scatter by a tenth. Head differs by a comment, which the
gate knows to be no change. With `--time-identical` it must find that out by measuring.

random_sizes.csv gets a row per run, so a second call continues where the first was stopped. Exit
code 1 means that more than one run in a hundred called the comment a regression.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ci.validation.planted import PlantedProject, make_repository
from ci.validation.selftest import Table, count, here, run_keeping
from ci.validation.selftest_runs import Row, now, run_gate
from perfgate.measure.progress import say
from perfgate.options import Parser

NUM_TIMED, NUM_TRACKED, NUM_PEAKS = 20, 14, 6
_ALLOWED = 0.01  # the share of runs that may end with exit code 1
_PACKAGE = '''"""Work whose amount depends on the size of its input."""

import numpy as np


def total(values):
    return float(np.sqrt(values).sum())
'''
_SUITE = '''import numpy as np

import sizes

_SCATTER = 0.1


def draw(number):
    """Draw the values of a row, about `number` times 2,000 of them."""
    size = 2_000 * number * np.random.default_rng().lognormal(sigma=_SCATTER)
    return np.ones(round(size))


class Timed:
    params = list(range(1, {timed} + 1))

    def setup(self, number):
        self.values = draw(number)

    def time_total(self, number):
        sizes.total(self.values)


class Tracked:
    params = list(range(1, {tracked} + 1))

    def track_input_bytes(self, number):
        values = draw(number)
        sizes.total(values)
        return values.nbytes


class Peak:
    params = list(range(1, {peaks} + 1))

    def peakmem_total(self, number):
        sizes.total(draw(200 * number))
'''


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return run_keeping(run, _parser(), argv)


def _parser() -> Parser:
    parser = Parser("python -m ci.validation.random_sizes", (__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=count, default=100, help="default: 100")
    parser.add_argument(
        "--budget",
        type=float,
        default=20.0,
        metavar="SECONDS",
        help="seconds of timing in one run (default: 20)",
    )
    parser.add_argument(
        "--time-identical", action="store_true", help="measure although only a comment differs"
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Make the missing runs, print how all runs ended, and return the exit code."""
    options.output.mkdir(parents=True, exist_ok=True)
    table = Table(options.output / "random_sizes.csv")
    asked = {"budget_s": options.budget, "time_identical": options.time_identical}
    with tempfile.TemporaryDirectory(prefix="sizes-") as folder:
        project = make_project(Path(folder) / "project")
        for number in range(len(here(table, **asked)), options.runs):
            table.add([_run(project, number, options)])
            say(f"a comment: {number + 1} of {options.runs}")
    rows = here(table, **asked)
    codes = Counter(row["exit_code"] for row in rows)
    endings = ", ".join(f"{num} with {code}" for code, num in sorted(codes.items()))
    print(f"{len(rows)} runs: {endings}")
    return 1 if codes["1"] > _ALLOWED * len(rows) else 0


def make_project(root: Path) -> PlantedProject:
    """Make the repository with a branch `start`, which its head follows with a comment."""
    suite = _SUITE.format(timed=NUM_TIMED, tracked=NUM_TRACKED, peaks=NUM_PEAKS)
    project = make_repository(root, "sizes", {"sizes/__init__.py": _PACKAGE}, suite)
    project.git("switch", "--quiet", "--create", "main")
    with (root / "sizes" / "__init__.py").open("a") as file:
        file.write("\n\n# Sizes are drawn anew for each run.\n")
    project.commit("a comment")
    return project


def _run(project: PlantedProject, number: int, options: argparse.Namespace) -> Row:
    flags = ["--base", "start", "--head", "HEAD", "--seed", str(number)]
    flags += ["--budget", str(options.budget)]
    flags += ["--time-identical"] if options.time_identical else []
    code, report, seconds = run_gate(flags, project.root)
    verdicts = Counter(row["verdict"] for row in report["rows"])
    return {
        "run": number + 1,
        "time_identical": options.time_identical,
        "budget_s": options.budget,
        "exit_code": code,
        "seconds": round(seconds, 1),
        "pairs": report["pairs"],
        "benchmarks": len(report["rows"]),
        "verdicts": ", ".join(f"{num} {word}" for word, num in sorted(verdicts.items())),
        "cpu": report["machine"]["cpu"],
        "timestamp": now(),
    }


if __name__ == "__main__":
    sys.exit(main())
