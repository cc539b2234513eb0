"""Change points are found where the level changes, also for a while, and hardly ever in noise."""

import numpy as np
import pytest
from asv.step_detect import detect_steps

from made_up_results import noisy
from perfgate.stats.change_points import change_points, ratio_between

SEEDS = range(20)
# Levels as (commits, value), the noise of a value, and whether asv's own detector finds them, too.
SHAPES = {
    "bump": ([(25, 1.0), (15, 1.58), (20, 1.0)], 0.01, True),
    "lost gain": ([(20, 1.0), (20, 0.6), (20, 1.0)], 0.01, True),
    "short bump in a long series": ([(190, 1.0), (20, 2.0), (190, 1.0)], 0.01, True),
    "two steps": ([(40, 1.0), (40, 1.06), (40, 1.12)], 0.01, True),
    "edge of 8%": ([(8, 1.0), (8, 1.08)], 0.01, True),
    "bump of 8%": ([(26, 1.0), (8, 1.08), (26, 1.0)], 0.01, False),
    "edge of 20% in noise": ([(8, 1.0), (8, 1.2)], 0.05, False),
    "bump of 20% in noise": ([(26, 1.0), (8, 1.2), (26, 1.0)], 0.05, False),
}


def level(*parts: tuple[int, float]) -> np.ndarray:
    return np.concatenate([np.full(num, value) for num, value in parts])


def flat(num: int, correlation: float, seed: int) -> np.ndarray:
    """Return a series without a change whose neighbours correlate, with 1% of noise."""
    fresh = np.random.default_rng(seed).standard_normal(num + 50)
    values = fresh.copy()
    for place in range(1, len(values)):
        fresh_share = np.sqrt(1 - correlation**2)
        values[place] = correlation * values[place - 1] + fresh_share * fresh[place]
    return 1 + 0.01 * values[50:]


def finds(found: list[int], levels: np.ndarray) -> bool:
    """Tell whether each edge has a change point at most two commits away."""
    edges = np.flatnonzero(np.diff(levels)) + 1
    return all(any(abs(place - edge) <= 2 for place in found) for edge in edges)


@pytest.mark.parametrize("name", SHAPES)
def test_edges_are_found_also_where_a_level_comes_back(name):
    parts, noise, found_by_asv = SHAPES[name]
    levels = level(*parts)
    series = [noisy(levels, seed, noise) for seed in SEEDS]
    assert sum(finds(change_points(values), levels) for values in series) >= 19
    if len(levels) < 200:  # asv takes seconds for long ones
        by_asv = [[step[0] for step in detect_steps(list(values))] for values in series]
        assert (sum(finds(found, levels) for found in by_asv) >= 19) == found_by_asv


def with_outliers(seed: int) -> np.ndarray:
    values = noisy(np.ones(60), seed)
    values[seed : seed + 3] *= (0.1, 2.0, 50.0)[seed % 3]
    return values


@pytest.mark.parametrize(
    ("make", "num", "most"),
    [
        # 99.9% quantiles of the binomial distribution, where 1% and 5% are allowed
        (lambda seed: flat(60, 0.0, seed), 150, 6),
        (lambda seed: flat(60, 0.5, seed), 150, 17),
        (lambda seed: 1 + 0.01 * np.random.default_rng(seed).standard_t(3, 60), 100, 5),
        (with_outliers, 50, 2),
    ],
    ids=["white", "correlated", "heavy tails", "3 outliers"],
)
def test_a_series_without_a_change_hardly_ever_has_a_change_point(make, num, most):
    assert sum(bool(change_points(make(seed))) for seed in range(num)) <= most


def test_exact_values_change_at_the_very_commit():
    assert change_points([4096.0] * 20 + [8192.0] * 10) == [20]
    assert change_points([0.0] * 20 + [5.0] * 20) == [20]
    assert change_points([-3.0] * 10 + [-2.0] * 12) == [10]


def test_the_interval_of_a_ratio_holds_the_true_one():
    ratios = [
        ratio_between(noisy(np.ones(30), seed), noisy(np.full(20, 1.04), seed + 1000))
        for seed in range(200)
    ]
    assert sum(ratio.low <= 1.04 <= ratio.high for ratio in ratios) >= 180
