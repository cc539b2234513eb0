"""Absolute floors and ceilings that head must keep, whatever the base did."""

import re

from perfgate.config import Budget, Rules
from perfgate.verdict import Row, numbers_of

BudgetResult = tuple[Budget, str, float | None, str]
UNKNOWN = ("not measured", "no such benchmark")


def check_budgets(rows: list[Row], rules: Rules) -> list[BudgetResult]:
    """Hold head's absolute figures to the budgets: the budget, the row, its figure and the word for it.

    The words: kept, missed, missed and accepted, not measured, no such benchmark.
    """
    by_name, found = {row.name: row for row in rows}, []
    for budget in rules.budget:
        meant = [row for row in rows if _fits(budget, row)]
        for row in meant:
            figure = _figure(budget, row, by_name)
            found.append((budget, row.name, figure, _word(budget, row, figure, rules)))
        if not meant:
            found.append((budget, budget.benchmark, None, "no such benchmark"))
    return found


def _fits(budget: Budget, row: Row) -> bool:
    return row.state != "gone" and re.search(budget.benchmark, row.name) is not None


def _figure(budget: Budget, row: Row, rows: dict[str, Row]) -> float | None:
    seconds = row.median_s("head")
    if budget.metric == "seconds":
        return seconds
    if budget.metric == "rate":
        return budget.work / seconds if seconds and budget.work else None
    if budget.metric == "ratio":
        other = rows[budget.over].median_s("head") if budget.over in rows else None
        return other / seconds if seconds and other else None
    return numbers_of(row, "head").get(budget.metric)


def _word(budget: Budget, row: Row, figure: float | None, rules: Rules) -> str:
    if figure is None:
        return "not measured"
    too_low = budget.floor is not None and figure < budget.floor
    too_high = budget.ceiling is not None and figure > budget.ceiling
    if not (too_low or too_high):
        return "kept"
    return "missed, accepted" if rules.acceptance(row.name, f"budget {budget.metric}") else "missed"
