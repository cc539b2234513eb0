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
from perfgate.measure.progress import Run, say
from perfgate.measure.workers import TimeSpentError
from perfgate.metrics import compare_metrics
from perfgate.process.protocol import SKIPPED_NOW
from perfgate.rows import Change, Row
from perfgate.stats.evidence import FALSE_ALARMS, MISS_BETA
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
            found = {"base": base, "head": head, "allowed": self.rule.allowed(base)}
            change = dataclasses.replace(change, rounds=tuple(self.rounds), **found)
        worse = CHANGED if self.rule.worse == "undeclared" else WORSE
        word = {True: worse, False: SAME, None: UNSURE}
        return dataclasses.replace(change, word=word[self.verdict(is_last=True)])


def confirm(run: Run, rows: Sequence[Row], num_tests: int) -> None:
    """Measure suspect values again, the rows with the largest excess first.

    Args:
        run: the run.
        rows: every row of the run.
        num_tests: the number of tests that share the error.
    """
    alpha = FALSE_ALARMS / max(1, num_tests)
    suspects: dict[str, list[_Suspect]] = {}
    for row in rows:
        for each in tested_changes(row, run.rules):
            rule = run.rules.rule_of(each.metric, row.name, row.benchmark.unit)
            # A tracked value is all that its row measures, so it passes if it surely is equal.
            miss_beta = MISS_BETA if each.metric == "track" else None
            suspect = _Suspect(each, rule, miss_beta, alpha, rounds=[*each.rounds])
            suspects.setdefault(row.name, []).append(suspect)
    seen = {row.name: row for row in rows}
    for name in sorted(suspects, key=lambda name: -max(each.suspicion for each in suspects[name])):
        run.progress.keep([_confirm(run, seen[name], suspects[name])])


def _confirm(run: Run, row: Row, suspects: Sequence[_Suspect]) -> Row:
    launched = 0
    deadline = run.progress.deadline
    while time.monotonic() < deadline:
        still_open = [each for each in suspects if each.verdict() is None]
        if not still_open:
            break
        if not launched:
            names = ", ".join(each.change.metric for each in suspects)
            say(f"measuring {names} of {row.name} again")
        # The sides run one after the other, because the metric may be a time. Each side goes
        # first equally often.
        order = [run.sides.base, run.sides.head]
        order = order[::-1] if launched % 2 else order
        launched += 1
        try:
            core = None if run.rules.cores_of(row.name) > 1 else run.core
            again = inspect_afresh(row.benchmark, order, run.sides, core, deadline)
        except TimeSpentError:
            break
        if not again.is_comparable:
            skipped = {side: f"{SKIPPED_NOW}: {why}" for side, why in again.skipped.items()}
            return row.with_problems({**skipped, **again.problems})
        found = {each.metric: each for each in compare_metrics(again, run.rules)}
        if any(each.change.metric not in found for each in still_open):
            break  # it stays unsure: the machine may not count it any more
        for suspect in still_open:
            each = found[suspect.change.metric]
            suspect.rounds.append((each.base, each.head))
    settled = {each.change.metric: each.settled() for each in suspects}
    changes = tuple(settled.get(each.metric, each) for each in row.changes)
    return dataclasses.replace(row, changes=changes)


def tested_changes(row: Row, rules: Rules) -> list[Change]:
    """Return the measured values that looked worse and may fail a row."""
    return [
        each
        for each in row.changes
        if rules.rule_of(each.metric, row.name, row.benchmark.unit).is_measured
        and not each.accepted
        and (each.word in _SUSPECT or each.rounds)
    ]
