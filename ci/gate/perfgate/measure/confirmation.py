"""A second look at what a clock or the operating system made suspect: in fresh processes, until it is plain."""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Literal

from perfgate.config import Rules
from perfgate.measure.inspection import Say, inspect_afresh
from perfgate.source.sides import Sides
from perfgate.verdict import SKIPPED_NOW, Change, Row, compare_metrics

# Four rounds whose bases and heads stand wholly apart are enough: by chance once in 70. A
# neighbour's burst in one round, or a slow minute that both sides share, must not hide what the
# others show; so seven rounds are weighed as pairs by their signed ranks (Wilcoxon 1945), of which
# 2 at most may speak against it: by chance once in 42.
_APART, _WEIGHED = 4, 7
_FORGIVEN = 1
_MOST_AGAINST = 2


def confirm(rows: Sequence[Row], sides: Sides, rules: Rules, core: int | None, say: Say) -> None:
    """Measure suspect values of a clock or of the operating system again, in fresh processes that alternate."""
    for row in rows:
        for number, change in enumerate(row.changes):
            if change.word == "worse" and rules.rule_of(change.metric, row.name).clock:
                say(f"measuring {change.metric} of {row.name} again")
                place = None if rules.cores_of(row.name) > 1 else core
                row.changes[number] = _confirmed(row, change, sides, rules, place)


def settled(rounds: Sequence[Change]) -> Literal["worse", "same"] | None:
    """Say what rounds of fresh processes make of a suspect change; None where another round must tell."""
    not_worse = sum(each.word != "worse" for each in rounds)
    if not_worse > _FORGIVEN:
        return "same"
    if len(rounds) == _APART and not not_worse and _are_apart(rounds):
        return "worse"
    if len(rounds) < _WEIGHED:
        return None
    return "worse" if _ranks_against(rounds) <= _MOST_AGAINST else "same"


def _are_apart(rounds: Sequence[Change]) -> bool:
    bases, heads = [each.base for each in rounds], [each.head for each in rounds]
    return min(heads) > max(bases) or max(heads) < min(bases)


def _ranks_against(rounds: Sequence[Change]) -> int:
    """Sum the ranks, by the size of their change, of the rounds that go the rarer way or none; ties rank highest."""
    # Of the larger value: ranks as a ratio does, and is there for a zero too.
    changes = [
        (each.head - each.base) / (max(abs(each.base), abs(each.head)) or 1.0) for each in rounds
    ]
    ranks = [sum(abs(other) <= abs(change) for other in changes) for change in changes]
    ranked = list(zip(changes, ranks, strict=True))
    return min(sum(rank for change, rank in ranked if sign * change <= 0) for sign in (1, -1))


def _confirmed(row: Row, change: Change, sides: Sides, rules: Rules, core: int | None) -> Change:
    rounds: list[Change] = []
    while (word := settled(rounds)) is None:
        again = Row(row.benchmark)
        # One after the other, since what is measured may be a time; each as often the first as the
        # other.
        for side in (sides.base, sides.head)[:: -1 if len(rounds) % 2 else 1]:
            inspect_afresh(again, {side: core}, sides)
        if not again.is_comparable:
            row.problems |= again.problems
            row.problems |= dict.fromkeys(again.skipped, SKIPPED_NOW)
            return change
        found = [each for each in compare_metrics(again, rules) if each.metric == change.metric]
        if not found:  # it may be countable no longer
            return dataclasses.replace(change, word="same")
        rounds += found
    base, head = (
        statistics.median(getattr(each, side) for each in rounds) for side in ("base", "head")
    )
    return dataclasses.replace(change, base=base, head=head, word=word)
