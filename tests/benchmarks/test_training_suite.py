import dataclasses
import time
from types import SimpleNamespace

import pytest

import myriad
from benchmarks.harness.results import read_csv
from benchmarks.harness.trainings import train_once, trainings_table
from benchmarks.harness.workloads import Training
from benchmarks.training import fields_of, main

EASY = Training(
    *("training", "easy", "cartpole-control", "random", ("quick",), 16, 8_192), target_return=9.0
)


@pytest.mark.slow
def test_a_seed_is_a_row(declare, tmp_path):
    declare(EASY)
    assert main(["--seeds", "1", "--output", str(tmp_path / "t.csv")]) == 0
    (easy,) = read_csv(tmp_path / "t.csv")
    assert (easy["suite"], easy["agent"], easy["status"]) == ("training", "random", "ok")
    assert 0 < float(easy["compile_s"]) < float(easy["run_s"])
    assert int(easy["num_steps"]) <= 8_192
    assert int(easy["peak_bytes"]) > 1 << 20


def test_a_training_that_misses_its_target_says_by_how_much(monkeypatch):
    fields = fields_of(dataclasses.replace(EASY, target_return=600.0), 0)
    ended = SimpleNamespace(
        config=myriad.create_config(**fields),
        evaluations=[{"return": 23.4, "steps": 8_192}],
        stopped=None,
        timings=SimpleNamespace(steps_per_s=1.0, compile_s=1.0, train_s=1.0),
    )
    monkeypatch.setattr(myriad, "train_and_evaluate", lambda *_, **__: ended)
    missed = train_once(fields, time.time(), "")["row"]
    assert missed["status"] == "failed"
    assert missed["reason"] == "the return was 23.4 after 8,192 steps, short of 600.0"
    reached = missed | {"status": "ok", "reason": "", "train_s": 1.0}
    table = trainings_table(("agent",), {("random",): [missed, reached, reached]})
    assert "2 of 3" in table
    assert "to never)" in table
