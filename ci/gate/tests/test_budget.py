"""How long a run may time: its own budget, or what the limit of the whole run leaves."""

import json

import pytest

from gate_repository import RULES, make_repository
from perfgate import compare
from perfgate.compare import timing_budget_s
from perfgate.config import Timing


@pytest.mark.parametrize(
    ("elapsed_s", "left_s"), [(10.0, 300.0), (60.0, 300.0), (200.0, 160.0), (900.0, 75.0)]
)
def test_timing_gets_what_the_limit_of_the_run_leaves_and_a_quarter_at_least(elapsed_s, left_s):
    timing = Timing(budget_s=300.0, run_s=360.0)
    assert timing_budget_s(timing, elapsed_s) == left_s


def test_without_a_limit_of_the_run_the_budget_is_whole_and_a_flag_overrides_both():
    assert timing_budget_s(Timing(budget_s=300.0), elapsed_s=900.0) == 300.0
    assert timing_budget_s(Timing(budget_s=300.0, run_s=10.0), 900.0, asked_s=600.0) == 600.0
    assert timing_budget_s(Timing(budget_s=300.0), 0.0, asked_s=0.0) == 0.0


@pytest.mark.slow
def test_a_run_that_has_passed_its_limit_times_no_longer_than_its_least_share(
    tmp_path, monkeypatch
):
    limited = RULES.replace("[timing]", "[timing]\nbudget_s = 300\nrun_s = 0.001")
    repository = make_repository(tmp_path, limited)
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2")
    monkeypatch.setattr(compare, "_LEAST_SHARE", 0.0)
    run = repository.gate("--base", "main", "--bench", "time_cached")
    assert run.code == 3, run.out
    assert json.loads(run.report.read_text())["pairs"] == 0
