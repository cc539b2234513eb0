"""`perfgate accept`: what it writes into accepted.toml from the last report."""

import json
import tomllib

import pytest

from perfgate.cli import main

ROW = "suite.time_it"


@pytest.fixture
def accept(tmp_path, monkeypatch):
    """Accept what a report says of a row, and return the entries, or None where it was refused."""
    monkeypatch.chdir(tmp_path)

    def call(row, *flags):
        (tmp_path / "gate.json").write_text(json.dumps({"rows": [{"name": ROW} | row]}))
        given = ["accept", ROW, "--reason", "why", "--expires", "2999-01-31"]
        code = main([*given, "--report", "gate.json", *flags])
        if code:
            return None
        written = tomllib.loads((tmp_path / "accepted.toml").read_text())["accepted"]
        return {each["metric"]: each["ratio"] for each in written}

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


def test_a_row_that_did_not_fail_has_nothing_to_accept(accept, capsys):
    assert accept(report_of([], ratio=0.9)) is None
    assert f"no metric of {ROW} failed in the last report; name" in capsys.readouterr().err


@pytest.mark.parametrize("text", [b"name,age\nann,3\n", b"\x89PNG\r\n\xff", b"[[acepted]]\n"])
def test_nothing_is_added_to_a_file_that_is_not_ours(text, accept, tmp_path, capsys):
    (tmp_path / "accepted.toml").write_bytes(text)
    assert accept({}, "--ratio", "2", "--metric", "time") is None
    assert "accepted.toml" in capsys.readouterr().err
    assert (tmp_path / "accepted.toml").read_bytes() == text


@pytest.mark.parametrize(
    "changed", [{"changes": 3}, {"changes": [{}]}, {"failed": 3}, {"name": [], "x": 1}]
)
def test_a_damaged_report_is_refused(changed, accept, tmp_path, capsys):
    assert accept(report_of(["time"], ratio=1.2) | changed) is None
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "accepted.toml").exists()
