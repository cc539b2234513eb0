"""`run.set_env` in a callback: when it acts, what remembers it, and what it refuses."""

import numpy as np
import pytest

from myriad import make_env, resume, train_and_evaluate
from myriad.envs.vector import require_changeable
from myriad.errors import InvalidArgumentError
from myriad.training.callbacks import Callback
from myriad.xla import count_compilations
from tests.training.small import SEEDS, assert_same_run, small_config


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


def train(folder, *callbacks, **fields):
    return train_and_evaluate(small_config(**fields), folder, quiet=True, callbacks=callbacks)


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
    assert said[0].startswith("max_steps can't change without compiling")
    assert said[1].startswith("x_threshold can't change without compiling")
    assert "did you mean 'gravity'" in said[2]
    assert said[3] == "tau must be a finite number above 0, but got -1."


def test_a_pool_of_first_states_is_named_where_it_keeps_a_parameter():
    env = make_env("cartpole", reset_pool=4)
    with pytest.raises(InvalidArgumentError, match="gravity can't be set, since the reset_pool"):
        require_changeable(env, "gravity")
