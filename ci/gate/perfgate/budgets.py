"""Absolute floors and ceilings that head must keep, whatever the base did."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfgate.config import Budget, Rules
from perfgate.metrics import numbers_of
from perfgate.rows import Row

NOT_MEASURED = "not measured"
NO_SUCH_BENCHMARK = "no such benchmark"
UNKNOWN = (NOT_MEASURED, NO_SUCH_BENCHMARK)
_CLOCKS = ("seconds", "rate", "ratio")


@dataclass(frozen=True)
class BudgetFinding:
    """Whether one benchmark keeps one budget.

    Attributes:
        budget: the budget.
        row: the benchmark, or the budget's pattern if it matches none.
        figure: head's value; None if it is unknown.
        word: kept, missed, missed and accepted, not measured, not checked, or no such benchmark.
    """

    budget: Budget
    row: str
    figure: float | None
    word: str


def check_budgets(
    rows: Sequence[Row], rules: Rules, *, is_part: bool = False, timing: bool = True
) -> list[BudgetFinding]:
    """Compare head's absolute figures with the budgets that a run can know of.

    Args:
        rows: the rows of the run.
        rules: they hold the budgets.
        is_part: whether the run selected only some benchmarks.
        timing: whether it times anything.
    """
    by_name = {row.name: row for row in rows}
    found = []
    for budget in rules.budget:
        if not timing and budget.metric in _CLOCKS:
            continue
        there = [row for row in rows if row.state != "gone"]
        meant = [row for row in there if re.search(budget.benchmark, row.name)]
        for row in meant:
            figure = _figure(budget, row, by_name)
            word = _word(budget, row, figure, rules)
            if is_part and budget.over not in {"", *by_name}:
                word = f"not checked, since {budget.over} was not run"
            found.append(BudgetFinding(budget, row.name, figure, word))
        if not meant and not is_part:
            found.append(BudgetFinding(budget, budget.benchmark, None, NO_SUCH_BENCHMARK))
    return found


def _figure(budget: Budget, row: Row, rows: Mapping[str, Row]) -> float | None:
    seconds = row.seconds_of("head")
    if budget.metric == "seconds":
        return seconds
    if budget.metric == "rate":
        return budget.work / seconds if seconds and budget.work else None
    if budget.metric == "ratio":
        other = rows[budget.over].seconds_of("head") if budget.over in rows else None
        return other / seconds if seconds and other else None
    return numbers_of(row.benchmark, row.head).get(budget.metric)


def _word(budget: Budget, row: Row, figure: float | None, rules: Rules) -> str:
    if figure is None:
        return NOT_MEASURED
    too_low = budget.floor is not None and figure < budget.floor
    too_high = budget.ceiling is not None and figure > budget.ceiling
    if not (too_low or too_high):
        return "kept"
    return "missed, accepted" if rules.acceptance(row.name, f"budget {budget.metric}") else "missed"
