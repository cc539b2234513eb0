"""The changes that `python -m ci.validation.mutants` tries on the gate still fit the code."""

import re

import pytest

from ci.validation.mutants import ROOT, mutants


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_mutant_changes_what_is_there(mutant):
    assert mutant.old in (ROOT / mutant.file).read_text(encoding="utf-8")
    assert mutant.old != mutant.new
    re.compile(mutant.cause)


def test_there_are_enough_of_both_kinds():
    harmful = [mutant for mutant in mutants() if mutant.cause]
    assert len(harmful) >= 20
    assert len(mutants()) - len(harmful) >= 10
