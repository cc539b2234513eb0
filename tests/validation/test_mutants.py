"""What the gate is tested with and told here fits the code: the known changes, and our rules."""

import re

import pytest

from ci.validation.mutants import ORDINARY, ROOT, UNSEEN, mutants
from perfgate.config import Rules, find_rules, read_rules
from perfgate.measure.discovery import _benchmarks
from perfgate.worker import listing


@pytest.mark.parametrize(
    "mutant",
    [*mutants(), *mutants(UNSEEN), *mutants(ORDINARY)],
    ids=lambda mutant: mutant.name,
)
def test_a_mutant_changes_what_is_there(mutant):
    for file, old, new in mutant.edits:
        assert old in (ROOT / file).read_text(encoding="utf-8")
        assert old != new
    re.compile(mutant.cause)


def test_our_rules_keep_the_statistics_and_our_budgets_name_benchmarks_that_there_are():
    rules = read_rules(*find_rules(ROOT))
    assert rules.verdict == Rules().verdict
    assert rules.metric
    listed = listing.list_suite(ROOT / "benchmarks").benchmarks
    names = [each.row for each in _benchmarks(listed, 60.0)]
    assert len(rules.budget) == 3
    for budget in rules.budget:
        assert [name for name in names if re.search(budget.benchmark, name)], budget
        assert budget.over in {"", *names}
