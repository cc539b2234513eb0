"""The changes that `python -m ci.validation.mutants` tries on the gate still fit the code."""

import re

import pytest

from ci.validation.mutants import ORDINARY, ROOT, UNSEEN, mutants


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
