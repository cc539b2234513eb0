"""The rules of the repository that perfgate is developed in; elsewhere there is nothing to test."""

import re
from pathlib import Path

import pytest

from perfgate.config import Rules, find_rules, read_rules
from perfgate.measure.discovery import _benchmarks
from perfgate.worker import listing

ROOT = Path(__file__).resolve().parents[3]
FILES = find_rules(ROOT)

pytestmark = pytest.mark.skipif(
    FILES[0] != ROOT / "ci" / "gate.toml", reason="there is no repository around perfgate"
)


def test_our_rules_are_valid_and_leave_the_statistics_as_they_are():
    rules = read_rules(*FILES)
    assert rules.verdict == Rules().verdict
    assert rules.metric


def test_our_budgets_name_benchmarks_that_there_are():
    pytest.importorskip("jax", reason="our suite needs jax")
    rows = _benchmarks(listing.list_suite(ROOT / "benchmarks").benchmarks, 60.0)
    names = [each.row for each in rows]
    budgets = read_rules(*FILES).budget
    assert len(budgets) == 3
    for budget in budgets:
        assert [name for name in names if re.search(budget.benchmark, name)], budget
        assert budget.over in {"", *names}
