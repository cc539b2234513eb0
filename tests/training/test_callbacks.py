"""Callbacks of a user's own: when they are called, what they read, and how they end a training."""

import time

import jax
import numpy as np
import pytest

from myriad import resume, train_and_evaluate
from myriad.errors import InvalidArgumentError
from myriad.training.callbacks import Callback
from tests.bits import assert_same_bits
from tests.training.small import assert_same_run, small_config


class Events(Callback):
    """Remembers each call, with the update and the steps at which it came."""

    def __init__(self, name=""):
        self.name = name
        self.events = []

    def note(self, hook, run):
        self.events.append((self.name + hook, run.update, run.steps))

    def on_start(self, run):
        self.note("start", run)

    def on_update(self, run):
        self.note("update", run)

    def on_evaluation(self, run):
        self.note("evaluation", run)

    def on_checkpoint(self, run):
        self.note("checkpoint", run)

    def on_end(self, run):
        self.note("end", run)


class StopsAtOnce(Callback):
    def on_start(self, run):
        run.stop()


def train(folder, *callbacks, **fields):
    # Two chunks for each evaluation.
    config = small_config(scan_chunk_size=32, **fields)
    return train_and_evaluate(config, folder, quiet=True, callbacks=callbacks)


@pytest.mark.slow
def test_each_is_called_after_the_one_before_and_ends_before_it(whole, tmp_path):
    first, second = Events("1 "), Events("2 ")
    first.events = second.events
    results = train(tmp_path / "run", first, second, checkpoint_every_s=0.0)
    assert_same_run(results, whole)
    of_first = [event for event in first.events if event[0].startswith("1 ")]
    expected = [("start", 0)]
    for update in (8, 16, 24, 32):
        expected += [("update", update - 4), ("update", update)]
        expected += [("evaluation", update), ("checkpoint", update)]
    expected += [("end", 32)]
    assert of_first == [(f"1 {hook}", update, update * 32) for hook, update in expected]
    both = [name for name, *_ in first.events]
    assert both[:4] == ["1 start", "2 start", "1 update", "2 update"]
    assert both[-2:] == ["2 end", "1 end"]


@pytest.mark.slow
def test_a_callback_reads_what_the_results_hold_and_its_time_is_counted_once(tmp_path):
    class Reads(Callback):
        def on_start(self, run):
            assert run.rows == []
            self.start = time.perf_counter()
            self.first = run.agent_state

        def on_update(self, run):
            time.sleep(0.05)
            with pytest.raises(InvalidArgumentError, match="read it in on_evaluation"):
                _ = run.agent_state

        def on_evaluation(self, run):
            assert run.new_rows == run.rows[-1:]
            assert (run.folder / "metrics.jsonl").read_text().count("\n") == run.evaluations
            assert run.monitor["update"] == run.update
            assert run.total_steps == 1024
            assert run.steps_per_s > 0

        def on_end(self, run):
            self.run = run
            self.last = run.agent_state
            assert 0.4 <= run.seconds["log"] <= sum(run.seconds.values())
            assert sum(run.seconds.values()) <= time.perf_counter() - self.start

    reads = Reads()
    results = train(tmp_path / "run", reads)
    assert reads.run.config == results.config
    assert [row["eval_return"] for row in reads.run.rows] == [
        row["return"] for row in results.evaluations
    ]
    assert reads.run.seconds["train"] == results.timings.train_s
    assert_same_bits(reads.last, results.agent_state)
    assert not all(jax.tree.leaves(jax.tree.map(np.array_equal, reads.first, reads.last)))


@pytest.mark.slow
def test_a_run_that_is_ended_at_its_start_has_one_evaluation(tmp_path):
    run = tmp_path / "run"
    results = train(run, StopsAtOnce())
    assert results.stopped == "callback"
    assert [row["update"] for row in results.evaluations] == [8]
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["8"]
    events = Events()
    assert_same_run(resume(run, quiet=True, callbacks=[events, StopsAtOnce()]), results)
    assert [name for name, *_ in events.events] == ["start", "end"]


@pytest.mark.slow
def test_a_callback_that_fails_at_the_start_leaves_no_folder(tmp_path):
    class Refuses(Callback):
        def on_start(self, run):
            raise ZeroDivisionError

    events = Events()
    with pytest.raises(ZeroDivisionError):
        train(tmp_path / "run", events, Refuses())
    assert [name for name, *_ in events.events] == ["start", "end"]
    assert not (tmp_path / "run").exists()
