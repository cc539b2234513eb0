"""Measure values of a clock or of the operating system again, in fresh processes.

One look makes a value suspect. It does not tell how much the value scatters, so it is no test. The
rounds that follow must keep within the allowed error by themselves. After four, eight and twelve
rounds, a t-test asks how far they exceed the allowed change. Each look gets a third of the error
(Bonferroni). Base and head of a round are measured one after the other, so slow minutes that both
share cancel. From eight rounds on the outermost ones are left out, so that a burst on one side does
no harm (see `stats.evidence`).

The same launches measure all suspect metrics of a row. These tests share the run's error and its
time budget with the timed rows.
"""

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from perfgate.config import CHANGED, SAME, UNSURE, WORSE, Direction, MetricRule, Rules
from perfgate.measure.inspection import inspect_afresh
from perfgate.measure.run import Run, say
from perfgate.measure.workers import TimeSpentError
from perfgate.metrics import compare_metrics
from perfgate.process.protocol import SKIPPED_NOW
from perfgate.rows import Change, Row
from perfgate.stats.evidence import FALSE_ALARMS, MISS_BETA, estimate, t_quantile

LOOKS = (4, 8, 12)
_EARLIEST = 2  # fewest rounds after which a suspicion may be dropped; most false ones end here
_SUSPECT = (WORSE, CHANGED, UNSURE)


@dataclass
class _Suspect:
    """A metric that one look can't settle, and its values in fresh processes so far.

    Attributes:
        change: the change as last measured.
        rule: the rule that judges it.
        alpha: how often the rounds may find it worse by chance.
        rounds: base and head of the same metric in fresh processes.
    """

    change: Change
    rule: MetricRule
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
        # A tracked value is all that its row measures, so it passes if it surely is equal.
        miss_beta = MISS_BETA if self.change.metric == "track" else None
        return weigh(excess, self.alpha, is_last=is_last, miss_beta=miss_beta)

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
            suspect = _Suspect(each, rule, alpha, [*each.rounds])
            suspects.setdefault(row.name, []).append(suspect)
    seen = {row.name: row for row in rows}
    for name in sorted(suspects, key=lambda name: -max(each.suspicion for each in suspects[name])):
        run.keep([_confirm(run, seen[name], suspects[name])])


def _confirm(run: Run, row: Row, suspects: Sequence[_Suspect]) -> Row:
    core = None if run.rules.cores_of(row.name) > 1 else run.core
    # The sides run one after the other, because the metric may be a time. Each side goes first
    # equally often.
    order = [run.sides.base, run.sides.head]
    while still_open := [each for each in suspects if each.verdict() is None]:
        if run.is_over:
            break
        say(f"measuring {', '.join(each.change.metric for each in still_open)} of {row.name} again")
        try:
            again = inspect_afresh(row.benchmark, order, run.sides, core, run.deadline)
        except TimeSpentError:
            break
        order.reverse()
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


def weigh(
    excess: Sequence[float], alpha: float, *, is_last: bool = False, miss_beta: float | None = None
) -> bool | None:
    """Tell whether rounds confirm that a value is worse; None if it takes more rounds to tell.

    Args:
        excess: how far each round's change exceeds the allowed change.
        alpha: how often a false suspicion may be confirmed.
        is_last: whether no round will follow. Then the test is made now, and spends the share of
            the error of one look.
        miss_beta: how often a value that is worse by the allowed change may be dropped. Without it,
            a suspicion is dropped as soon as the median of its rounds is allowed.
    """
    count = len(excess)
    if count < _EARLIEST:
        return None
    if miss_beta is None:
        is_dropped = statistics.median(excess) <= 0
    else:
        is_dropped = _is_sure([-each for each in excess], miss_beta / LOOKS[-1])
    if is_dropped:
        return False
    is_look = count in LOOKS or (is_last and count > LOOKS[0])
    if is_look and _is_sure(excess, alpha / len(LOOKS)):
        return True
    return False if count >= LOOKS[-1] else None


def _is_sure(values: Sequence[float], alpha: float) -> bool:
    mean, error, df = estimate(values, left_out=max(0, len(values) - 3) // 5)
    return mean > t_quantile(alpha, df) * error
