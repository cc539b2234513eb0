"""The commits of `perfgate find`: which ones can matter, and how one compares with another.

Every commit runs the suite of BAD. So all commits are measured alike, and a benchmark that was
added after the slowdown still finds it. Each comparison runs the gate's own stages: inspection,
skipping of identical programs and paired timing.
"""

import contextlib
import dataclasses
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from perfgate.config import CHANGED, UNSURE, WORSE, Rules
from perfgate.errors import PreparationError, UsageError
from perfgate.measure.confirmation import Confirmation
from perfgate.measure.inspection import inspect
from perfgate.measure.pairing import Session
from perfgate.measure.workers import Say
from perfgate.source.changes import can_matter
from perfgate.source.environments import build_environment
from perfgate.source.git import git
from perfgate.source.sides import Side, Sides, checked_out
from perfgate.stages import Benchmark, Inspected, Listed, Timed
from perfgate.stats.evidence import NOT_SLOWER, UNDECIDED


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
    python: str
    stack: contextlib.ExitStack
    _found: dict[str, Sides] = field(default_factory=dict)

    def side(self, commit: str) -> tuple[Side, Path]:
        """Return a commit's checkout with BAD's suite in it, and a folder that lives as long."""
        sides = self._of(commit)
        return sides.base, sides.folder

    def pair(self, base: str, head: str) -> Sides:
        """Return two commits as the sides of one comparison that has its own caches."""
        sides = self._of(head)
        first, _ = self.side(base)
        second, folder = self.side(head)
        place = Path(tempfile.mkdtemp(prefix="pair-", dir=folder))
        built = [not each.import_from for each in (first, second)]
        # otherwise a difference could come from how each side is installed
        if any(built) and not all(built):
            first = self._install(first, place)
            second = self._install(second, place)
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
                checked_out(self.config_file, commit, self.bad, python=self.python)
            )
        return self._found[commit]

    def _install(self, side: Side, place: Path) -> Side:
        if not side.import_from:
            return side
        config = self._of(self.bad).config
        python = build_environment(place / "env", side.root / config.package_dir, config)
        return dataclasses.replace(side, python=python, import_from=())


@dataclass(frozen=True)
class Comparison:
    """How head compares with base.

    Attributes:
        is_worse: None if there is not enough evidence.
        words: the reason.
        row: the benchmark with everything that was measured.
    """

    is_worse: bool | None
    words: str
    row: Timed


@dataclass
class Comparer:
    """Compares two commits in one metric of one benchmark.

    Attributes:
        visits: where checkouts come from.
        benchmark: the benchmark to compare.
        metric: `time`, or one that needs no pairs.
        rules: the gate's, as BAD has them.
        core: the core that single-core benchmarks are pinned to.
        say: prints progress.
    """

    visits: Visits
    benchmark: Benchmark
    metric: str
    rules: Rules
    core: int | None
    say: Say
    _known: dict[tuple[str, int], tuple[bool, str]] = field(default_factory=dict)

    def compare(self, base: str, head: str, *, reuse: bool = True) -> Comparison:
        """Compare two commits.

        With `reuse`, a program that was compared before gets the same verdict again. That only
        holds while base stays the same.
        """
        try:
            sides = self.visits.pair(base, head)
            rows = inspect([Listed(self.benchmark)], sides, self.rules, self.core, self.say)
        except (PreparationError, UsageError) as error:
            return Comparison(None, str(error), Timed(Inspected(self.benchmark)))
        (row,) = rows
        if not row.is_comparable:
            return Comparison(None, _why_unknown(Timed(row)), Timed(row))
        if self.metric == "time":
            return self._compare_time(row, sides, reuse=reuse)
        return self._compare_value(row, sides)

    def _compare_value(self, row: Inspected, sides: Sides) -> Comparison:
        changes = tuple(each for each in row.changes if each.metric == self.metric)
        asked = dataclasses.replace(row, changes=changes)
        deadline = time.monotonic() + self.rules.timing.budget_s
        confirmation = Confirmation(sides, self.rules, self.core, deadline, self.say)
        (row,) = confirmation.run([asked], num_tests=1)
        timed = Timed(row)
        if row.problems or not row.changes:
            words = _why_unknown(timed) or f"it has no {self.metric} here"
            return Comparison(None, words, timed)
        word = row.changes[0].word
        if word == UNSURE:
            return Comparison(None, "it needs a longer timing.budget_s", timed)
        return Comparison(word in (WORSE, CHANGED), word, timed)

    def _compare_time(self, row: Inspected, sides: Sides, *, reuse: bool) -> Comparison:
        if row.is_same_program:
            return Comparison(is_worse=False, words="the same program, not timed", row=Timed(row))
        key = _program_key(row)
        if reuse and key in self._known:
            is_worse, name = self._known[key]
            return Comparison(is_worse, f"the same program as {name}, not timed", Timed(row))
        found = self._time(row, sides)
        if reuse and key is not None and found.is_worse is not None:
            self._known[key] = found.is_worse, sides.head.commit[:12]
        return found

    def _time(self, row: Inspected, sides: Sides) -> Comparison:
        deadline = time.monotonic() + self.rules.timing.budget_s
        rng = random.Random()  # noqa: S311 - orders, no secrets
        session = Session(sides, self.rules, self.core, deadline, rng, self.say)
        (timed,) = session.run([row], num_tests=1)
        if timed.problems or timed.evidence is None or timed.evidence.verdict == UNDECIDED:
            undecided = "undecided: this noise needs more pairs or a longer timing.budget_s"
            return Comparison(None, _why_unknown(timed) or undecided, timed)
        program = "its program differs" if row.head.program else "its program is unknown"
        is_worse = timed.evidence.verdict != NOT_SLOWER
        verdict = "slower" if is_worse else "not slower"
        return Comparison(is_worse, f"{verdict}; timed, for {program}", timed)


def _program_key(row: Inspected) -> tuple[str, int] | None:
    """Return the identity of a commit's program, if the suite says that only it is timed."""
    program = row.head.program
    if program is None or not program.timed_is_program:
        return None
    return program.identity, row.head.recompilations


def _why_unknown(row: Timed) -> str:
    if row.inspected.skipped:
        return f"it is skipped on {' and '.join(row.inspected.skipped)}"
    reasons: Sequence[str] = list(dict.fromkeys(row.problems.values()))
    return "; ".join(reasons)
