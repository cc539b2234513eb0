"""The suite of tuning: the command writes its rows."""

import pytest

from benchmarks import tuning
from benchmarks.harness.results import read_csv
from benchmarks.harness.workloads import load
from benchmarks.tuning import main


def test_a_campaign_is_measured_from_nothing_and_again(tmp_path, capsys, monkeypatch):
    launched = []

    def launch(declared, cache, **fields):
        launched.append(cache)
        return {"total_s": 2.0, "share_of_steps": 0.5}

    monkeypatch.setattr(tuning, "_launch", launch)
    argv = ["--part", "campaign", "--runs", "1", "--trials", "2"]
    assert main([*argv, "--output", str(tmp_path / "t.csv")]) == 0
    assert launched[0] == launched[1]
    rows = {row["arm"]: float(row["run_s"]) for row in read_csv(tmp_path / "t.csv")}
    assert list(rows) == ["campaign: nothing compiled", "campaign: compiled"]
    assert all(seconds > 0 for seconds in rows.values())
    assert "share of steps" in capsys.readouterr().out


@pytest.mark.long
def test_a_campaign_runs_in_a_process_with_a_cache_of_its_own(tmp_path):
    space = tmp_path / "space.toml"
    space.write_text(tuning._ONE_SHAPE)
    declared = load().trainings["tuning"]["bucket-brigade-ppo"]
    for _ in range(2):
        reply = tuning._launch(declared, tmp_path / "cache", space=str(space), n_trials=2)
        assert reply["trials"] == 2
        assert 0 < reply["trials_s"] < reply["total_s"]
    assert list((tmp_path / "cache").iterdir())
