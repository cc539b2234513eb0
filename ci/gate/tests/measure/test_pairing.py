"""How long a launch lasts, which rows it times, and in which order they are looked at."""

import json
import math

import pytest

from perfgate.compare import cheapest_first
from perfgate.config import Timing
from perfgate.measure.pairing import Open, affordable, quads_of
from perfgate.process.protocol import Calibration, FirstRun
from perfgate.rows import Benchmark, Row, SideRun
from perfgate.stats.evidence import Evidence


@pytest.mark.parametrize(
    ("seconds", "wall_s", "expected", "share"),
    [
        ((0.001, 0.001), 0.010, (24, 2), 7),  # quads of 40 ms
        ((0.03, 0.03), 0.03, (12, 2), 4),  # a quad of 120 ms: 12 of them are longer than `pair_s`
        ((1.0, 1.0), 1.0, (1, 1), 4),
        ((0.001, 0.02), 0.01, (1, 1), 4),  # one call is enough to see that
    ],
)
def test_a_launch_times_12_to_24_quads_or_as_many_as_its_time_allows(
    seconds, wall_s, expected, share
):
    found = [Calibration(10, seconds=each, wall_s=wall_s, is_work=True) for each in seconds]
    quads, turns = expected
    assert quads_of(found, Timing(pair_s=1.0), share_s=math.inf) == (10, quads, turns)
    assert quads_of(found, Timing(pair_s=1.0), share_s=0.3) == (10, min(quads, share), turns)


def test_the_most_urgent_rows_come_first_and_no_more_than_time_can_decide():
    rows = []
    launches_of = {"calm": [-0.05, 0.04], "odd": [0.02, 0.12], "grown": [-0.06, 0.06]}
    for name, launches in launches_of.items():
        row = Row(Benchmark(name, name, None, "time", 60.0), SideRun(FirstRun(1.0)))
        evidence = Evidence(num_tests=20)
        for log_ratio in launches:
            evidence.add(log_ratio)
            evidence.weigh(0.06)
        rows.append(Open(row, evidence, 1.0, has_grown=name == "grown"))
    needed = {row.row.name: row.evidence.launches_left() for row in rows}
    for left_s, expected in (
        (sum(needed.values()), ["odd", "grown", "calm"]),
        (needed["odd"] + needed["calm"], ["odd", "calm"]),
        (0.1, ["odd"]),
    ):
        assert [row.row.name for row in affordable(rows, left_s)] == expected
    assert [row.row.name for row in affordable(rows[:1], 0.1)] == ["calm"]


def test_the_cheapest_rows_are_looked_at_first_as_far_as_the_last_report_knows(tmp_path):
    kinds = {"slow": "time", "new": "time", "quick": "time", "raw": "timeraw", "tuned": "track"}
    rows = [Row(Benchmark(name, name, None, kind, 60.0)) for name, kind in kinds.items()]
    report = tmp_path / "gate.json"
    known = [{"name": "slow", "looked_s": 30}, {"name": "quick", "looked_s": 1}]
    for text, order in (
        ("{", ["raw", "slow", "new", "quick", "tuned"]),  # a killed run may have left anything
        (json.dumps({"rows": known}), ["raw", "quick", "new", "slow", "tuned"]),
    ):
        report.write_text(text)
        assert [row.name for row in cheapest_first(rows, report)] == order
