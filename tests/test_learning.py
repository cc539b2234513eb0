"""The promises about learning: how they are counted, and one of them kept at a reduced size."""

from pathlib import Path

import pytest

from benchmarks import learning


def run(first, final):
    return learning.Run("cartpole-control", "ppo", 16, 0, first, 150_000, final)


def test_a_promise_counts_what_was_in_time_and_what_held():
    promise = learning.PROMISES[0]
    runs = [run(20_000, 500.0), run(60_000, 480.0), run(None, 100.0)]
    assert learning.kept(promise, runs) == (1, 2)
    assert "1 of 3 by 50,000" in learning.row(promise, runs)
    assert "2 of 3 at 475 after 150,000" in learning.row(promise, runs)


def test_rows_are_written(tmp_path: Path):
    learning.write(tmp_path / "runs.csv", [run(20_000, 500.0)])
    assert (tmp_path / "runs.csv").read_text().splitlines()[1] == "cartpole-control,ppo,16,0,20000,150000,500.0"


@pytest.mark.slow
def test_ppo_keeps_its_promise_on_a_fresh_seed():
    promise = learning.Promise("cartpole-control", "ppo", 475.0, 50_000, 1, 475.0, 60_000, 1, 1)
    result = learning.Learning(promise).train(seed=0)
    assert learning.kept(promise, [result]) == (1, 1)
