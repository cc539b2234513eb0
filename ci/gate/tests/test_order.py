"""In which order a run looks at its rows."""

import json

from perfgate.compare import cheapest_first
from perfgate.rows import Benchmark, Row


def test_the_cheapest_rows_are_looked_at_first_as_far_as_the_last_report_knows(tmp_path):
    kinds = {"slow": "time", "new": "time", "quick": "time", "raw": "timeraw"}
    kinds |= {"tuned": "track", "peak": "peakmemory"}
    timeouts = {"slow": 300.0}
    rows = [
        Row(Benchmark(name, name, None, kind, timeouts.get(name, 60.0)))
        for name, kind in kinds.items()
    ]
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
