"""A second look at what a clock or the operating system made suspect.

It is measured in fresh processes until it is plain.
"""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Literal

from perfgate.config import Rules
from perfgate.measure.inspection import inspect_afresh
from perfgate.measure.workers import SKIPPED_NOW, Say
from perfgate.metrics import compare_metrics
from perfgate.source.sides import Sides
from perfgate.stages import Change, Inspected

# Four rounds whose bases and heads stand wholly apart are enough: by chance once in 70. A
# neighbour's burst in one round, or a slow minute that both sides share, must not hide what the
# others show; so seven rounds are weighed as pairs by their signed ranks (Wilcoxon 1945), of which
# 2 at most may speak against it: by chance once in 42.
_APART = 4
_WEIGHED = 7
_FORGIVEN = 1
_MOST_AGAINST = 2


def confirm(
    rows: Sequence[Inspected], sides: Sides, rules: Rules, core: int | None, say: Say
) -> list[Inspected]:
    """Measure suspect values of a clock or of the operating system again."""
    return [_confirm_row(row, sides, rules, core, say) for row in rows]


def _confirm_row(
    row: Inspected, sides: Sides, rules: Rules, core: int | None, say: Say
) -> Inspected:
    place = None if rules.cores_of(row.name) > 1 else core
    for number, change in enumerate(row.changes):
        if change.word == "worse" and rules.rule_of(change.metric, row.name).clock:
            say(f"measuring {change.metric} of {row.name} again")
            row = _confirm_change(row, number, sides, rules, place)
    return row


def _confirm_change(
    row: Inspected, number: int, sides: Sides, rules: Rules, core: int | None
) -> Inspected:
    """Return the row with one of its changes as fresh processes show it."""
    change = row.changes[number]
    rounds: list[Change] = []
    while (word := settled(rounds)) is None:
        # One after the other, since what is measured may be a time; each as often the first as the
        # other.
        order = (sides.base, sides.head)
        if len(rounds) % 2:
            order = (sides.head, sides.base)
        again = inspect_afresh(row.benchmark, order, sides, core)
        if not again.is_comparable:
            skipped = dict.fromkeys(again.skipped, SKIPPED_NOW)
            return row.with_problems({**skipped, **again.problems})
        found = [each for each in compare_metrics(again, rules) if each.metric == change.metric]
        if not found:  # it may be countable no longer
            return _with_change(row, number, dataclasses.replace(change, word="same"))
        rounds += found
    base = statistics.median(each.base for each in rounds)
    head = statistics.median(each.head for each in rounds)
    settled_change = dataclasses.replace(change, base=base, head=head, word=word)
    return _with_change(row, number, settled_change)


def _with_change(row: Inspected, number: int, change: Change) -> Inspected:
    changes = (*row.changes[:number], change, *row.changes[number + 1 :])
    return dataclasses.replace(row, changes=changes)


def settled(rounds: Sequence[Change]) -> Literal["worse", "same"] | None:
    """Say what rounds of fresh processes make of a suspect change.

    It is None where another round must tell.
    """
    not_worse = sum(each.word != "worse" for each in rounds)
    if not_worse > _FORGIVEN:
        return "same"
    if len(rounds) == _APART and not not_worse and _are_apart(rounds):
        return "worse"
    if len(rounds) < _WEIGHED:
        return None
    return "worse" if _ranks_against(rounds) <= _MOST_AGAINST else "same"


def _are_apart(rounds: Sequence[Change]) -> bool:
    bases = [each.base for each in rounds]
    heads = [each.head for each in rounds]
    return min(heads) > max(bases) or max(heads) < min(bases)


def _ranks_against(rounds: Sequence[Change]) -> int:
    """Sum the ranks of the rounds that go the rarer way or none.

    They are ranked by the size of their change; ties rank highest.
    """
    # Of the larger value: ranks as a ratio does, and is there for a zero too.
    changes = [
        (each.head - each.base) / (max(abs(each.base), abs(each.head)) or 1.0) for each in rounds
    ]
    ranks = [sum(abs(other) <= abs(change) for other in changes) for change in changes]
    ranked = list(zip(changes, ranks, strict=True))
    return min(sum(rank for change, rank in ranked if sign * change <= 0) for sign in (1, -1))
