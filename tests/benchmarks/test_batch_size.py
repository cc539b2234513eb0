"""The suite of batch sizes: its rows can be called again and again, and its command draws."""

import re

import pytest

from benchmarks.batch_size import BatchSize, main
from benchmarks.harness.results import read_csv
from myriad.autotune import batch


@pytest.mark.slow
@pytest.mark.parametrize("agent", BatchSize.params)
def test_a_row_runs_as_often_as_it_is_called(monkeypatch, agent):
    monkeypatch.setattr(BatchSize, "batch_size", 128)
    suite = BatchSize()
    suite.setup(agent)
    for _ in range(2):
        suite.time_learn(agent)
    assert suite.program(agent).memory_analysis().argument_size_in_bytes > 0


def test_the_command_writes_and_draws_a_row_for_every_size(monkeypatch, tmp_path, capsys):
    measured = [
        batch.BatchRate(128, 1e5, 0.9e5, 1.1e5, 1 << 20),
        batch.BatchRate(512, 2e5, 1.9e5, 2.1e5, 1 << 20),
        batch.BatchRate(2_048, None, None, None, 1 << 40, "needs 1 TiB, and 1 MiB are free"),
    ]
    monkeypatch.setattr(
        batch, "measure_arms", lambda arms, sizes, rounds: dict.fromkeys(arms, measured)
    )
    # What was refused makes the exit code 1, and the plot is drawn all the same.
    assert main(["--agent", "ppo", "--output", str(tmp_path / "b.csv")]) == 1
    arms = {row["arm"]: row["status"] for row in read_csv(tmp_path / "b.csv")}
    assert arms == {"batch 128": "ok", "batch 512": "ok", "batch 2048": "refused"}
    assert (tmp_path / "batch_sizes.png").is_file()
    said = capsys.readouterr().out
    assert f"plot:           {tmp_path / 'batch_sizes.png'}" in said


def test_an_arm_alternates_with_the_default_and_has_rows_and_a_line_of_its_own(tmp_path, capsys):
    argv = ["--fast", "--rounds", "6", "--agent", "dqn", "--arm", "default", "--arm", "precision"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "SIZES", (32, 0, 64))
        assert main([*argv, "--output", str(tmp_path / "b.csv")]) == 0
    rows = read_csv(tmp_path / "b.csv")
    names = ["batch 32", "batch 64", "precision, batch 32", "precision, batch 64"]
    assert [row["arm"] for row in rows] == names
    assert all(float(row["steps_per_s"]) > 0 for row in rows)
    assert re.search(r"\| precision \| +64 ", capsys.readouterr().out)
    assert (tmp_path / "batch_sizes.png").is_file()
