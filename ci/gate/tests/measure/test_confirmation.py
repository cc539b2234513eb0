"""What fresh processes must show before a value of a clock or of the system fails a row."""

import numpy as np
import pytest

from perfgate.config import MetricRule
from perfgate.measure.confirmation import LOOKS, weigh
from perfgate.stats.evidence import FALSE_ALARMS, MISS_BETA

RULE = MetricRule("track", "more", tolerance=0.25)


def excess(*rounds, rule=RULE):
    """Return how far each round of base and head goes beyond what the rule lets pass."""
    return [rule.excess(float(base), float(head), "more") for base, head in rounds]


def first_word(values, alpha=FALSE_ALARMS, **options):
    """Return what the first rounds that settle it say, and how many they were."""
    counts = range(len(values) + 1)
    words = ((weigh(values[:count], alpha, **options), count) for count in counts)
    return next(((word, count) for word, count in words if word is not None), None)


@pytest.mark.parametrize(
    ("rounds", "word", "count"),
    [
        ([(7.2, 13.7), (7.0, 14.1), (7.1, 13.8), (7.1, 14.0)], True, 4),
        ([(7.2, 7.1), (7.0, 7.3), (7.0, 14.0)], False, 2),
        # slow minutes that both sides share
        ([(5, 9), (10, 18), (5, 9), (11, 19), (5, 8.8), (6, 10.5), (12, 22), (5, 9)], True, None),
        # values without a ratio
        ([(0.0, 5.0)] * 4, True, 4),
        ([(5.0, 0.0)] * 4, False, 2),
        ([(-2.0, 3.0)] * 4, True, 4),
        ([(3.0, -2.0)] * 4, False, 2),
        # never sure, so it is dropped after the last round
        ([(10, 15.5), (10, 12.6), (10, 10.5), (10, 16.5), (10, 12.7), (10, 11.5)] * 2, False, 12),
    ],
)
def test_rounds_that_agree_settle_it(rounds, word, count):
    found, num_rounds = first_word(excess(*rounds))
    assert found is word
    assert count in (None, num_rounds)


def test_the_last_rounds_before_the_time_is_spent_are_weighed():
    sure = [0.5, 0.51, 0.49, 0.5, 0.52]
    noisy = [0.5, 0.1, 0.9, -0.2, 0.4]
    assert [weigh(each, 1e-4, is_last=True) for each in (sure, noisy)] == [True, None]
    assert weigh(sure[:3], 1e-4, is_last=True) is None


NOISES = {
    "normal": lambda rng, size: np.exp(rng.normal(0.0, 0.1, size)),
    "heavy": lambda rng, size: np.exp(0.05 * rng.standard_t(2, size)),
    "bursts": lambda rng, size: (
        np.exp(rng.normal(0.0, 0.03, size)) * np.where(rng.random(size) < 0.1, 2.0, 1.0)
    ),
}


@pytest.mark.parametrize(("kind", "num_rows"), [("normal", 40), ("heavy", 1), ("bursts", 40)])
def test_a_run_of_noise_alone_fails_as_rarely_as_said(kind, num_rows):
    rng = np.random.default_rng(num_rows)
    rule = MetricRule("track", "more", tolerance=0.03)
    num_runs = 20_000 // num_rows
    failed = 0
    for _ in range(num_runs):
        first = NOISES[kind](rng, (num_rows, 2))
        suspects = sum(rule.compare(base, head) == "worse" for base, head in first)
        fresh = (excess(*NOISES[kind](rng, (LOOKS[-1], 2)), rule=rule) for _ in range(suspects))
        failed += any(first_word(each, FALSE_ALARMS / suspects)[0] for each in fresh)
    # Three standard errors above what is promised.
    assert failed / num_runs <= FALSE_ALARMS + 3 * np.sqrt(FALSE_ALARMS / num_runs)


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.1])
def test_a_value_that_looked_equal_passes_once_its_spread_shows_that_it_is(noise):
    rng = np.random.default_rng(0)

    def settled(ratio):
        """Return what 200 values say that are so much larger on head, and after how many rounds."""
        rounds = (np.exp(rng.normal(0.0, noise, (LOOKS[-1], 2))) * [1, ratio] for _ in range(200))
        alpha = FALSE_ALARMS / 20
        found = (first_word(excess(*each), alpha, miss_beta=MISS_BETA) for each in rounds)
        return zip(*found, strict=True)

    words, counts = settled(1.0)
    assert not any(words)
    assert np.mean(counts) < 9
    words, _ = settled(2.0)
    assert np.mean(words) >= 0.98
