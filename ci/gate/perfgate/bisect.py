"""Which commit made a benchmark slower, or worse in another metric?

For any repository with an asv suite.

    perfgate find 'throughput.Chunk.time_chunk(1000)' v1.2 main
    perfgate find memory.track_size v1.2 main --metric track

The search halves the first-parent line from GOOD to BAD until two neighbours remain, and compares
these two once more. It skips commits that only touch documentation or the suite.

Every commit runs the suite of BAD. So all commits are measured alike, and a benchmark that was
added after the slowdown still finds it. Each comparison runs the gate's own stages.

Exit codes: 0 found, 2 wrong usage, 3 could not tell.
"""

import argparse
import dataclasses
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from perfgate import machine
from perfgate.config import CHANGED, UNSURE, WORSE, Rules, find_rules, read_rules
from perfgate.errors import PreparationError, UsageError, closest
from perfgate.measure.confirmation import confirm
from perfgate.measure.discovery import discover
from perfgate.measure.inspection import inspect
from perfgate.measure.pairing import Session
from perfgate.measure.progress import Progress, Run
from perfgate.metrics import describe_change, numbers_of
from perfgate.options import Parser, add_python, add_suite_config, guarded
from perfgate.report.markdown import measured
from perfgate.rows import MODULE, Benchmark, Row
from perfgate.source.asv_config import read_config
from perfgate.source.changes import can_matter
from perfgate.source.git import commit_of, git
from perfgate.source.sides import Sides, checked_out
from perfgate.stats.evidence import NOT_SLOWER, UNDECIDED


def main(argv: Sequence[str]) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return guarded(lambda: find(_parse(argv)), "stopped; nothing was found")


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


def find(options: argparse.Namespace) -> int:
    """Search, print each visited commit and the result, and return the exit code."""
    file = options.suite_config
    if not file.is_file():
        raise UsageError(f"there is no {file}; name the suite's asv.conf.json with --suite-config.")
    root = Path(git("rev-parse", "--show-toplevel", cwd=file.resolve().parent))
    good, bad = commit_of(options.good, root), commit_of(options.bad, root)
    config = read_config(file.resolve(), root)
    commits = commits_between(good, bad, config.folder / config.benchmark_dir, root)
    with checked_out(file, good, bad, python=options.python, suite=bad) as sides:
        rules = read_rules(*find_rules(sides.head.root / sides.config.folder))
        rows = discover(sides, rules, "", Progress())
    found = {row.name: row.benchmark for row in rows if row.benchmark.kind != MODULE}
    if options.benchmark not in found:
        raise UsageError(
            f"BAD's suite has no benchmark {options.benchmark!r}; "
            f"{closest(options.benchmark, found)}"
        )
    that_matter = [each for each in commits if each.matters]
    print(f"{len(commits) - 1} commits after {commits[0]}; {len(that_matter) - 1} can matter")
    benchmark = found[options.benchmark]
    return Search(options, bad, benchmark, rules, machine.pick_core(), that_matter).run()


@dataclass(frozen=True)
class Commit:
    """One commit of the first-parent line and whether it can have changed what a benchmark runs."""

    hash: str
    subject: str
    matters: bool = True

    def __str__(self) -> str:
        return f"{self.hash[:12]} {self.subject}"


def commits_between(good: str, bad: str, suite: Path, root: Path) -> list[Commit]:
    """List GOOD and the first-parent commits from there to BAD, the oldest first.

    Raises:
        UsageError: GOOD is not on that line.
    """
    line = git("rev-list", "--first-parent", "--reverse", bad, cwd=root).split()
    if good not in line:
        raise UsageError(
            f"GOOD {good[:12]} is no ancestor of BAD {bad[:12]} along first parents; "
            "give an older GOOD."
        )
    if good == bad:
        raise UsageError(f"GOOD and BAD are the same commit, {good[:12]}; give two that differ.")
    subject = git("log", "-1", "--format=%s", good, cwd=root)
    return [Commit(good, subject), *_log(good, bad, suite, root)]


def _log(good: str, bad: str, suite: Path, root: Path) -> Iterator[Commit]:
    """Read subjects and touched paths with one call of git, since there may be thousands."""
    flags = ["--first-parent", "-m", "--reverse", "--no-renames", "-z", "--name-only"]
    flags.append("--format=%x01%H%x00%s%x00")
    for entry in git("log", *flags, f"{good}..{bad}", cwd=root).split("\1")[1:]:
        commit, subject, *paths = (each.strip("\n") for each in entry.split("\0"))
        matters = any(can_matter(PurePosixPath(each), suite) for each in paths if each)
        yield Commit(commit, subject, matters)


