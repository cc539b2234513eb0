"""Bang-bang and PID: their laws on numbers, and how they hold what they are meant to hold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import create_config, make_env, make_key, train_and_evaluate
from myriad.agents import AGENTS, make_learner
from myriad.spaces import Box, Discrete
from myriad.training.loop import LearningLoop
from tests.agents.plain_networks import Unplayed


class Level(Unplayed):
    """Its observation is the error itself."""

    def control_error(self, obs):
        return obs[0]


ERROR = Box(-3.0, 3.0, (1,))


def outputs(agent, errors):
    memory, actions = agent.first_memory(), []
    for error in errors:
        action, memory = agent.control(memory, make_key(0), jnp.asarray([error], jnp.float32))
        actions.append(np.asarray(action).item())
    return actions


def test_bang_bang_switches_where_the_error_leaves_the_band():
    plain, banded = (
        AGENTS.load("bangbang").create(Level(ERROR, Discrete(2)), hysteresis=each)
        for each in (0.0, 0.5)
    )
    assert outputs(plain, [0.1, -0.1, 0.1]) == [1, 0, 1]
    assert outputs(banded, [0.4, 0.6, 0.1, -0.4, -0.6, 0.4]) == [0, 1, 1, 1, 0, 0]


def test_pid_follows_its_law_in_numpy():
    gains = {"proportional": 0.2, "integral": 0.05, "derivative": 0.3, "limit": 0.15}
    errors = np.random.default_rng(0).uniform(-1, 1, 50).astype(np.float32)
    total, last, expected = 0.0, None, []
    for error in errors:
        total = np.clip(total + 0.05 * error, -0.15, 0.15)
        change = 0.0 if last is None else error - last
        expected.append(3.0 * np.clip(0.2 * error + total + 0.3 * change, -1, 1))
        last = error
    pid = AGENTS.load("pid")
    got = outputs(pid.create(Level(ERROR, ERROR), **gains), errors)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    # An output spans the discrete actions.
    of_five = pid.create(Level(ERROR, Discrete(5)), proportional=1.0, derivative=0.0)
    assert outputs(of_five, [-2.0, -0.5, 0.0, 0.5, 2.0]) == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_pid_balances_the_pole_in_every_evaluation(tmp_path):
    config = create_config("cartpole", "pid", steps_per_env=600, eval_frequency=300)
    results = train_and_evaluate(config, tmp_path / "run")
    assert [row["return"] for row in results.evaluations] == [500.0, 500.0]
    assert results.training[-1]["return"] == 500.0


def test_a_memory_starts_afresh_with_the_episode():
    env = make_env("cartpole", max_steps=3)
    learner = make_learner("pid", env)
    loop = LearningLoop(env, learner, 4)
    run = jax.jit(loop.run)
    state = jax.jit(loop.init)(make_key(0))
    for expected in (1.0, 1.0, 0.0, 1.0):
        state, _ = run(state, np.int32(1), np.bool_(0))
        np.testing.assert_array_equal(state.agent.started, expected)
