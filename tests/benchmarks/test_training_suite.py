import dataclasses

import pytest

from benchmarks.harness.results import read_csv
from benchmarks.harness.workloads import Training
from benchmarks.training import main

EASY = Training(
    "training",
    "easy",
    "cartpole-control",
    "pqn",
    ("quick",),
    16,
    8_192,
    target_return=9.0,
)


@pytest.mark.slow
def test_a_seed_is_a_row_and_a_training_that_misses_its_target_says_by_how_much(
    declare, tmp_path, capsys
):
    hard = dataclasses.replace(EASY, name="hard", target_return=600.0, num_steps=1_024)
    declare(EASY, hard)
    assert main(["--seeds", "1", "--output", str(tmp_path / "t.csv")]) == 1
    easy, missed = read_csv(tmp_path / "t.csv")
    assert [easy[each] for each in ("suite", "agent", "status", "num_envs")] == [
        *("training", "pqn", "ok", "16")
    ]
    assert 0 < float(easy["compile_s"]) < float(easy["run_s"])
    assert int(easy["num_steps"]) <= 8_192
    assert int(easy["peak_bytes"]) > 1 << 20
    assert missed["status"] == "failed"
    assert "short of 600.0" in missed["reason"]
    assert "1 of 2" in capsys.readouterr().out
