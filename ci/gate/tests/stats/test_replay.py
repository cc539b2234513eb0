"""The rule on recorded launches: suites drawn from them, with and without a planted slowdown.

Each line of fixtures/recorded_pairs.csv is a series of log ratios of launches, in units of 1e-5: of
a tree against itself, or of a planted slowdown. A run is a suite of 20 hot and 10 host rows, whose
launches are drawn anew from these series. One launch in 50 is an outlier of 10 to 30%.
"""

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from perfgate.stats.evidence import HOST, HOT, NOT_SLOWER, SLOWER, Evidence, pooled_scatter

RECORDED = Path(__file__).parents[1] / "fixtures" / "recorded_pairs.csv"
NUM_HOT, NUM_HOST = 20, 10
NUM_RUNS = 60
LAUNCHES = 12  # of a row, at most


def recorded(kind):
    """Return the series of one kind, each about its median."""
    with RECORDED.open(newline="", encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if kind in line["kind"]]
    series = [np.array(line["pairs"].replace(";", " ").split(), float) * 1e-5 for line in lines]
    return [each - np.median(each) for each in series]


POOLS = {HOT: recorded("itself"), HOST: recorded("planted")}


def run(rng, scale, planted=None):
    """Return the evidence of every row of one run, the first of its class the slower one."""
    rows = [Evidence(limits, NUM_HOT + NUM_HOST) for limits in [HOT] * NUM_HOT + [HOST] * NUM_HOST]
    slow = next((row for row in rows if row.limits is planted), None)
    for _ in range(LAUNCHES):
        open_rows = [row for row in rows if not row.done]
        for row in open_rows:
            pools = POOLS[row.limits]
            outlier = rng.choice([-1, 1]) * rng.uniform(0.1, 0.3) * (rng.random() < 0.02)
            shift = (math.log(1.05) if planted is HOT else math.log(1.15)) if row is slow else 0.0
            drawn = scale * rng.choice(pools[rows.index(row) % len(pools)])
            row.add(shift + drawn + outlier)
        for limits in (HOT, HOST):
            scatter = pooled_scatter(row for row in rows if row.limits is limits)
            for row in open_rows:
                if row.limits is limits:
                    row.weigh(scatter)
    return rows, slow


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1, 2])
def test_equal_code_raises_no_alarm_and_nearly_every_row_is_decided_in_few_launches(scale):
    rng = np.random.default_rng(scale)
    rows = [row for _ in range(NUM_RUNS) for row in run(rng, scale)[0]]
    assert not any(row.verdict == SLOWER for row in rows)
    assert np.mean([row.verdict == NOT_SLOWER for row in rows]) >= 0.98
    assert np.mean([len(row.launches) for row in rows]) <= 5


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1, 2])
@pytest.mark.parametrize("planted", [HOT, HOST], ids=["5% in a hot row", "15% in a host row"])
def test_a_planted_slowdown_is_found(scale, planted):
    rng = np.random.default_rng(scale)
    found = [run(rng, scale, planted)[1].verdict == SLOWER for _ in range(NUM_RUNS)]
    assert np.mean(found) >= 0.95
