"""The gate's statistics: Student's quantiles, and how often its decisions err, by simulation."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from perfgate.config import Verdicts
from perfgate.stats.evidence import (
    NOT_SLOWER,
    SLOWER,
    UNDECIDED,
    Evidence,
    Plan,
    noise,
    t_quantile,
    trimmed_mean,
)

NUM_ROWS = 20
NUM_SUITES = 2_000


def replay(plan, first, fresh):
    """Return the verdicts and numbers of pairs that `Evidence` would give, for many rows at once.

    With `Evidence`, a row that gets much faster may take a few more pairs.
    """
    (verdict, pairs), (confirmed, more) = map(decide, (plan.suspect, plan.confirm), (first, fresh))
    suspected = verdict == SLOWER
    return np.where(suspected, confirmed, verdict), pairs + np.where(suspected, more, 0)


def decide(test, log_ratios):
    """Return the first decision of one test, and how many pairs it took."""
    verdict = np.full(log_ratios.shape[:-1], UNDECIDED)
    pairs = np.full(verdict.shape, test.looks[-1])
    for look, count in enumerate(test.looks):
        is_open = verdict == UNDECIDED
        verdict = np.where(is_open, test.weigh(log_ratios, look), verdict)
        pairs = np.where(is_open & (verdict != UNDECIDED), count, pairs)
    return verdict, pairs


def simulate(draw):
    """Draw log ratios of this shape for suites, and return their verdicts and numbers of pairs."""
    plan = Plan.make(Verdicts(), NUM_ROWS)
    shapes = ((NUM_SUITES, NUM_ROWS, test.looks[-1]) for test in (plan.suspect, plan.confirm))
    return replay(plan, *map(draw, shapes))


def measured(ratio):
    """Draw with the measured noise: 0.8-2.1% between pairs, 2.3-3.5% between calls."""
    rng = np.random.default_rng(0)
    of_a_median = math.sqrt(math.pi / 2 / 12)
    within = rng.uniform(0.023, 0.035, (1, NUM_ROWS, 1)) * of_a_median
    sd = np.hypot(rng.uniform(0.008, 0.021, (1, NUM_ROWS, 1)), within)
    return simulate(lambda shape: math.log(ratio) + sd * rng.standard_normal(shape))


def with_unlucky_workers(ratio, share=0.07):
    """Draw as if a share of the workers, on either side, took 1.5 times as long."""
    rng = np.random.default_rng(1)

    def draw(shape):
        luck = math.log(1.5) * rng.choice([-1.0, 1.0], shape) * (rng.random(shape) < share)
        return math.log(ratio) + luck + 0.015 * rng.standard_normal(shape)

    return simulate(draw)


@pytest.mark.parametrize("num_pairs", [2, 4, 9, 24, 48])
def test_failing_takes_as_many_signs_as_a_coin_gives_too_seldom(num_pairs):
    plan = Plan.make(Verdicts(looks=(num_pairs, 60)), 20)
    for fewest, count in zip(plan.suspect.fail_above, plan.suspect.looks, strict=True):
        tails = [binom.sf(alike - 1, count, 0.5) for alike in range(count + 1)]
        rare = [alike for alike, tail in enumerate(tails) if tail <= plan.suspect.alpha]
        assert fewest == min(rare, default=count + 1)


@pytest.mark.slow
@pytest.mark.parametrize("drawn", [measured, with_unlucky_workers])
def test_slowdowns_are_found_as_often_as_promised_and_seldom_where_there_are_none(drawn):
    for ratio in (1.0, 1.005):
        verdicts, pairs = drawn(ratio)
        assert (verdicts == SLOWER).any(axis=1).mean() <= 0.005
        if ratio == 1.0:
            assert (verdicts == NOT_SLOWER).mean() > 0.99
            assert pairs.mean() < 11
    small, _ = drawn(1.03)
    assert (small == SLOWER).mean() >= 0.90
    assert (small == NOT_SLOWER).mean() <= 0.05
    assert (drawn(1.05)[0] == SLOWER).mean() >= 0.98


def test_a_large_slowdown_takes_as_many_pairs_as_its_signs_need():
    assert measured(2.0)[1].mean() < 9 + 4 + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("luck", [(-0.05, 0.0, 0.0, 0.05), (-0.05, 0.05), (-0.025, 0.025)])
def test_luck_of_two_kinds_is_no_slowdown(luck):
    """Where half of all workers are slower, a few equal pairs look certain to a t-test."""
    rng = np.random.default_rng(2)
    verdicts, _ = simulate(
        lambda shape: rng.choice(luck, shape) + 0.003 * rng.standard_normal(shape)
    )
    assert (verdicts == SLOWER).any(axis=1).mean() <= 0.01


def test_the_last_look_can_always_fail():
    plan = Plan.make(Verdicts(looks=(2, 3), confirm_looks=(2,)), 1_000)
    assert all(math.isfinite(test.fail_t[-1]) for test in (plan.suspect, plan.confirm))


@pytest.mark.slow
@pytest.mark.parametrize("num_pairs", [4, 9, 24])
def test_the_trimmed_mean_errs_as_often_as_it_says(num_pairs):
    rng = np.random.default_rng(num_pairs)
    mean, error = trimmed_mean(rng.standard_normal((200_000, num_pairs)))
    degrees = num_pairs - 2 * (max(0, num_pairs - 3) // 5) - 1
    assert (mean / error > t_quantile(0.01, degrees)).mean() == pytest.approx(0.01, rel=0.4)


def test_the_trimmed_mean_leaves_out_a_fifth_at_either_end():
    pairs = np.array([3.0, -1e6, 1.0, 2.0, 4.0, 5.0, 1e6, 6.0])
    mean, error = trimmed_mean(pairs)
    moved = np.array([1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 6.0])
    assert mean == pytest.approx(3.5)
    assert error == pytest.approx(math.sqrt(((moved - 3.5) ** 2).sum() / (6 * 5)))
    assert noise(pairs) == pytest.approx(error * math.sqrt(8))
    assert trimmed_mean(np.array([0.0, 0.0, 0.0, 1e6]))[0] == 2.5e5


def test_the_replay_decides_as_the_live_evidence_does():
    rng = np.random.default_rng(3)
    plan = Plan.make(Verdicts(), 5)
    first = 0.02 + 0.015 * rng.standard_normal((40, plan.suspect.looks[-1]))
    fresh = 0.02 + 0.015 * rng.standard_normal((40, plan.confirm.looks[-1]))
    verdicts, pairs = replay(plan, first, fresh)
    for row, (early, late) in enumerate(zip(first, fresh, strict=True)):
        evidence, queues = Evidence(plan), (iter(early), iter(late))
        while not evidence.done:
            evidence.add(next(queues[evidence.suspected]))
        assert (evidence.verdict, evidence.num_pairs) == (verdicts[row], pairs[row])
    assert {UNDECIDED, NOT_SLOWER, SLOWER} >= set(verdicts)


def _ended(ratio, num_pairs, sd=0.012, num_rows=4_000):
    """Return the verdicts of rows whose time was spent after so many pairs."""
    rng = np.random.default_rng(num_pairs)
    plan, verdicts = Plan.make(Verdicts(), NUM_ROWS), []
    for _ in range(num_rows):
        evidence = Evidence(plan)
        while not evidence.done and evidence.num_pairs < num_pairs:
            evidence.add(float(math.log(ratio) + sd * rng.standard_normal()))
        evidence.end()
        verdicts.append(evidence.verdict)
    return np.array(verdicts)


def test_where_the_time_is_spent_between_two_looks_what_there_is_decides():
    plan = Plan.make(Verdicts(), 4)
    evidence = Evidence(plan)
    for value in (0.015, -0.015, 0.015, -0.015, 0.015, -0.015, 0.01, -0.01, 0.01, -0.01, 0.0):
        evidence.add(value)
    assert not evidence.done
    evidence.end()
    assert (evidence.done, evidence.verdict) == (True, NOT_SLOWER)
    assert evidence.ratio()[2] < Verdicts().pass_ratio


@pytest.mark.slow
@pytest.mark.parametrize("num_pairs", [4, 9, 11])
def test_a_look_at_the_end_keeps_to_the_error_that_is_allowed(num_pairs):
    assert (_ended(1.03, num_pairs) == NOT_SLOWER).mean() <= Verdicts().miss_beta
    if num_pairs == 9:  # the last look spends what is left
        assert (_ended(1.0, num_pairs) == NOT_SLOWER).mean() > 0.99


def test_a_suspicion_at_the_end_stays_one():
    evidence = Evidence(Plan.make(Verdicts(), 1))
    for value in (0.02, 0.06) * 6:
        evidence.add(value)
    assert not evidence.suspected
    evidence.end()
    assert (evidence.suspected, evidence.verdict, evidence.done) == (True, UNDECIDED, False)
    for value in (0.30, 0.30, 0.31, 0.30, 0.30):
        evidence.add(value)
    assert evidence.verdict == SLOWER


@pytest.mark.parametrize("num_pairs", [0, 3, 4])
def test_too_few_pairs_or_too_noisy_ones_change_nothing_at_the_end(num_pairs):
    evidence = Evidence(Plan.make(Verdicts(), 4))
    for number in range(num_pairs):
        evidence.add(0.05 * (-1) ** number)
    evidence.end()
    assert (evidence.verdict, evidence.done) == (UNDECIDED, False)


def test_more_rows_ask_for_more_evidence():
    few, many = Plan.make(Verdicts(), 2), Plan.make(Verdicts(), 50)
    assert all(a <= b for a, b in zip(few.suspect.fail_t, many.suspect.fail_t, strict=True))
    assert few.suspect.fail_t[-1] < many.suspect.fail_t[-1]
    assert few.suspect.pass_t == many.suspect.pass_t


def test_the_interval_agrees_with_the_verdict():
    evidence = Evidence(Plan.make(Verdicts(), 4))
    rng = np.random.default_rng(5)
    while not evidence.done:
        evidence.add(float(0.001 + 0.008 * rng.standard_normal()))
    ratio, low, high = evidence.ratio()
    assert evidence.verdict == NOT_SLOWER
    assert low < ratio < high < Verdicts().pass_ratio


def test_a_sure_win_is_called_faster():
    evidence = Evidence(Plan.make(Verdicts(), 4))
    for _ in range(2):
        for value in (-0.30, -0.31, -0.29, -0.30):
            evidence.add(value)
        assert not evidence.is_faster()  # signs can't show it yet: the row stays open
    evidence.add(-0.3)
    assert evidence.verdict == NOT_SLOWER
    assert evidence.is_faster()


def test_a_win_in_some_launches_alone_is_no_win_and_keeps_no_row_open():
    evidence = Evidence(Plan.make(Verdicts(), 4))
    for value in (-0.30, -0.30, 0.001, -0.30, -0.30, -0.30, -0.30, 0.001, -0.30):
        evidence.add(value)
    assert (evidence.done, evidence.verdict) == (True, NOT_SLOWER)
    assert not evidence.is_faster()


def test_the_smallest_detectable_slowdown_is_found_as_often_as_promised():
    plan, sd = Plan.make(Verdicts(), NUM_ROWS), 0.015
    rng = np.random.default_rng(9)
    ratio = plan.smallest_detectable(noise(sd * rng.standard_normal(100_000)))
    last = math.log(ratio) + sd * rng.standard_normal((20_000, plan.suspect.looks[-1]))
    mean, error = trimmed_mean(last)
    found = mean - plan.suspect.fail_t[-1] * error > plan.suspect.fail_log
    assert found.mean() == pytest.approx(0.95, abs=0.02)
