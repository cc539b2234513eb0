"""Which commit made a benchmark slower, or worse in another metric?

For any repository with an asv suite.

    perfgate find 'throughput.Chunk.time_chunk(1000)' v1.2 main
    perfgate find memory.track_size v1.2 main --metric track

The search halves the first-parent line from GOOD to BAD until two neighbours remain, and compares
these two once more. It skips commits that only touch documentation or the suite. It does not time
the same program twice.

Exit codes: 0 found, 2 wrong usage, 3 could not tell.
"""

import argparse
import contextlib
import difflib
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfgate import machine
from perfgate.bisect.visits import Commit, Comparer, Comparison, Visits, commits_between
from perfgate.config import find_rules, read_rules
from perfgate.errors import UsageError
from perfgate.measure.discovery import discover
from perfgate.metrics import describe_change, numbers_of
from perfgate.options import Parser, add_python, add_suite_config, guarded
from perfgate.report.markdown import measured
from perfgate.source.asv_config import read_config
from perfgate.source.git import commit_of, git
from perfgate.stages import MODULE, Benchmark, Timed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return guarded(
        lambda: find(_parse(sys.argv[1:] if argv is None else argv)), "stopped; nothing was found"
    )


def find(options: argparse.Namespace) -> int:
    """Search, print each visited commit and the result, and return the exit code."""
    file = options.suite_config
    if not file.is_file():
        raise UsageError(f"there is no {file}; name the suite's asv.conf.json with --suite-config.")
    root = Path(git("rev-parse", "--show-toplevel", cwd=file.resolve().parent))
    good, bad = commit_of(options.good, root), commit_of(options.bad, root)
    config = read_config(file.resolve(), root)
    commits = commits_between(good, bad, config.folder / config.benchmark_dir, root)
    with contextlib.ExitStack() as stack:
        comparer = _prepare(Visits(file, bad, options.python, stack), commits, options)
        search = Search(comparer, [each for each in commits if each.matters])
        print(
            f"{len(commits) - 1} commits after {commits[0]}; {len(search.commits) - 1} can matter"
        )
        return search.run()


def _prepare(visits: Visits, commits: Sequence[Commit], options: argparse.Namespace) -> Comparer:
    sides = visits.pair(commits[0].hash, visits.bad)
    rules = read_rules(*find_rules(sides.head.root / sides.config.folder))
    rows = discover(sides, rules, "").rows
    there = [row for row in rows if row.benchmark.kind != MODULE and row.state != "gone"]
    found = {row.name: row.benchmark for row in there}
    if options.benchmark not in found:
        raise UsageError(
            f"BAD's suite has no benchmark {options.benchmark!r}; "
            f"{_closest(options.benchmark, found)}"
        )
    benchmark: Benchmark = found[options.benchmark]
    metric = options.metric or benchmark.metric
    return Comparer(visits, benchmark, metric, rules, machine.pick_core(), _say)


