"""Rows whose inputs are drawn anew: runs are kept, and too many false alarms are an exit code."""

import csv

import pytest

from ci.validation import random_sizes
from ci.validation.random_sizes import main
from perfgate import machine


@pytest.fixture
def few_rows(monkeypatch):
    monkeypatch.setattr(random_sizes, "NUM_TIMED", 2)
    monkeypatch.setattr(random_sizes, "NUM_TRACKED", 1)
    monkeypatch.setattr(random_sizes, "NUM_PEAKS", 1)


def read(folder):
    with (folder / "random_sizes.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_comment_is_no_change_and_a_run_may_measure_all_the_same(tmp_path, few_rows, capsys):
    output = ["--output", str(tmp_path)]
    assert main(["--runs", "1", *output]) == 0
    assert main(["--runs", "1", "--time-identical", "--budget", "1", *output]) == 0
    unmeasured, measured = read(tmp_path)
    assert unmeasured["exit_code"] == "0"
    assert unmeasured["pairs"] == "0"
    assert "4 same code" in unmeasured["verdicts"]
    assert measured["benchmarks"] == "4"
    assert "same code" not in measured["verdicts"]
    assert "1 runs: 1 with 0" in capsys.readouterr().out


def test_a_second_call_makes_the_missing_runs_and_two_alarms_in_a_hundred_are_too_many(
    tmp_path, monkeypatch
):
    codes = iter([0, 1, *[0] * 97, 1])
    report = {"rows": [], "pairs": 0, "machine": machine.describe()}
    monkeypatch.setattr(random_sizes, "run_gate", lambda *a: (next(codes), report, 1.0))
    output = ["--output", str(tmp_path)]
    assert main(["--runs", "1", *output]) == 0
    assert main(["--runs", "99", *output]) == 1
    assert main(["--runs", "100", *output]) == 1
    assert [row["exit_code"] for row in read(tmp_path)].count("1") == 2
