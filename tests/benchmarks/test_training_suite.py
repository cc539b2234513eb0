import pytest

from benchmarks import training
from benchmarks.harness.results import read_csv
from benchmarks.harness.workloads import Declaration, Training
from benchmarks.trainer import HostLoop
from benchmarks.training import TrainingLoop, main

EASY = Training(
    "training",
    "easy",
    "cartpole-control",
    "pqn",
    ("quick",),
    ("cpu",),
    16,
    8_192,
    target_return=9.0,
)


def declare(monkeypatch, *trainings):
    declared = Declaration(
        {},
        sanity_checks={},
        targets=(),
        trainings={"training": {each.name: each for each in trainings}},
    )
    monkeypatch.setattr(training, "load", lambda: declared)


@pytest.mark.slow
def test_a_seed_is_a_row_with_its_seconds_from_the_start_of_its_process(
    monkeypatch, tmp_path, capsys
):
    declare(monkeypatch, EASY)
    assert main(["--seeds", "2", "--output", str(tmp_path / "t.csv")]) == 0
    rows = read_csv(tmp_path / "t.csv")
    assert [(row["suite"], row["agent"], row["status"], row["num_envs"]) for row in rows] == [
        ("training", "pqn", "ok", "16")
    ] * 2
    for row in rows:
        assert 0 < float(row["compile_s"]) < float(row["run_s"])
        assert int(row["num_steps"]) <= 8_192
        assert int(row["peak_bytes"]) > 1 << 20
    assert "2 of 2" in capsys.readouterr().out


@pytest.mark.slow
def test_a_training_that_misses_its_target_fails_and_says_by_how_much(
    monkeypatch, tmp_path, capsys
):
    declare(monkeypatch, Training(**{**vars(EASY), "target_return": 600.0, "num_steps": 1_024}))
    assert main(["--seeds", "1", "--output", str(tmp_path / "t.csv")]) == 1
    (row,) = read_csv(tmp_path / "t.csv")
    assert row["status"] == "failed"
    assert "short of 600.0" in row["reason"]
    assert "0 of 1" in capsys.readouterr().out


@pytest.mark.slow
def test_the_asv_suite_times_the_trainers_own_loop():
    suite = TrainingLoop()
    suite.setup(suite.params[0])
    before = int(suite.training.state.num_updates)
    suite.time_updates(suite.params[0])
    assert int(suite.training.state.num_updates) > before
    assert suite.program(suite.params[0]).memory_analysis().argument_size_in_bytes > 0


@pytest.mark.slow
def test_the_suite_of_the_trainers_host_loop_trains_run_after_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    suite = HostLoop()
    suite.setup()
    suite.time_windows()
    rows = [path.read_text().count("\n") for path in tmp_path.glob("run-*/metrics.jsonl")]
    assert rows == [64, 64]
