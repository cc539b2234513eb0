"""Everything that one run found, its exit code and its headline."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfgate.budgets import UNKNOWN, BudgetFinding
from perfgate.config import find_rules
from perfgate.metrics import bound
from perfgate.rows import Judged, Outcome, Row
from perfgate.source.changes import has_same_bytes
from perfgate.source.sides import Sides
from perfgate.verdict import BROKEN_BEFORE

EXIT_WORDS = {0: "PASSED", 1: "FAILED", 3: "COULD NOT TELL"}


@dataclass(frozen=True)
class Coverage:
    """The limits of what a run has measured.

    Attributes:
        not_imported: changed Python files that none of the benchmarks with known imports imported.
        num_known: how many benchmarks have known imports, since they started no other process.
        measures: the changed files of the suite and its rules. A reviewer should look at a change
            that alters its own measurement.
    """

    not_imported: Sequence[str] = ()
    num_known: int = 0
    measures: Sequence[str] = ()


def cover(rows: Sequence[Row], sides: Sides) -> Coverage:
    """Compare the changed files with those that benchmarks imported on head."""
    footprints = [row.head.footprint for row in rows if row.head.footprint is not None]
    imported = {file for each in footprints for file in each.imported}
    num_known = sum(each.has_all_imports for each in footprints)
    not_imported = [
        str(path)
        for path in sides.changed_code
        if path.suffix == ".py" and str(path) not in imported and (sides.head.root / path).is_file()
    ]
    measures = [*sides.changed_suite]
    for file in find_rules(sides.head.root / sides.config.folder):
        if file.is_relative_to(sides.head.root):
            name = file.relative_to(sides.head.root)
            if not has_same_bytes(sides.base.root / name, file):
                measures.append(name.as_posix())
    return Coverage(not_imported if num_known else (), num_known, measures)


@dataclass(frozen=True)
class Result:
    """Everything one run found.

    Attributes:
        rows: every benchmark with its verdict.
        budgets: whether head keeps each budget.
        base: the merge base's commit.
        head: head's commit, or the working tree.
        reproduce: the command that repeats a row, without --bench.
        environments: whether there was one or two, and why.
        coverage: what the run could not see.
        machine: facts about it.
        notes: what the run could not control.
        timing: whether anything was timed.
        nothing_matters: why no benchmark had to be run; empty if they were.
        elapsed_s: seconds of the whole run.
        seed: the seed of every random order.
    """

    rows: Sequence[Judged]
    budgets: Sequence[BudgetFinding]
    base: str
    head: str
    reproduce: Sequence[str]
    environments: str
    coverage: Coverage = field(default_factory=Coverage)
    machine: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    timing: bool = True
    nothing_matters: str = ""
    elapsed_s: float = 0.0
    seed: int = 0

    @property
    def exit_code(self) -> int:
        """1 for a regression, 3 if something or everything could not be decided, 0 otherwise."""
        outcomes = {row.outcome for row in self.rows}
        if Outcome.FAILED in outcomes or self.count_budgets("missed"):
            return 1
        unknown = {Outcome.UNMEASURED, Outcome.UNDECIDED} & outcomes or self.count_budgets(*UNKNOWN)
        measured = outcomes - {Outcome.NEUTRAL, Outcome.OPEN} or any(
            row.verdict == "not timed" for row in self.rows
        )
        return 3 if unknown or not (measured or self.nothing_matters) else 0

    @property
    def not_reached(self) -> list[str]:
        """The names of the rows that the end of the run cut off."""
        return [each.name for each in self.rows if each.row.not_reached]

    def count_budgets(self, *words: str) -> int:
        """Return how many budgets have one of these results."""
        return sum(each.word in words for each in self.budgets)

    @property
    def launches(self) -> int:
        """How often a row was launched, at most."""
        evidence = (each.row.evidence for each in self.rows)
        return max((len(each.launches) for each in evidence if each is not None), default=0)

    @property
    def worst(self) -> float:
        """The largest upper bound of a row that was timed and passed; 0 if there is none."""
        return max(
            (
                each.row.evidence.ratio()[2]
                for each in self.rows
                if each.row.evidence and each.outcome in (Outcome.PASSED, Outcome.WARNED)
            ),
            default=0.0,
        )

    @property
    def headline(self) -> str:
        """The verdict in one sentence."""
        not_reached = self.not_reached
        count = Counter(row.outcome for row in self.rows if row.name not in not_reached)
        missed = self.count_budgets("missed")
        unknown = self.count_budgets(*UNKNOWN)
        parts = [
            (count[Outcome.FAILED], "regressed"),
            (missed, f"budget{_plural(missed)} missed"),
            (count[Outcome.UNMEASURED], "could not be measured"),
            (count[Outcome.UNDECIDED], "undecided"),
            (len(not_reached), "not reached"),
            (unknown, f"budget{_plural(unknown)} could not be checked"),
        ]
        found = [f"{number} {words}" for number, words in parts if number]
        if self.nothing_matters:
            found = [f"{self.nothing_matters}, so nothing was measured"]
        elif self.exit_code == 0:
            is_known = 0 < self.worst < math.inf
            passed = (
                f"nothing slower than {bound(self.worst)}" if is_known else "no regression found"
            )
            found = [passed, *found]
        elif not found:
            found = ["nothing was measured"]
        broken = sum(row.verdict == BROKEN_BEFORE for row in self.rows)
        if broken:
            found.append(f"{broken} broken on the base too")
        words = ", ".join(found)
        num_rows = len(self.rows)
        return (
            f"{EXIT_WORDS[self.exit_code]}: {words}; {num_rows} benchmark{_plural(num_rows)} in all"
        )


def _plural(count: int) -> str:
    return "" if count == 1 else "s"
