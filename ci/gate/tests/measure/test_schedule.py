"""Which rows are timed where there is no time for all of them, and how a run is spread."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from gate_repository import make_repository
from perfgate.config import Verdicts
from perfgate.measure.pairing import Open, affordable
from perfgate.process.protocol import FirstRun
from perfgate.rows import Benchmark, Row, SideRun
from perfgate.stats.evidence import NOT_SLOWER, SLOWER, Evidence, Plan, usual_pairs


def undecided(name, suspicion, pairs_left, pair_s=1.0, *, has_to_be_cleared=False):
    evidence = SimpleNamespace(pairs_left=lambda usual: pairs_left)
    return SimpleNamespace(
        name=name,
        suspicion=suspicion,
        pair_s=pair_s,
        evidence=evidence,
        has_to_be_cleared=has_to_be_cleared,
    )


ROWS = [undecided("calm", -1, 10), undecided("even", 0, 10), undecided("odd", 3, 20)]


@pytest.mark.parametrize(
    ("left_s", "names"),
    [
        (1000.0, {"calm", "even", "odd"}),
        (31.0, {"even", "odd"}),
        (21.0, {"odd"}),
        (0.1, {"odd"}),  # a last pair may still be what it takes
    ],
)
def test_the_most_suspicious_rows_are_timed_first(left_s, names):
    assert {row.name for row in affordable(ROWS, left_s, 10)} == names


def test_a_row_whose_count_grew_is_urgent_until_its_pairs_clear_it():
    row = Row(Benchmark("time_it", "time_it", None, "time", 60.0))
    timed = Open(row, Evidence(Plan.make(Verdicts(), 4)), 1.0, has_grown=True)
    for pair in (-0.03, -0.031, -0.032):
        timed.evidence.add(pair)
        assert timed.has_to_be_cleared
    timed.evidence.add(-0.03)
    assert not timed.has_to_be_cleared
    assert timed.is_open  # more pairs may show that it is faster


def test_a_row_that_was_begun_is_not_dropped_before_its_first_look():
    base, head = (SideRun(FirstRun(seconds)) for seconds in (1.0, 1.2))
    row = Row(Benchmark("time_it", "time_it", None, "time", 60.0), base=base, head=head)
    timed = Open(row, Evidence(Plan.make(Verdicts(), 4)), 1.0)
    before = timed.suspicion
    for pair in (-0.01, -0.011, -0.012):
        timed.evidence.add(pair)
        assert timed.suspicion == before > 0
    timed.evidence.add(-0.01)
    assert timed.suspicion < 0


def pairs_of(rows, budget_s, rng, launch_s=4.0, pair_s=2.0, grown=()):
    """Time rows of these log ratios and this scatter within a budget, as a session does."""
    evidence = {name: Evidence(Plan.make(Verdicts(), len(rows))) for name in rows}
    while budget_s > 0 and (left := [name for name in rows if not evidence[name].done]):
        usual = usual_pairs(evidence.values())
        found = [
            undecided(
                name,
                np.nan_to_num(each.suspicion()),
                each.pairs_left(usual),
                pair_s,
                has_to_be_cleared=name in grown and each.ratio()[2] >= 1.03,
            )
            for name, each in evidence.items()
            if name in left
        ]
        chosen = {row.name for row in affordable(found, budget_s, usual)}
        budget_s -= launch_s + pair_s * len(chosen)
        for name in sorted(chosen):
            evidence[name].add(rng.normal(*rows[name]))
    for each in evidence.values():
        each.end()
    return {name: each.verdict for name, each in evidence.items()}


@pytest.mark.parametrize(("ratio", "scatter"), [(1.068, 0.03), (1.15, 0.06)])
def test_a_slow_row_among_many_is_found_on_a_busy_machine(ratio, scatter):
    """All rows had got 12 to 14 pairs each once, and none was decided."""
    rng = np.random.default_rng(0)
    rows = {f"calm {number}": (0.0, scatter) for number in range(14)}
    rows["slow"] = (math.log(ratio), scatter)
    found = [pairs_of(rows, 300.0, rng) for _ in range(20)]
    assert sum(each["slow"] == SLOWER for each in found) >= 14
    assert not any(each[name] == SLOWER for each in found for name in rows if name != "slow")


def test_what_rows_needed_tells_what_others_will_need():
    plan = Plan.make(Verdicts(), 4)
    decided, untimed = Evidence(plan), Evidence(plan)
    assert untimed.pairs_left(usual_pairs([decided, untimed])) == 10
    for pair in (0.001, -0.001, 0.0, 0.0):
        decided.add(pair)
    assert decided.verdict == NOT_SLOWER
    assert untimed.pairs_left(usual_pairs([decided, untimed])) == 4


def test_rows_whose_counts_grew_are_cleared_before_others_are_timed():
    """All of a short budget had gone once to a row that was slower by 2%, and none to these."""
    rng = np.random.default_rng(0)
    rows = {f"calm {number}": (0.0, 0.01) for number in range(30)}
    grown = {f"grown {number}": (math.log(0.97), 0.01) for number in range(5)}
    slow = {"slow": (math.log(1.02), 0.001)}
    found = pairs_of(slow | rows | grown, 150.0, rng, grown=grown)
    assert {found[name] for name in grown} == {NOT_SLOWER}


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
