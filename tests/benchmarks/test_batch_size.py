"""The suite of batch sizes: its rows can be called again and again."""

import pytest

from benchmarks.batch_size import BatchSize


@pytest.mark.slow
@pytest.mark.parametrize("agent", BatchSize.params)
def test_a_row_runs_as_often_as_it_is_called(monkeypatch, agent):
    monkeypatch.setattr(BatchSize, "batch_size", 128)
    suite = BatchSize()
    suite.setup(agent)
    for _ in range(2):
        suite.time_learn(agent)
    assert suite.program(agent).memory_analysis().argument_size_in_bytes > 0
