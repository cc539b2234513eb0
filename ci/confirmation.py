"""A second look at what a clock or the operating system made suspect: in fresh processes, until it is plain."""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Literal

from ci.inspection import Say, inspect_afresh, sides_of
from ci.rows import Change, Row, compare_metrics
from ci.rules import Rules
from ci.sides import Sides

# After so many rounds, a change is confirmed where at most so many of them are not worse, and so many pairs of a base
# and a head stand in the wrong order (Mann & Whitney 1947): by chance once in 70 and in 76, together once in 36 at
# most. The longer way is for a neighbour's burst, which must not hide in one round what the others show.
_CONFIRMED = {4: (0, 0), 7: (1, 7)}
_FORGIVEN = max(not_worse for not_worse, _ in _CONFIRMED.values())


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
    most = _CONFIRMED.get(len(rounds))
    if most and not_worse <= most[0] and _misplaced(rounds) <= most[1]:
        return "worse"
    return "same" if len(rounds) >= max(_CONFIRMED) else None


def _misplaced(rounds: Sequence[Change]) -> int:
    """Count the pairs of any base and any head that stand in the rarer order, or in none."""
    pairs = [(base.base, head.head) for base in rounds for head in rounds]
    return min(sum(head <= base for base, head in pairs), sum(head >= base for base, head in pairs))


def _confirmed(row: Row, change: Change, sides: Sides, rules: Rules, core: int | None) -> Change:
    rounds: list[Change] = []
    while (word := settled(rounds)) is None:
        again = Row(row.benchmark)
        # One after the other, since what is measured may be a time; each as often the first as the other.
        for side in sides_of(row, sides)[:: -1 if len(rounds) % 2 else 1]:
            inspect_afresh(again, {side: core}, sides)
        if not again.is_comparable:
            row.problems |= again.problems
            row.problems |= dict.fromkeys(again.skipped, "it asks to be skipped now, and did not before")
            return change
        found = [each for each in compare_metrics(again, rules) if each.metric == change.metric]
        if not found:  # it may be countable no longer
            return dataclasses.replace(change, word="same")
        rounds += found
    base, head = (statistics.median(getattr(each, side) for each in rounds) for side in ("base", "head"))
    return dataclasses.replace(change, base=base, head=head, word=word)
