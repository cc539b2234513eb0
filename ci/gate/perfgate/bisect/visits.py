"""What `perfgate find` knows of commits: which of them can matter, and how one of them compares with another.

Every commit runs the suite of the last one, BAD, so that one question is asked throughout and a
benchmark that is younger than the slowdown finds it too. A comparison is the gate's own:
inspection, exoneration, paired timing.
"""

import contextlib
import dataclasses
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from perfgate.config import Rules
from perfgate.errors import PreparationError, UsageError
from perfgate.measure.confirmation import confirm
from perfgate.measure.inspection import Say, inspect
from perfgate.measure.pairing import Session
from perfgate.source.changes import can_matter
from perfgate.source.environments import build_environment
from perfgate.source.git import git
from perfgate.source.sides import Side, Sides, checked_out
from perfgate.stats.evidence import NOT_SLOWER, UNDECIDED
from perfgate.verdict import Benchmark, Row


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
            f"GOOD {good[:12]} is no ancestor of BAD {bad[:12]} along first parents; give an older GOOD."
        )
    if good == bad:
        raise UsageError(f"GOOD and BAD are the same commit, {good[:12]}; give two that differ.")
    subject = git("log", "-1", "--format=%s", good, cwd=root)
    return [Commit(good, subject), *_log(good, bad, suite, root)]


def _log(good: str, bad: str, suite: Path, root: Path) -> Iterator[Commit]:
    """Read subjects and touched paths in one go: there may be thousands."""
    flags = [
        "--first-parent",
        "-m",
        "--reverse",
        "--no-renames",
        "-z",
        "--name-only",
        "--format=%x01%H%x00%s%x00",
    ]
    for entry in git("log", *flags, f"{good}..{bad}", cwd=root).split("\1")[1:]:
        commit, subject, *paths = (each.strip("\n") for each in entry.split("\0"))
        yield Commit(
            commit, subject, any(can_matter(PurePosixPath(each), suite) for each in paths if each)
        )


@dataclass
class Visits:
    """Checkouts of the commits that were needed so far; use it in a `with` block of its `stack`."""

    config_file: Path
    bad: str
    stack: contextlib.ExitStack
    _found: dict[str, Sides] = field(default_factory=dict)

    def side(self, commit: str) -> tuple[Side, Path]:
        """Return a commit's checkout, with BAD's suite in it, and a folder that lives as long."""
        sides = self._of(commit)
        return sides.base, sides.folder

    def pair(self, base: str, head: str) -> Sides:
        """Return two commits as the sides of one comparison, with caches that no other one has touched."""
        sides, (first, _), (second, folder) = self._of(head), self.side(base), self.side(head)
        place = Path(tempfile.mkdtemp(prefix="pair-", dir=folder))
        built = [not each.import_from for each in (first, second)]
        if any(built) and not all(
            built
        ):  # what is compared is the commits, not two ways of installing them
            first, second = (self._install(each, place) for each in (first, second))
        second = dataclasses.replace(second, name="head")
        return dataclasses.replace(sides, base=first, head=second, folder=place, same_code=False)

    def has_same_suite(self, commit: str) -> bool:
        """Whether a commit's own suite is BAD's."""
        config = self._of(self.bad).config
        root = Path(git("rev-parse", "--show-toplevel", cwd=self.config_file.resolve().parent))
        suite = config.folder / config.benchmark_dir
        return not git("diff", "--name-only", commit, self.bad, "--", suite.as_posix(), cwd=root)

    def _of(self, commit: str) -> Sides:
        if commit not in self._found:
            self._found[commit] = self.stack.enter_context(
                checked_out(self.config_file, commit, self.bad)
            )
        return self._found[commit]

    def _install(self, side: Side, place: Path) -> Side:
        if not side.import_from:
            return side
        config = self._of(self.bad).config
        python = build_environment(place / "env", side.root / config.package_dir, config)
        return dataclasses.replace(side, python=python, import_from=())


@dataclass
class Comparer:
    """Compares two commits in one metric of one benchmark.

    Attributes:
        visits: where checkouts come from.
        benchmark: what is compared.
        metric: `time`, or one that needs no pairs.
        rules: the gate's, as BAD has them.
        core: the core of single-core benchmarks.
        say: tells a waiting person what goes on.
    """

    visits: Visits
    benchmark: Benchmark
    metric: str
    rules: Rules
    core: int | None
    say: Say
    _known: dict[tuple[str, int], tuple[bool, str]] = field(default_factory=dict)

    def compare(self, base: str, head: str, *, reuse: bool = True) -> tuple[bool | None, str, Row]:
        """Return whether head is worse (None: it can't be told), the reason in words, and the row.

        With `reuse`, a program that was met before is judged as it was then: base must be the same
        each time.
        """
        row = Row(self.benchmark)
        try:
            sides = self.visits.pair(base, head)
            inspect([row], sides, self.rules, self.core, self.say)
        except (PreparationError, UsageError) as error:
            return None, str(error), row
        if not row.is_comparable:
            return None, _why_unknown(row), row
        return self._judged(row, sides, reuse=reuse)

    def _judged(self, row: Row, sides: Sides, *, reuse: bool) -> tuple[bool | None, str, Row]:
        if self.metric != "time":
            return *self._judge_value(row, sides), row
        if row.is_same_program():
            return False, "the same program, not timed", row
        key = _program_key(row)
        if reuse and key in self._known:
            worse, name = self._known[key]
            return worse, f"the same program as {name}, not timed", row
        worse, words = self._judge_time(row, sides)
        if reuse and key is not None and worse is not None:
            self._known[key] = worse, sides.head.commit[:12]
        return worse, words, row

    def _judge_value(self, row: Row, sides: Sides) -> tuple[bool | None, str]:
        row.changes = [each for each in row.changes if each.metric == self.metric]
        confirm([row], sides, self.rules, self.core, self.say)
        if row.problems or not row.changes:
            return None, _why_unknown(row) or f"it has no {self.metric} here"
        return row.changes[0].word == "worse", row.changes[0].word

    def _judge_time(self, row: Row, sides: Sides) -> tuple[bool | None, str]:
        deadline = time.monotonic() + self.rules.timing.budget_s
        # orders
        Session(sides, self.rules, self.core, deadline, random.Random(), self.say).run([row])  # noqa: S311
        if row.problems or row.evidence is None or row.evidence.verdict == UNDECIDED:
            return None, _why_unknown(
                row
            ) or "undecided: the noise needs more pairs or a longer timing.budget_s"
        program = "its program differs" if "head" in row.programs else "its program is not known"
        slower = row.evidence.verdict != NOT_SLOWER
        return slower, f"{'slower' if slower else 'not slower'}; timed, for {program}"


def _program_key(row: Row) -> tuple[str, int] | None:
    """Return what decides a commit's time, where the suite says that its program does."""
    program = row.programs.get("head")
    if program is None or not program.timed_is_program:
        return None
    return program.identity, int(row.replies["head"].get("second_call_compilations", 0))


def _why_unknown(row: Row) -> str:
    if row.skipped:
        return f"it asks to be skipped on {' and '.join(sorted(row.skipped))}"
    reasons: Sequence[str] = list(dict.fromkeys(row.problems.values()))
    return "; ".join(reasons)
