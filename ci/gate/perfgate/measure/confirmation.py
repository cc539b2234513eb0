"""Measure values of a clock or of the operating system again, in fresh processes.

One look makes a value suspect. It does not tell how much the value scatters.
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
from perfgate.measure.progress import Progress
from perfgate.measure.workers import SKIPPED_NOW, TimeSpentError
from perfgate.metrics import compare_metrics
from perfgate.rows import Change, Row
from perfgate.source.sides import Sides
from perfgate.stats.rounds import weigh

_SUSPECT = (WORSE, CHANGED, UNSURE)


@dataclass
class _Suspect:
    """A metric that one look can't settle, and its values in fresh processes so far.

    Attributes:
        change: the change as last measured.
        rule: the rule that judges it.
        miss_beta: how often it may pass by chance as surely equal; None if that is not tested.
        alpha: how often the rounds may find it worse by chance.
        rounds: base and head of the same metric in fresh processes.
    """

    change: Change
    rule: MetricRule
    miss_beta: float | None
    alpha: float
    rounds: list[tuple[float, float]] = field(default_factory=list)

    @property
    def direction(self) -> Direction:
        if self.rule.worse in ("more", "less"):
            return self.rule.worse
        return "more" if self.change.head > self.change.base else "less"

    @property
    def suspicion(self) -> float:
        return self.rule.excess(self.change.base, self.change.head, self.direction)

    def verdict(self, *, is_last: bool = False) -> bool | None:
        """Say whether it is worse; None if it takes another round to tell."""
        excess = [self.rule.excess(base, head, self.direction) for base, head in self.rounds]
        return weigh(excess, self.alpha, is_last=is_last, miss_beta=self.miss_beta)

    def settled(self) -> Change:
        """Return the change as its rounds show it."""
        change = self.change
        if self.rounds:
            base, head = map(statistics.median, zip(*self.rounds, strict=True))
            change = dataclasses.replace(change, base=base, head=head, rounds=tuple(self.rounds))
        worse = CHANGED if self.rule.worse == "undeclared" else WORSE
        word = {True: worse, False: SAME, None: UNSURE}
        return dataclasses.replace(change, word=word[self.verdict(is_last=True)])


@dataclass(frozen=True)
class Confirmation:
    """Measures the suspect values of one run again.

    Attributes:
        sides: the two commits.
        rules: they say how much error is allowed.
        core: the core that single-core benchmarks are pinned to; None if pinning isn't possible.
        progress: the rows so far, and when these rounds end.
    """

    sides: Sides
    rules: Rules
    core: int | None
    progress: Progress

    def run(self, rows: Sequence[Row], num_tests: int) -> list[Row]:
        """Measure suspect values again, the rows with the largest excess first.

        Args:
            rows: every row of the run.
            num_tests: the number of tests that share the error.
        """
        alpha = self.rules.verdict.limits.false_alarms / max(1, num_tests)
        suspects = {}
        for row in rows:
            chosen = tested_changes(row, self.rules)
            suspects[row.name] = {each.metric: self._suspect(row, each, alpha) for each in chosen}
        by_suspicion = sorted(
            (row for row in rows if suspects[row.name]),
            key=lambda row: -max(each.suspicion for each in suspects[row.name].values()),
        )
        seen = {row.name: row for row in rows}
        for row in by_suspicion:
            found = self._confirm(row, suspects[row.name])
            seen[row.name] = found
            self.progress.keep([found])
        return [seen[row.name] for row in rows]

    def _suspect(self, row: Row, change: Change, alpha: float) -> _Suspect:
        rule = self.rules.rule_of(change.metric, row.name)
        # A tracked value is all that its row measures, so it passes if it surely is equal.
        miss_beta = self.rules.verdict.limits.miss_beta if change.metric == "track" else None
        return _Suspect(change, rule, miss_beta, alpha, rounds=[*change.rounds])

    def _confirm(self, row: Row, suspects: dict[str, _Suspect]) -> Row:
        core = None if self.rules.cores_of(row.name) > 1 else self.core
        launched = 0
        while time.monotonic() < self.progress.deadline:
            still_open = [each for each in suspects.values() if each.verdict() is None]
            if not still_open:
                break
            if not launched:
                self.progress.say(f"measuring {', '.join(suspects)} of {row.name} again")
            # The sides run one after the other, because the metric may be a time. Each side goes
            # first equally often.
            order = (self.sides.base, self.sides.head)
            if launched % 2:
                order = (self.sides.head, self.sides.base)
            launched += 1
            try:
                deadline = self.progress.deadline
                again = inspect_afresh(row.benchmark, order, self.sides, core, deadline)
            except TimeSpentError:
                break
            if not again.is_comparable:
                skipped = {side: f"{SKIPPED_NOW}: {why}" for side, why in again.skipped.items()}
                return row.with_problems({**skipped, **again.problems})
            found = {each.metric: each for each in compare_metrics(again, self.rules)}
            if any(each.change.metric not in found for each in still_open):
                break  # it stays unsure: the machine may not count it any more
            for suspect in still_open:
                each = found[suspect.change.metric]
                suspect.rounds.append((each.base, each.head))
        settled = {name: each.settled() for name, each in suspects.items()}
        changes = tuple(settled.get(each.metric, each) for each in row.changes)
        return dataclasses.replace(row, changes=changes)


def tested_changes(row: Row, rules: Rules) -> list[Change]:
    """Return the measured values that looked worse and may fail a row."""
    return [
        each
        for each in row.changes
        if rules.rule_of(each.metric, row.name).is_measured
        and not each.accepted
        and (each.word in _SUSPECT or each.rounds)
    ]
