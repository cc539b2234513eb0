"""How long a run may time: its own budget, or what the limit of the whole run leaves."""

import math

import pytest

from perfgate.compare import first_runs_s, timing_budget_s
from perfgate.config import Timing


@pytest.mark.parametrize(
    ("elapsed_s", "left_s"), [(10.0, 300.0), (60.0, 300.0), (200.0, 160.0), (900.0, 0.0)]
)
def test_timing_gets_what_the_limit_of_the_run_leaves(elapsed_s, left_s):
    timing = Timing(budget_s=300.0, run_s=360.0)
    assert timing_budget_s(timing, elapsed_s) == left_s


@pytest.mark.parametrize(("run_s", "seconds"), [(0.0, math.inf), (360.0, 285.0), (100.0, 75.0)])
def test_the_first_runs_leave_a_quarter_of_the_budget_to_the_timing(run_s, seconds):
    assert first_runs_s(Timing(budget_s=300.0, run_s=run_s)) == seconds


def test_without_a_limit_of_the_run_the_budget_is_whole_and_a_flag_overrides_both():
    assert timing_budget_s(Timing(budget_s=300.0), elapsed_s=900.0) == 300.0
    assert timing_budget_s(Timing(budget_s=300.0, run_s=10.0), 900.0, asked_s=600.0) == 600.0
    assert timing_budget_s(Timing(budget_s=300.0), 0.0, asked_s=0.0) == 0.0
