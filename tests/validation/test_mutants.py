"""The changes that `python -m ci.validation.mutants` tries on the gate still fit the code."""

import re

import pytest

from ci.validation.mutants import MUTANTS, ORDINARY, ROOT, UNSEEN, mutants


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


@pytest.mark.parametrize(
    ("file", "harmful", "harmless"),
    [(MUTANTS, 20, 10), (UNSEEN, 19, 13), (ORDINARY, 0, 7)],
    ids=["known", "unseen", "ordinary"],
)
def test_there_are_enough_of_both_kinds(file, harmful, harmless):
    causes = [mutant.cause for mutant in mutants(file)]
    assert sum(bool(cause) for cause in causes) >= harmful
    assert sum(not cause for cause in causes) >= harmless
