"""Callbacks of a user's own: when they are called, what they read and set, and how they end."""

import time
from functools import partialmethod

import jax
import numpy as np
import pytest

from myriad import make_env, resume, train_and_evaluate
from myriad.envs.vector import require_changeable
from myriad.errors import InvalidArgumentError
from myriad.training.callbacks import Callback
from myriad.xla import count_compilations
from tests.bits import assert_same_bits
from tests.training.small import SEEDS, First, assert_same_run, small_config


class Events(Callback):
    """Remembers each call, with the update and the steps at which it came."""

    def __init__(self, name=""):
        self.name = name
        self.events = []

    def note(self, hook, run):
        self.events.append((self.name + hook, run.update, run.steps))

    on_start = partialmethod(note, "start")
    on_update = partialmethod(note, "update")
    on_evaluation = partialmethod(note, "evaluation")
    on_checkpoint = partialmethod(note, "checkpoint")
    on_end = partialmethod(note, "end")


class StopsAtOnce(Callback):
    def on_start(self, run):
        run.stop()


def train(folder, *callbacks, **fields):
    return train_and_evaluate(small_config(**fields), folder, quiet=True, callbacks=callbacks)


@pytest.mark.slow
def test_each_is_called_after_the_one_before_and_ends_before_it(whole, tmp_path):
    first, second = Events("1 "), Events("2 ")
    first.events = second.events
    # Two chunks for each evaluation.
    fields = {"scan_chunk_size": 32, "checkpoint_every_s": 0.0}
    assert_same_run(train(tmp_path / "run", first, second, **fields), whole)
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
    class Reads(First):
        def on_start(self, run):
            super().on_start(run)
            assert run.rows == []
            self.start = time.perf_counter()

        def on_update(self, run):
            time.sleep(0.05)
            with pytest.raises(InvalidArgumentError, match="read it in on_evaluation"):
                _ = run.agent_state

        def on_evaluation(self, run):
            assert run.new_rows == run.rows[-1:]
            assert (run.folder / "metrics.jsonl").read_text().count("\n") == run.evaluations
            assert (run.monitor["update"], run.total_steps) == (run.update, 1024)

        def on_end(self, run):
            self.run, self.last = run, run.agent_state
            assert 0.2 <= run.seconds["log"] <= sum(run.seconds.values())
            assert sum(run.seconds.values()) <= time.perf_counter() - self.start

    reads = Reads()
    results = train(tmp_path / "run", reads)
    assert reads.run.config == results.config
    returns = [row["return"] for row in results.evaluations]
    assert [row["eval_return"] for row in reads.run.rows] == returns
    assert reads.run.seconds["train"] == results.timings.train_s
    assert_same_bits(reads.last, results.agent_state)
    assert not all(jax.tree.leaves(jax.tree.map(np.array_equal, reads.state, reads.last)))


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


class Sets(Callback):
    """Sets gravity by the update, and ends the process's part at one of them."""

    def __init__(self, gravity, stop_at=None):
        self.gravity = gravity
        self.stop_at = stop_at
        self.seen = []

    def on_start(self, run):
        self.seen.append(run.env_params["gravity"])
        if not run.update:
            self.on_evaluation(run)

    def on_evaluation(self, run):
        if run.update in self.gravity:
            run.set_env(gravity=self.gravity[run.update])
        if run.update == self.stop_at:
            run.stop()


SCHEDULE = {0: 3, 8: 20.1, 24: 9.8}


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{}, {"seeds": [*SEEDS]}], ids=str)
def test_a_value_acts_from_the_next_update_on_is_named_by_rows_and_survives_a_resume(
    fields, tmp_path
):
    compiled = []

    class Counts(Callback):
        def on_start(self, run):
            self.counting = count_compilations()
            compiled.append(self.counting.__enter__())

        def on_end(self, run):
            self.counting.__exit__(None, None, None)

    whole = train(tmp_path / "whole", Sets(SCHEDULE), Counts(), **fields)
    assert not {"jit(run)", "jit(of_all)", "jit(_evaluate)"} & set(compiled[0].names)
    found = [row["env/gravity"] for row in whole.training if row.get("seed", 3) == 3]
    assert found == [3, 20.1, 20.1, 9.8]
    assert "gravity = 9.8" in (whole.run_folder / "config.toml").read_text()
    # The evaluation after the first window plays other dynamics than the window had.
    plain = train(tmp_path / "plain", **fields)
    assert "env/gravity" not in plain.training.columns
    assert plain.training[0]["loss"] != whole.training[0]["loss"]

    train(tmp_path / "parts", Sets(SCHEDULE, stop_at=16), **fields)
    later = Sets(SCHEDULE)
    assert_same_run(resume(tmp_path / "parts", quiet=True, callbacks=[later]), whole)
    np.testing.assert_array_equal(later.seen, [20.1])


@pytest.mark.slow
def test_an_evaluation_plays_what_the_configuration_says(tmp_path):
    # A pole that is pushed as hard falls within a few steps.
    class Pushes(Callback):
        def on_start(self, run):
            run.set_env(force=500.0)

    balanced = {"agent": "pid", "eval_rollouts": 2}
    heavy = train(tmp_path / "heavy", Pushes(), **balanced)
    plain = train(tmp_path / "plain", **balanced)
    assert list(heavy.evaluations) == list(plain.evaluations)
    assert heavy.training[-1]["episodes"] > plain.training[-1]["episodes"]


def test_what_cannot_change_in_a_training_is_refused(tmp_path):
    said = []

    class Tries(Callback):
        def on_start(self, run):
            for values in ({"max_steps": 7}, {"x_threshold": 1.0}, {"gravty": 1}, {"tau": -1}):
                with pytest.raises(ValueError, match=next(iter(values))) as caught:
                    run.set_env(**values)
                said.append(str(caught.value))

        def on_update(self, run):
            with pytest.raises(InvalidArgumentError, match="in on_start and on_evaluation only"):
                run.set_env(gravity=1.0)

    train(tmp_path, Tries(), agent="random", steps_per_env=64)
    assert all("can't change without compiling" in each for each in said[:2])
    assert "did you mean 'gravity'" in said[2]


def test_a_pool_of_first_states_is_named_where_it_keeps_a_parameter():
    env = make_env("cartpole", reset_pool=4)
    with pytest.raises(InvalidArgumentError, match="gravity can't be set, since the reset_pool"):
        require_changeable(env, "gravity")
