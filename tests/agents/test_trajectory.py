"""What collecting keeps: observations as they are, and the values of truncated episodes' ends."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import make_env, make_key
from myriad.agents import make_learner, minibatches
from myriad.agents.trajectory import act_and_step, collect
from myriad.envs.cartpole import CartPole
from myriad.spaces import Box
from myriad.training.loop import LearningLoop

STEPS, ENVS = 11, 5


@dataclasses.dataclass(frozen=True)
class Pixels(CartPole):
    """CartPole seen in bytes."""

    def reset(self, key, params):
        obs, state = super().reset(key, params)
        return obs.astype(jnp.uint8), state

    def step(self, key, state, action, params):
        obs, *rest = super().step(key, state, action, params)
        return obs.astype(jnp.uint8), *rest

    def observation_space(self, params):
        return Box(0, 255, (4,), np.uint8)


def choose(keys, obs):
    return jax.vmap(lambda key: jax.random.bernoulli(key).astype(jnp.int32))(keys), None


def value_of(obs):
    return 3 + obs @ jnp.array([1.0, 2.0, 3.0, 4.0])


@pytest.mark.slow
@pytest.mark.parametrize("narrow", [64, 0])
def test_an_episode_that_was_truncated_is_valued_by_its_last_observation(narrow, monkeypatch):
    monkeypatch.setattr(minibatches, "_NARROW", narrow)
    env = make_env("cartpole-control", max_steps=3)  # each episode is truncated, several a rollout
    loop = LearningLoop(env, make_learner("ppo", env), ENVS)
    batch_state = loop.init(make_key(0)).batch_state
    key = make_key(1)
    _, _, trajectory = jax.jit(
        lambda: collect(
            key,
            batch_state,
            jnp.zeros(ENVS),
            choose,
            loop,
            value_of,
            num_steps=STEPS,
            gamma=0.9,
        )
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
    env = Pixels()
    loop = LearningLoop(env, make_learner("ppo", env, rollout_steps=4), 8)
    state = jax.eval_shape(loop.init, make_key(0))
    _, _, trajectory = jax.eval_shape(
        lambda state: loop.learner.collect(make_key(1), state.agent, state.batch_state, loop),
        state,
    )
    assert trajectory.obs.dtype == np.uint8
    dqn = make_learner("dqn", env)
    assert jax.eval_shape(lambda: dqn.init(make_key(0), 8)).replay.columns.obs.dtype == np.uint8