def _closest(name: str, known: Sequence[str] | dict[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return f"the closest is {close[0]!r}." if close else "it has none at all."


@dataclass
class Search:
    """Halves a line of commits, from a good one to a bad one, until two neighbours remain."""

    comparer: Comparer
    commits: list[Commit]
    untold: dict[int, str] = field(default_factory=dict)

    def run(self) -> int:
        """Search and print; return the exit code."""
        last = len(self.commits) - 1
        if last == 0:
            return _could_not_tell(
                "every commit after GOOD touches only documentation or the suite."
            )
        whole = self._visit(last)
        self._check_metric(whole.row)
        if not whole.is_worse:
            figure = self._figure(whole.row)
            not_worse = f"BAD is not worse than GOOD in {self.comparer.metric} {figure}".strip()
            return _could_not_tell(f"{self.untold.get(last) or not_worse}.")
        low, high = self._halve(0, last)
        if high - low > 1:
            those = ", ".join(each.hash[:12] for each in self.commits[low + 1 : high + 1])
            return _could_not_tell(f"it is one of {those}; all but the last could not be compared.")
        return self._conclude(low, high, whole if (low, high) == (0, last) else None)

    def _halve(self, low: int, high: int) -> tuple[int, int]:
        while between := [index for index in range(low + 1, high) if index not in self.untold]:
            middle = between[len(between) // 2]
            is_worse = self._visit(middle).is_worse
            if is_worse is not None:
                low, high = (low, middle) if is_worse else (middle, high)
        return low, high

    def _visit(self, index: int) -> Comparison:
        """Compare a commit with GOOD, and print the result with its reason."""
        commit = self.commits[index]
        found = self.comparer.compare(self.commits[0].hash, commit.hash)
        line = f"visited {commit}: {found.words} {self._figure(found.row)}"
        print(line.rstrip(), flush=True)
        if found.is_worse is None:
            self.untold[index] = found.words
        return found

    def _check_metric(self, row: Timed) -> None:
        head = row.inspected.head
        known = [*(["time"] if row.benchmark.is_timed else []), *numbers_of(row.benchmark, head)]
        if head.ran is not None and self.comparer.metric not in known:
            name = self.comparer.metric
            raise UsageError(f"{row.name} has no metric {name!r}; {_closest(name, known)}")

    def _conclude(self, low: int, high: int, found: Comparison | None) -> int:
        """Compare two neighbours, unless the search has done so already, and name the later one."""
        before = self.commits[low]
        guilty = self.commits[high]
        if found is None:
            found = self.comparer.compare(before.hash, guilty.hash, reuse=False)
            if not found.is_worse:
                said = f"{found.words} {self._figure(found.row)}".rstrip()
                return _could_not_tell(
                    f"{guilty} is worse than GOOD, but not surely worse than {before}: {said}; "
                    "it may have grown in several small steps."
                )
        figure = self._figure(found.row)
        print(f"\nfound {guilty}\n{self.comparer.metric}: {figure}, against {before}")
        print(f"show it: {self._command(before, guilty)}")
        return 0

    def _figure(self, row: Timed) -> str:
        """Return the ratio with its interval, or both values."""
        metric = self.comparer.metric
        if metric == "time":
            return measured(row) if row.evidence else ""
        changes = [each for each in row.changes if each.metric == metric]
        return describe_change(changes[0]) if changes else ""

    def _command(self, before: Commit, guilty: Commit) -> str:
        """Return the command that repeats the comparison.

        It runs the gate on the two neighbours. If their suite isn't BAD's, it runs a short search.
        """
        visits = self.comparer.visits
        name = self.comparer.benchmark.row
        base = before.hash[:12]
        config = []
        if visits.config_file != Path("asv.conf.json"):
            config = ["--suite-config", str(visits.config_file)]
        if visits.has_same_suite(guilty.hash):
            words = ["perfgate", "--base", base, "--head", guilty.hash[:12], *config]
            words += ["--bench", f"^{re.escape(name)}$"]
        else:
            words = ["perfgate", "find", name, base, visits.bad[:12], *config]
            words += ["--metric", self.comparer.metric]
        return shlex.join(words)


def _could_not_tell(reason: str) -> int:
    print(f"COULD NOT TELL: {reason}")
    return 3


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser("perfgate find", "Which commit made a benchmark slower?")
    parser.add_argument(
        "benchmark",
        metavar="BENCHMARK",
        help="the benchmark's name as the gate's report writes it, with its parameters",
    )
    parser.add_argument("good", metavar="GOOD", help="a commit before the slowdown")
    parser.add_argument(
        "bad", metavar="BAD", help="a commit after the slowdown; its suite runs at every commit"
    )
    add_suite_config(parser)
    add_python(parser)
    parser.add_argument(
        "--metric",
        metavar="NAME",
        help="a metric of the report, such as temp_bytes (default: the benchmark's value)",
    )
    return parser.parse_args(argv)


def _say(text: str) -> None:
    """Print progress to stderr, because the result goes to stdout."""
    print(text, file=sys.stderr, flush=True)
