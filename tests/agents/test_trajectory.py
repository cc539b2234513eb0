"""What collecting keeps: observations as they are, and the values of truncated episodes' ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import make_env, make_key
from myriad.agents import make_learner, minibatches
from myriad.agents.trajectory import act_and_step
from myriad.spaces import Box, Discrete
from myriad.training.loop import LearningLoop
from tests.agents.plain_networks import Unplayed

STEPS, ENVS = 11, 5


def choose(keys, obs):
    return jax.vmap(lambda key: jax.random.bernoulli(key).astype(jnp.int32))(keys), None


def value_of(obs):
    return 3 + obs @ jnp.array([1.0, 2.0, 3.0, 4.0])


@pytest.mark.slow
@pytest.mark.parametrize("narrow", [64, 0])
def test_an_episode_that_was_truncated_is_valued_by_its_last_observation(narrow, monkeypatch):
    monkeypatch.setattr(minibatches, "_NARROW", narrow)
    env = make_env("cartpole-control", max_steps=3)  # each episode is truncated, several a rollout
    learner = make_learner("ppo", env, rollout_steps=STEPS, num_minibatches=1)
    loop = LearningLoop(env, learner, ENVS)
    state, key = loop.init(make_key(0)), make_key(1)
    batch_state = state.batch_state
    _, _, trajectory = jax.jit(
        lambda: learner.rollout(key, state.agent, batch_state, loop, choose, value_of)
    )()
    expected = []
    for t in range(STEPS):
        batch_state, _, result = act_and_step(key, jnp.uint32(t), batch_state, choose, loop)
        is_cut = result.truncated & ~result.terminated
        expected.append(np.where(is_cut, value_of(result.final_obs), 0))
    assert np.count_nonzero(expected) == ENVS * (STEPS // 3)
    np.testing.assert_allclose(trajectory.final_value, expected, rtol=1e-5)
    np.testing.assert_array_equal(trajectory.truncated, np.array(expected) != 0)


def test_observations_keep_their_dtype():
    env = Unplayed(Box(0, 255, (4,), np.uint8), Discrete(2))
    loop = LearningLoop(env, make_learner("ppo", env, rollout_steps=4), 8)
    state = jax.eval_shape(loop.init, make_key(0))
    _, _, trajectory = jax.eval_shape(
        lambda state: loop.learner.collect(make_key(1), state.agent, state.batch_state, loop),
        state,
    )
    assert trajectory.obs.dtype == np.uint8