@dataclass
class Search:
    """Halves a line of commits, from a good one to a bad one, until two neighbours remain.

    Attributes:
        options: the command's.
        bad: the commit whose suite runs at every commit.
        benchmark: the benchmark to compare.
        rules: the gate's, as BAD has them.
        core: the core that single-core benchmarks are pinned to.
        commits: the line, the oldest first.
        untold: why the commits at these places could not be compared.
    """

    options: argparse.Namespace
    bad: str
    benchmark: Benchmark
    rules: Rules
    core: int | None
    commits: list[Commit]
    untold: dict[int, str] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """`time`, or a metric that needs no pairs."""
        return self.options.metric or self.benchmark.metric

    def run(self) -> int:
        """Search and print; return the exit code."""
        low, high = 0, len(self.commits) - 1
        if not high:
            return _could_not_tell(
                "every commit after GOOD touches only documentation or the suite."
            )
        is_worse, row = self._visit(high)
        worst = row  # the comparison with GOOD of the commit at `high`
        self._check_metric(row)
        if not is_worse:
            not_worse = f"BAD is not worse than GOOD in {self.metric} {self._figure(row)}".strip()
            return _could_not_tell(f"{self.untold.get(high) or not_worse}.")
        while between := [index for index in range(low + 1, high) if index not in self.untold]:
            middle = between[len(between) // 2]
            is_worse, row = self._visit(middle)
            if is_worse is not None:
                low, high = (low, middle) if is_worse else (middle, high)
                worst = row if is_worse else worst
        if high - low > 1:
            those = ", ".join(each.hash[:12] for each in self.commits[low + 1 : high + 1])
            return _could_not_tell(f"it is one of {those}; all but the last could not be compared.")
        before, guilty = self.commits[low], self.commits[high]
        if low > 0:  # otherwise it was compared with its neighbour already
            is_worse, words, worst = self._compare(before.hash, guilty.hash)
            if not is_worse:
                said = f"{words} {self._figure(worst)}".rstrip()
                return _could_not_tell(
                    f"{guilty} is worse than GOOD, but not surely worse than {before}: {said}; "
                    "it may have grown in several small steps."
                )
        print(f"\nfound {guilty}\n{self.metric}: {self._figure(worst)}, against {before}")
        print(f"show it: git show {guilty.hash[:12]}")
        return 0

    def _visit(self, index: int) -> tuple[bool | None, Row]:
        """Compare a commit with GOOD, and print the result with its reason."""
        is_worse, words, row = self._compare(self.commits[0].hash, self.commits[index].hash)
        line = f"visited {self.commits[index]}: {words} {self._figure(row)}"
        print(line.rstrip(), flush=True)
        if is_worse is None:
            self.untold[index] = words
        return is_worse, row

    def _check_metric(self, row: Row) -> None:
        known = ["time"] if row.benchmark.is_timed else []
        known += numbers_of(row.benchmark, row.head)
        if row.head.ran is not None and self.metric not in known:
            raise UsageError(
                f"{row.name} has no metric {self.metric!r}; {closest(self.metric, known)}"
            )

    def _figure(self, row: Row) -> str:
        """Return the ratio with its interval, or both values."""
        if self.metric == "time":
            return measured(row) if row.evidence else ""
        changes = [each for each in row.changes if each.metric == self.metric]
        return describe_change(changes[0]) if changes else ""

    def _compare(self, base: str, head: str) -> tuple[bool | None, str, Row]:
        """Say whether head is worse than base, why, and what was measured.

        The first is None if there is not enough evidence.
        """
        row = Row(self.benchmark)
        file, python = self.options.suite_config, self.options.python
        try:
            with checked_out(file, base, head, python=python, suite=self.bad) as sides:
                return self._measure(row, sides)
        except (PreparationError, UsageError) as error:
            return None, str(error), row

    def _measure(self, row: Row, sides: Sides) -> tuple[bool | None, str, Row]:
        run = Run(sides, self.rules, self.core, Progress())
        (row,) = inspect(run, [row])
        if not row.is_comparable:
            return None, _why_unknown(row), row
        run.progress.deadline = time.monotonic() + self.rules.timing.budget_s
        if self.metric == "time":
            return _compare_time(run, row)
        changes = tuple(each for each in row.changes if each.metric == self.metric)
        (row,) = confirm(run, [dataclasses.replace(row, changes=changes)], num_tests=1)
        if row.problems or not row.changes:
            return None, _why_unknown(row) or f"it has no {self.metric} here", row
        word = row.changes[0].word
        if word == UNSURE:
            return None, "it needs a longer timing.budget_s", row
        return word in (WORSE, CHANGED), word, row


def _compare_time(run: Run, row: Row) -> tuple[bool | None, str, Row]:
    if row.same:
        return False, f"the same {row.same}, not timed", row
    (row,) = Session(run, random.Random()).time([row], num_tests=1)  # noqa: S311 - orders
    if row.problems or row.evidence is None or row.evidence.verdict == UNDECIDED:
        undecided = "undecided: this noise needs more pairs or a longer timing.budget_s"
        return None, _why_unknown(row) or undecided, row
    is_worse = row.evidence.verdict != NOT_SLOWER
    return is_worse, "slower" if is_worse else "not slower", row


def _why_unknown(row: Row) -> str:
    if row.skipped:
        return f"it is skipped on {' and '.join(row.skipped)}"
    return "; ".join(dict.fromkeys(row.problems.values()))


def _could_not_tell(reason: str) -> int:
    print(f"COULD NOT TELL: {reason}")
    return 3
