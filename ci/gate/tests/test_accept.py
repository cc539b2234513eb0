"""`perfgate accept`: what it prints for accepted.toml from the last report."""

import json
from pathlib import Path

import pytest

from perfgate.cli import main
from perfgate.config import read_accepted

ROW = "suite.time_it"


@pytest.fixture
def accept(tmp_path, monkeypatch, capsys):
    """Append what is printed for a row to accepted.toml, and return the ratios.

    If it is refused, return the error.
    """
    monkeypatch.chdir(tmp_path)

    def call(row, *flags):
        (tmp_path / "gate.json").write_text(json.dumps({"rows": [{"name": ROW} | row]}))
        given = ["accept", ROW, "--reason", "why", "--expires", "2999-01-31"]
        code = main([*given, "--report", "gate.json", *flags])
        printed, said = capsys.readouterr()
        assert said.count("\n") == 1
        if code:
            return said
        assert said == "Paste this into accepted.toml and commit it.\n"
        with Path("accepted.toml").open("a") as file:
            file.write(printed)
        return {each.metric: each.ratio for each in read_accepted(Path("accepted.toml"))}

    return call


def report_of(failed, ratio=None, **heads):
    """Return a row of a report, with head's value of each metric that is 100 on the base."""
    changes = [
        {"metric": metric, "base": 100, "head": head, "ratio": head / 100}
        for metric, head in heads.items()
    ]
    return {"failed": failed, "changes": changes, "ratio": ratio}


def test_all_that_failed_a_row_is_accepted_unless_a_metric_or_a_ratio_is_named(accept):
    row = report_of(["time", "peak_bytes"], 1.2, peak_bytes=200, copies=300)
    assert accept(row) == pytest.approx({"time": 1.2, "peak_bytes": 2.0}, abs=0.001)
    assert accept(row, "--metric", "copies")["copies"] == pytest.approx(3.0, abs=0.001)
    assert accept(row, "--ratio", "1.5")["time"] == 1.5


@pytest.mark.parametrize(
    ("row", "flags", "said"),
    [
        (report_of([]), (), f"no metric of {ROW} failed in the last report; name"),
        (report_of(["time"]), (), f"no ratio of time for {ROW}; give one with --ratio."),
        (report_of([]) | {"name": "other"}, (), f"has no benchmark {ROW!r}; write its name"),
        (report_of([]), ("--report", "none"), "there is no none; give the accepted ratio with"),
        (report_of(["time"], 1.2) | {"changes": [{}]}, (), "report"),
    ],
)
def test_what_the_report_does_not_know_is_asked_for(accept, row, flags, said):
    assert said in accept(row, *flags)


def test_a_file_that_is_not_ours_is_refused(accept, tmp_path):
    (tmp_path / "accepted.toml").write_bytes(b"\x89PNG\r\n\xff")
    assert "accepted.toml" in accept({}, "--ratio", "2", "--metric", "time")
