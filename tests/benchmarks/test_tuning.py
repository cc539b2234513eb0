"""The suite of tuning: a trial can be called again and again, and the command writes its rows."""

import pytest

from benchmarks import tuning
from benchmarks.harness.results import read_csv
from benchmarks.tuning import TracedTrial, main

pytestmark = pytest.mark.slow


def test_a_trial_runs_as_often_as_it_is_called():
    suite = TracedTrial()
    suite.num_updates = 1
    suite.setup("bucket-brigade-ppo")
    for _ in range(2):
        suite.time_trial("bucket-brigade-ppo")
    assert suite.population.updates_done(suite.state).tolist() == [1]


def test_a_campaign_is_measured_from_nothing_and_again(tmp_path, capsys, monkeypatch):
    space = tmp_path / "space.toml"
    space.write_text(tuning._ONE_SHAPE)
    launch = tuning._launch
    monkeypatch.setattr(
        tuning, "_launch", lambda *args, **fields: launch(*args, space=str(space), **fields)
    )
    argv = ["--part", "campaign", "--runs", "1", "--trials", "2"]
    assert main([*argv, "--output", str(tmp_path / "t.csv")]) == 0
    rows = {row["arm"]: float(row["run_s"]) for row in read_csv(tmp_path / "t.csv")}
    assert list(rows) == ["campaign: nothing compiled", "campaign: compiled"]
    assert all(seconds > 0 for seconds in rows.values())
    assert "share of steps" in capsys.readouterr().out
