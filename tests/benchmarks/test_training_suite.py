import dataclasses
import time

import pytest

from benchmarks.harness.results import read_csv
from benchmarks.harness.trainings import train_once
from benchmarks.harness.workloads import Training
from benchmarks.training import fields_of, main, table

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
def test_a_seed_is_a_row_and_a_training_that_misses_its_target_says_by_how_much(declare, tmp_path):
    declare(EASY)
    assert main(["--seeds", "1", "--output", str(tmp_path / "t.csv")]) == 0
    (easy,) = read_csv(tmp_path / "t.csv")
    assert [easy[each] for each in ("suite", "agent", "status", "num_envs")] == [
        *("training", "pqn", "ok", "16")
    ]
    assert 0 < float(easy["compile_s"]) < float(easy["run_s"])
    assert int(easy["num_steps"]) <= 8_192
    assert int(easy["peak_bytes"]) > 1 << 20

    hard = dataclasses.replace(EASY, target_return=600.0, num_steps=1_024)
    missed = train_once(fields_of(hard, 0), time.time(), str(tmp_path))["row"]
    assert missed["status"] == "failed"
    assert "short of 600.0" in missed["reason"]
    assert "1 of 2" in table(
        [
            missed | {"env": hard.env, "agent": hard.agent, "status": status, "run_s": 1.0}
            for status in ("ok", "failed")
        ]
    )
