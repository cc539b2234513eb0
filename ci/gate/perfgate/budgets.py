"""Absolute floors and ceilings that head must keep, whatever the base did."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfgate.config import Budget, Rules
from perfgate.metrics import numbers_of
from perfgate.stages import NotRun, Timed

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
        word: kept, missed, missed and accepted, not measured, or no such benchmark.
    """

    budget: Budget
    row: str
    figure: float | None
    word: str


def check_budgets(rows: Sequence[Timed], rules: Rules) -> list[BudgetFinding]:
    """Compare head's absolute figures with the budgets."""
    by_name = {row.name: row for row in rows}
    found = []
    for budget in rules.budget:
        meant = [row for row in rows if _fits(budget, row)]
        for row in meant:
            figure = _figure(budget, row, by_name)
            word = _word(budget, row, figure, rules)
            found.append(BudgetFinding(budget, row.name, figure, word))
        if not meant:
            found.append(BudgetFinding(budget, budget.benchmark, None, NO_SUCH_BENCHMARK))
    return found


def keep_selected(found: Sequence[BudgetFinding], rows: Sequence[Timed]) -> list[BudgetFinding]:
    """Leave out budgets that need a benchmark which this run did not select."""
    names = {"", *(row.name for row in rows)}
    known = [each for each in found if each.word != NO_SUCH_BENCHMARK]
    return [each for each in known if each.budget.over in names]


def keep_untimed(found: Sequence[BudgetFinding], rows: Sequence[Timed]) -> list[BudgetFinding]:
    """Leave out budgets that need a clock, for a run without timing."""
    put_off = {row.name for row in rows if row.inspected.put_off}
    counted = [each for each in found if each.budget.metric not in _CLOCKS]
    return [each for each in counted if each.row not in put_off]


def keep_run(found: Sequence[BudgetFinding], rows: Sequence[Timed]) -> list[BudgetFinding]:
    """Leave out budgets of rows that need not run: their figures can't have changed."""
    not_run = {row.name for row in rows if row.inspected.not_run not in (None, NotRun.TIME)}
    if rows and len(not_run) == len(rows):
        return []
    return [each for each in found if each.row not in not_run]


def _fits(budget: Budget, row: Timed) -> bool:
    return row.inspected.state != "gone" and re.search(budget.benchmark, row.name) is not None


def _figure(budget: Budget, row: Timed, rows: Mapping[str, Timed]) -> float | None:
    seconds = row.median_s("head")
    if budget.metric == "seconds":
        return seconds
    if budget.metric == "rate":
        return budget.work / seconds if seconds and budget.work else None
    if budget.metric == "ratio":
        other = rows[budget.over].median_s("head") if budget.over in rows else None
        return other / seconds if seconds and other else None
    return numbers_of(row.benchmark, row.inspected.head).get(budget.metric)


def _word(budget: Budget, row: Timed, figure: float | None, rules: Rules) -> str:
    if figure is None:
        return NOT_MEASURED
    too_low = budget.floor is not None and figure < budget.floor
    too_high = budget.ceiling is not None and figure > budget.ceiling
    if not (too_low or too_high):
        return "kept"
    return "missed, accepted" if rules.acceptance(row.name, f"budget {budget.metric}") else "missed"
