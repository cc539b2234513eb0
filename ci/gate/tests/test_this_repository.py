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


def test_our_rules_keep_the_statistics_and_our_budgets_name_benchmarks_that_there_are():
    pytest.importorskip("jax", reason="our suite needs jax")
    rules = read_rules(*FILES)
    assert rules.verdict == Rules().verdict
    assert rules.metric
    listed = listing.list_suite(ROOT / "benchmarks").benchmarks
    names = [each.row for each in _benchmarks(listed, 60.0)]
    assert len(rules.budget) == 3
    for budget in rules.budget:
        assert [name for name in names if re.search(budget.benchmark, name)], budget
        assert budget.over in {"", *names}
