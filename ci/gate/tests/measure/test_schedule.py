"""Which rows are timed where there is no time for all of them, and how a run is spread."""

import math

import numpy as np
import pytest

from gate_repository import make_repository
from perfgate.config import Timing
from perfgate.measure.pairing import Open, affordable, quads_of
from perfgate.process.protocol import Calibration, FirstRun
from perfgate.rows import Benchmark, Row, SideRun
from perfgate.stats.evidence import LOOKS, SLOWER, Evidence, pooled_scatter


def row_of(name, launches=(), scatter=0.01, first=(1.0, 1.0), launch_s=1.0, **options):
    """Return a row in the middle of its timing, after these launches."""
    base, head = (SideRun(FirstRun(seconds)) for seconds in first)
    row = Row(Benchmark(name, name, None, "time", 60.0), base=base, head=head, is_hot=True)
    evidence = Evidence(num_tests=20)
    for log_ratio in launches:
        evidence.add(log_ratio)
        evidence.weigh(scatter)
    return Open(row, evidence, launch_s, **options)


def test_the_most_urgent_rows_come_first_and_no_more_than_time_can_decide():
    rows = [
        row_of("calm", [-0.05, 0.06], 0.06),
        row_of("odd", [0.02, 0.12], 0.06),
        row_of("grown", [-0.06, 0.06], 0.06, has_grown=True),
    ]
    left = [row.evidence.launches_left() for row in rows]
    names = [
        [row.row.name for row in affordable(rows, left_s)]
        for left_s in (sum(left), left[1] + left[2], 0.1)
    ]
    assert names == [["grown", "odd", "calm"], ["grown", "odd"], ["grown"]]


def test_first_calls_that_take_longer_put_a_row_first_until_it_was_launched():
    slow, even = row_of("slow", first=(1.0, 1.3)), row_of("even", first=(1.0, 1.2))
    assert slow.urgency > even.urgency
    slow = row_of("slow", [0.0, 0.0], first=(1.0, 2.0))
    assert slow.urgency < row_of("even", [0.1, 0.1]).urgency


@pytest.mark.parametrize(
    ("seconds", "wall_s", "expected"),
    [
        ((0.001, 0.001), 0.010, (10, 24)),  # quads of 40 ms
        ((0.03, 0.03), 0.03, (10, 12)),  # a quad of 120 ms: 12 of them take longer than `pair_s`
        ((1.0, 1.0), 1.0, (10, 1)),
        ((0.001, 0.02), 0.01, (10, 1)),  # one is enough to see that
    ],
)
def test_a_launch_times_12_to_24_quads_or_as_many_as_long_calls_allow(seconds, wall_s, expected):
    found = [
        Calibration(10, fixed=False, seconds=each, wall_s=wall_s, is_work=True) for each in seconds
    ]
    assert quads_of(found, Timing(pair_s=1.0)) == expected


def verdicts_of(rows, budget_s, rng, launch_s=4.0, row_s=2.0):
    """Time rows of these log ratios and this scatter within a budget, as a session does."""
    timed = [row_of(name, launch_s=row_s) for name in rows]
    for each in timed:
        each.evidence.num_tests = len(rows)
    while budget_s > 0 and (left := [row for row in timed if row.is_open]):
        chosen = [row for row in left if len(row.evidence.launches) < LOOKS[0]]
        chosen = chosen or affordable(left, budget_s)
        budget_s -= launch_s + row_s * len(chosen)
        for row in chosen:
            row.evidence.add(rng.normal(*rows[row.row.name]))
        scatter = pooled_scatter(row.evidence for row in timed)
        for row in chosen:
            row.evidence.weigh(scatter)
    return {row.row.name: row.evidence.verdict for row in timed}


@pytest.mark.parametrize(("ratio", "scatter"), [(1.068, 0.03), (1.15, 0.06)])
def test_a_slow_row_among_many_is_found_on_a_busy_machine(ratio, scatter):
    rng = np.random.default_rng(0)
    rows = {f"calm {number}": (0.0, scatter) for number in range(14)}
    rows["slow"] = (math.log(ratio), scatter)
    found = [verdicts_of(rows, 300.0, rng) for _ in range(20)]
    assert sum(each["slow"] == SLOWER for each in found) >= 14
    assert not any(each[name] == SLOWER for each in found for name in rows if name != "slow")


@pytest.mark.slow
def test_a_shard_runs_its_part_and_budgets_of_others_are_theirs(tmp_path):
    repository = make_repository(tmp_path)
    budget = "[[budget]]\nbenchmark = 'mean'\nmetric = 'track'\nceiling = 1e9\nunit = 'units'\n"
    repository.write("gate.toml", (repository.root / "gate.toml").read_text() + budget)
    repository.write("smallsum/unused.py", "")
    flags = ("--base", "main", "--bench", "track|absent", "--shard")
    names = []
    for shard in ("1/2", "2/2"):
        run = repository.gate(*flags, shard)
        assert run.code == 0, run.out
        names += run.rows
    assert sorted(names) == [
        "basics.Absent.time_absent",
        "basics.Cached.track_note",
        "basics.track_mean",
    ]
