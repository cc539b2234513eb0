"""In which order rows are run and timed."""

import json
import math

import pytest

from perfgate.compare import cheapest_first
from perfgate.config import Timing
from perfgate.measure.pairing import Open, affordable, quads_of
from perfgate.process.protocol import Calibration, FirstRun
from perfgate.rows import Benchmark, Row, SideRun
from perfgate.stats.evidence import Evidence


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
    # First calls that take longer put a row first until it was launched.
    slow, even = row_of("slow", first=(1.0, 1.3)), row_of("even", first=(1.0, 1.2))
    assert slow.urgency > even.urgency
    slow = row_of("slow", [0.0, 0.0], first=(1.0, 2.0))
    assert slow.urgency < row_of("even", [0.1, 0.1]).urgency
    # What would not pass now comes before what would, however sure that is to be a little slower.
    passes, scatters = row_of("passes", [0.02, 0.02]), row_of("scatters", [-0.2, 0.1], 0.1)
    assert passes.evidence.suspicion() > scatters.evidence.suspicion()
    assert passes.urgency < scatters.urgency


@pytest.mark.parametrize(
    ("seconds", "wall_s", "expected", "share"),
    [
        ((0.001, 0.001), 0.010, (10, 24, 2), 7),  # quads of 40 ms
        # a quad of 120 ms: 12 of them are longer than `pair_s`
        ((0.03, 0.03), 0.03, (10, 12, 2), 4),
        ((1.0, 1.0), 1.0, (10, 1, 1), 4),
        ((0.001, 0.02), 0.01, (10, 1, 1), 4),  # one is enough to see that
    ],
)
def test_a_launch_times_12_to_24_quads_or_as_many_as_its_time_allows(
    seconds, wall_s, expected, share
):
    found = [Calibration(10, seconds=each, wall_s=wall_s, is_work=True) for each in seconds]
    _, quads, turns = expected
    assert quads_of(found, Timing(pair_s=1.0), share_s=math.inf) == expected
    assert quads_of(found, Timing(pair_s=1.0), share_s=0.3) == (10, min(quads, share), turns)


def test_the_cheapest_rows_are_looked_at_first_as_far_as_the_last_report_knows(tmp_path):
    kinds = {"new": "time", "quick": "time", "raw": "timeraw"}
    kinds |= {"tuned": "track", "peak": "peakmemory"}
    rows = [Row(Benchmark(name, name, None, kind, 60.0)) for name, kind in kinds.items()]
    rows.insert(0, Row(Benchmark("slow", "slow", None, "time", 300.0)))
    report = tmp_path / "gate.json"
    unknown = ["raw", "new", "quick", "slow", "tuned", "peak"]
    assert [row.name for row in cheapest_first(rows, report)] == unknown
    seconds = {"slow": 30.0, "quick": 0.3, "raw": 0.1, "tuned": 20.0, "peak": 0.5}
    last = [{"name": name, "looked_s": taken} for name, taken in seconds.items()]
    report.write_text(json.dumps({"rows": last}))
    order = ["raw", "quick", "new", "slow", "peak", "tuned"]
    assert [row.name for row in cheapest_first(rows, report)] == order
    report.write_text("{")  # a killed run may have left anything
    assert [row.name for row in cheapest_first(rows, report)] == unknown
