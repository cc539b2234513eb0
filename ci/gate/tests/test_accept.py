"""`perfgate accept`: what it prints for accepted.toml from the last report."""

import json
from datetime import date
from pathlib import Path

import pytest

from perfgate.cli import main
from perfgate.config import Accepted, read_accepted

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


def change(metric, base, head):
    return {"metric": metric, "base": base, "head": head, "ratio": head / base}


def report_of(failed, *changes, ratio=None):
    return {"failed": failed, "changes": changes, "ratio": ratio}


def test_by_default_all_that_failed_a_row_is_accepted(accept):
    changes = [change("peak_bytes", 100, 200), change("copies", 1, 3)]
    accepted = accept(report_of(["time", "peak_bytes"], *changes, ratio=1.2))
    assert accepted == pytest.approx({"time": 1.2, "peak_bytes": 2.0}, abs=0.001)


def test_a_metric_and_a_ratio_may_be_named(accept):
    row = report_of(["time"], change("peak_bytes", 100, 200), ratio=1.2)
    assert list(accept(row, "--metric", "peak_bytes")) == ["peak_bytes"]
    assert accept(row, "--ratio", "1.5")["time"] == 1.5


def test_what_is_printed_can_be_appended_to_what_was_accepted_before(accept):
    reason = 'needed for "exact" sums \N{SNOWMAN}'
    for ratio in ("1.5", "1.1"):
        accept({}, "--ratio", ratio, "--reason", reason)
    entries = [Accepted(ROW, "time", ratio, reason, date(2999, 1, 31)) for ratio in (1.5, 1.1)]
    assert list(read_accepted(Path("accepted.toml"))) == entries


def test_the_file_to_paste_into_is_the_one_beside_the_rules(tmp_path, monkeypatch, capsys):
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "gate.toml").touch()
    flags = ("--ratio", "2", "--reason", "why", "--expires", "2999-01-31")
    monkeypatch.chdir(tmp_path)
    assert main(["accept", ROW, *flags]) == 0
    assert "ci/accepted.toml" in capsys.readouterr().err


def test_a_row_that_did_not_fail_has_nothing_to_accept(accept):
    said = accept(report_of([], ratio=0.9))
    assert f"no metric of {ROW} failed in the last report; name" in said


@pytest.mark.parametrize("text", [b"name,age\nann,3\n", b"\x89PNG\r\n\xff", b"[[acepted]]\n"])
def test_a_file_that_is_not_ours_is_refused(text, accept, tmp_path):
    (tmp_path / "accepted.toml").write_bytes(text)
    assert "accepted.toml" in accept({}, "--ratio", "2", "--metric", "time")


@pytest.mark.parametrize(
    "changed", [{"changes": 3}, {"changes": [{}]}, {"failed": 3}, {"name": [], "x": 1}]
)
def test_a_damaged_report_is_refused(changed, accept):
    assert "report" in accept(report_of(["time"], ratio=1.2) | changed)
