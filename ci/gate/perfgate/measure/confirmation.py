"""Measure suspect values of a clock or of the operating system again, in fresh processes.

The same launches measure all suspect metrics of a row. These tests share the run's error and its
time budget with the timed rows.
"""

import dataclasses
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from perfgate.config import CHANGED, SAME, UNSURE, WORSE, Direction, MetricRule, Rules
from perfgate.measure.inspection import inspect_afresh
from perfgate.measure.workers import SKIPPED_NOW, Say
from perfgate.metrics import compare_metrics
from perfgate.source.sides import Sides
from perfgate.stages import Change, Inspected
from perfgate.stats.rounds import weigh


@dataclass
class _Suspect:
    """A metric that looked worse, and its values in fresh processes so far.

    Attributes:
        change: the change as first measured.
        rule: the rule that judges it.
        alpha: how often a false suspicion may be confirmed.
        rounds: the same metric in fresh processes.
    """

    change: Change
    rule: MetricRule
    alpha: float
    rounds: list[Change] = field(default_factory=list)
    is_lost: bool = False

    @property
    def direction(self) -> Direction:
        return "more" if self.change.head > self.change.base else "less"

    @property
    def suspicion(self) -> float:
        return self.rule.excess(self.change.base, self.change.head, self.direction)

    def verdict(self, *, is_last: bool = False) -> bool | None:
        """Say whether it is worse; None if it takes another round to tell."""
        if self.is_lost:
            return False
        excess = [self.rule.excess(each.base, each.head, self.direction) for each in self.rounds]
        return weigh(excess, self.alpha, is_last=is_last)

    def settled(self) -> Change:
        """Return the change as its rounds show it."""
        word = {True: self.change.word, False: SAME, None: UNSURE}[self.verdict(is_last=True)]
        if not self.rounds:
            return dataclasses.replace(self.change, word=word)
        base = statistics.median(each.base for each in self.rounds)
        head = statistics.median(each.head for each in self.rounds)
        return dataclasses.replace(self.change, base=base, head=head, word=word)


@dataclass(frozen=True)
class Confirmation:
    """Measures the suspect values of one run again.

    Attributes:
        sides: the two commits.
        rules: they say how much error is allowed.
        core: the core that single-core benchmarks are pinned to; None if pinning isn't possible.
        deadline: when the budget ends, on the clock of `time.monotonic`.
        say: prints progress.
    """

    sides: Sides
    rules: Rules
    core: int | None
    deadline: float
    say: Say

    def run(self, rows: Sequence[Inspected], num_tests: int) -> list[Inspected]:
        """Measure suspect values again, the rows with the largest excess first.

        Args:
            rows: every row of the run.
            num_tests: the number of tests that share the error.
        """
        limits = self.rules.verdict.limits
        alpha = limits.false_alarms / max(1, num_tests)
        suspects = {row.name: self._suspects(row, alpha) for row in rows}
        by_suspicion = sorted(
            (row for row in rows if suspects[row.name]),
            key=lambda row: -max(each.suspicion for each in suspects[row.name].values()),
        )
        seen = {row.name: row for row in rows}
        for row in by_suspicion:
            seen[row.name] = self._confirm(row, suspects[row.name])
        return [seen[row.name] for row in rows]

    def _suspects(self, row: Inspected, alpha: float) -> dict[str, _Suspect]:
        found = suspect_changes(row, self.rules)
        rules = {each.metric: self.rules.rule_of(each.metric, row.name) for each in found}
        return {each.metric: _Suspect(each, rules[each.metric], alpha) for each in found}

    def _confirm(self, row: Inspected, suspects: dict[str, _Suspect]) -> Inspected:
        core = None if self.rules.cores_of(row.name) > 1 else self.core
        self.say(f"measuring {', '.join(suspects)} of {row.name} again")
        launched = 0
        while time.monotonic() < self.deadline:
            still_open = [each for each in suspects.values() if each.verdict() is None]
            if not still_open:
                break
            # The sides run one after the other, because the metric may be a time. Each side goes
            # first equally often.
            order = (self.sides.base, self.sides.head)
            if launched % 2:
                order = (self.sides.head, self.sides.base)
            launched += 1
            again = inspect_afresh(row.benchmark, order, self.sides, core)
            if not again.is_comparable:
                skipped = dict.fromkeys(again.skipped, SKIPPED_NOW)
                return row.with_problems({**skipped, **again.problems})
            found = {each.metric: each for each in compare_metrics(again, self.rules)}
            for suspect in still_open:
                if suspect.change.metric in found:
                    suspect.rounds.append(found[suspect.change.metric])
                else:  # the machine may not count it any more
                    suspect.is_lost = True
        settled = {name: each.settled() for name, each in suspects.items()}
        changes = tuple(settled.get(each.metric, each) for each in row.changes)
        return dataclasses.replace(row, changes=changes)


def suspect_changes(row: Inspected, rules: Rules) -> list[Change]:
    """Return the metrics of a clock or of the system that look worse and are not accepted."""
    looks_bad = [each for each in row.changes if each.word in (WORSE, CHANGED)]
    clocks = [each for each in looks_bad if rules.rule_of(each.metric, row.name).is_measured]
    return [each for each in clocks if not each.accepted]
