"""How long a run may time: its own budget, or what the limit of the whole run leaves."""

import json

import pytest

from perfgate.compare import cheapest_first, timing_budget_s
from perfgate.config import Timing
from perfgate.rows import Benchmark, Row


@pytest.mark.parametrize(
    ("elapsed_s", "left_s"), [(10.0, 300.0), (60.0, 300.0), (200.0, 160.0), (900.0, 0.0)]
)
def test_timing_gets_what_the_limit_of_the_run_leaves(elapsed_s, left_s):
    timing = Timing(budget_s=300.0, run_s=360.0)
    assert timing_budget_s(timing, elapsed_s) == left_s


def test_without_a_limit_of_the_run_the_budget_is_whole_and_a_flag_overrides_both():
    assert timing_budget_s(Timing(budget_s=300.0), elapsed_s=900.0) == 300.0
    assert timing_budget_s(Timing(budget_s=300.0, run_s=10.0), 900.0, asked_s=600.0) == 600.0
    assert timing_budget_s(Timing(budget_s=300.0), 0.0, asked_s=0.0) == 0.0


def test_the_cheapest_rows_are_looked_at_first_as_far_as_the_last_report_knows(tmp_path):
    kinds = {"slow": "time", "new": "time", "quick": "time", "raw": "timeraw"}
    kinds |= {"tuned": "track", "peak": "peakmemory"}
    rows = [Row(Benchmark(name, name, None, kind, 1.0)) for name, kind in kinds.items()]
    report = tmp_path / "gate.json"
    assert [row.name for row in cheapest_first(rows, report)] == [*kinds]
    seconds = {"slow": 30.0, "quick": 0.3, "raw": 0.1, "tuned": 20.0, "peak": 0.5}
    last = [{"name": name, "looked_s": taken} for name, taken in seconds.items()]
    report.write_text(json.dumps({"rows": last}))
    order = ["quick", "new", "slow", "raw", "peak", "tuned"]
    assert [row.name for row in cheapest_first(rows, report)] == order
    report.write_text("{")  # a killed run may have left anything
    assert [row.name for row in cheapest_first(rows, report)] == [*kinds]
