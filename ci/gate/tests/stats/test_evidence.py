"""The gate's statistics: the estimate, the three zones, and what the evidence says meanwhile."""

import math

import numpy as np
import pytest
from scipy import stats

from perfgate.stats.evidence import (
    HOST,
    HOT,
    LOOKS,
    NOT_SLOWER,
    SLOWER,
    UNDECIDED,
    Evidence,
    estimate,
    pooled_scatter,
    t_quantile,
)

SCATTER = 0.005


def weighed(launches, limits=HOT, num_tests=20, scatter=SCATTER):
    """Return the evidence of these launches, each of which was weighed at once."""
    evidence = Evidence(limits, num_tests)
    for log_ratio in launches:
        if not evidence.done:
            evidence.add(log_ratio)
            evidence.weigh(scatter)
    return evidence


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 11, 24])
def test_the_estimate_is_yuens_with_one_left_out_at_each_end_of_five_and_two_of_eleven(size):
    values = np.random.default_rng(size).standard_normal(size)
    out = 0 if size < 5 else 1 + (size - 5) // 6
    mean, error, df = estimate(values)
    moved = stats.mstats.winsorize(values, (out / size, out / size))
    kept = size - 2 * out
    assert mean == pytest.approx(stats.trim_mean(values, out / size))
    assert error == pytest.approx(float(np.std(moved)) * math.sqrt(size / (kept - 1) / kept))
    assert df == kept - 1


def test_a_known_scatter_moderates_the_variance_as_four_more_launches_would():
    mean, error, df = estimate([0.01, 0.03], 0.02)
    assert (mean, df) == (pytest.approx(0.02), 5)
    assert error == pytest.approx(math.sqrt((4 * 0.02**2 + 2e-4) / 5 / 2))


@pytest.mark.parametrize(("df", "tail"), [(1, 0.05), (5, 0.05 / 3), (27, 1e-5)])
def test_quantiles_are_students(df, tail):
    assert t_quantile(tail, df) == pytest.approx(stats.t.isf(tail, df))


def test_the_scatter_of_a_class_is_that_of_its_rows_but_for_those_that_scatter_far_more():
    rng = np.random.default_rng(0)
    rows = [Evidence(first=list(0.01 * rng.standard_normal(4))) for _ in range(20)]
    usual = pooled_scatter(rows)
    assert usual == pytest.approx(0.01, rel=0.25)
    assert pooled_scatter([*rows, Evidence(first=[-1.0, 1.0])]) < 1.3 * usual
    quiet = [Evidence(first=[0.0, 0.0])] * 8
    assert pooled_scatter(quiet) == 0.003
    assert pooled_scatter(quiet[:7]) == pooled_scatter([]) == 0.015  # they show too little


ALONE = {"num_tests": 1, "scatter": 0.003}
# Launches, how they are weighed, the verdict, the launches that it took, and what else holds.
ENDS = [
    ([0.0, 0.001], {}, NOT_SLOWER, 2, {"passed"}),
    ([-0.3] * 2, {}, NOT_SLOWER, 2, {"passed", "faster"}),
    ([-0.3, 0.001], {"scatter": 0.003}, UNDECIDED, 2, {"passed", "open"}),
    ([0.0, 0.001], {"limits": HOST}, NOT_SLOWER, 2, {"passed"}),
    # surely slower, but by no more than a hot row may grow, and a host row
    ([0.025] * 60, {}, NOT_SLOWER, 2, set()),
    ([0.08] * 5, {"limits": HOST}, NOT_SLOWER, 2, set()),
    ([2.3] * 5, {}, SLOWER, 2 + 3, {"suspected"}),
    ([2.3] * 5, {"limits": HOST}, SLOWER, 2 + 3, {"suspected"}),
    ([0.05] * 60, {}, SLOWER, 2 + 3, {"suspected"}),
    ([0.2, 0.3] * 30, {"limits": HOST}, SLOWER, 2 + 3, {"suspected"}),
    # a suspicion without fresh launches yet, and one that they do not confirm
    ([0.05, 0.051], {}, UNDECIDED, 2, {"suspected", "open"}),
    ([0.05, 0.051, 0.0, 0.001, -0.001], {}, NOT_SLOWER, 2 + 3, {"passed", "suspected"}),
    # where half of all workers are slower, a few launches look certain to a t-test
    ([0.008, 0.06, 0.06, 0.06], ALONE, UNDECIDED, 4, {"open"}),
    ([0.009, 0.06, *[0.009] * 2, *[0.06] * 4], ALONE, UNDECIDED, 8, {"open"}),
    # after the last look the bound counts
    ([0.3, -0.3] * 30, {"scatter": 0.3}, UNDECIDED, LOOKS[-1], set()),
    ([0.086, -0.014] * 30, {"scatter": 0.05}, UNDECIDED, LOOKS[-1], {"passed"}),
]


@pytest.mark.parametrize(("launches", "options", "verdict", "taken", "traits"), ENDS)
def test_a_row_ends_in_its_zone_after_few_launches(launches, options, verdict, taken, traits):
    evidence = weighed(launches, **options)
    assert (evidence.verdict, len(evidence.launches)) == (verdict, taken)
    found = {"suspected": evidence.suspected, "open": not evidence.done}
    found |= {"faster": evidence.is_faster(), "passed": evidence.has_passed}
    assert {name for name, holds in found.items() if holds} == traits
    assert evidence.is_open_suspicion == (traits >= {"suspected", "open"})


def test_without_two_launches_nothing_bounds_the_ratio():
    for launches in ([], [0.0]):
        ratio, low, high = weighed(launches).ratio()
        assert (low, high) == (0.0, math.inf)
        assert math.isnan(ratio) is not launches
        assert not weighed(launches).has_passed


def test_the_bounds_hold_the_true_ratio_as_often_as_they_say():
    rng = np.random.default_rng(1)
    bounds = [
        Evidence(first=list(0.02 * rng.standard_normal(size)), scatter=0.02).ratio()
        for size in (2, 3, 4, 7)
        for _ in range(1_000)
    ]
    assert np.mean([high >= 1 for _, _, high in bounds]) >= 0.945
    assert np.mean([low <= 1 for _, low, _ in bounds]) >= 0.945
