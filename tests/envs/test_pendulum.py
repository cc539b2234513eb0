"""The pendulum against Gymnasium's own, transition by transition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.classic_control.pendulum import PendulumEnv

from myriad import make_key
from myriad.envs.pendulum import Pendulum, PendulumState
from myriad.spaces import Box, Discrete

ENV = Pendulum()
PARAMS = ENV.default_params
EPISODES = 64


def visited(env):
    """Play random episodes; return states before, actions and results, per step and episode."""

    def step(state, keys):
        action = jax.vmap(env.action_space(PARAMS).sample)(keys)
        after = jax.vmap(env.step, (0, 0, 0, None))(keys, state, action, PARAMS)[:5]
        return after[1], (state, action, after)

    keys = jax.random.split(make_key(3), (201, EPISODES))
    _, state = jax.vmap(env.reset, (0, None))(keys[0], PARAMS)
    return jax.device_get(jax.jit(lambda: jax.lax.scan(step, state, keys[1:])[1])())


@pytest.mark.slow
@pytest.mark.parametrize("discrete_torques", [None, 5])
def test_a_transition_equals_gymnasiums_over_ten_thousand_visited_states(discrete_torques):
    state, action, after = visited(Pendulum(discrete_torques=discrete_torques))
    assert np.abs(state.theta_dot).max() > 7
    assert np.abs(state.theta).max() > 2 * np.pi
    if discrete_torques is None:
        torque = action[..., 0]
    else:
        torque = np.linspace(-2, 2, discrete_torques)[action]
        assert set(np.unique(action)) == set(range(discrete_torques))
    obs, next_state, reward, terminated, truncated = after
    reference = PendulumEnv()
    reference.reset(seed=0)
    # Gymnasium's own step, given all states at once: its arithmetic is NumPy's.
    reference.state = np.array([state.theta, state.theta_dot], np.float64)
    expected_obs, expected_reward, *_ = reference.step(np.asarray(torque, np.float64)[None])
    # An unwrapped angle is only known to float32's own spacing, so the tolerance has a relative
    # part.
    ours = np.array([next_state.theta, next_state.theta_dot])
    np.testing.assert_allclose(ours, reference.state, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(np.moveaxis(obs, -1, 0), expected_obs, atol=2e-5)
    np.testing.assert_allclose(reward, expected_reward, rtol=1e-5, atol=1e-5)
    assert not terminated.any()
    np.testing.assert_array_equal(truncated, np.arange(1, 201)[:, None] == np.full(EPISODES, 200))


@pytest.mark.parametrize("speed", [7.99, -7.99])
def test_the_limits_of_speed_and_torque_hold(speed):
    state = PendulumState(jnp.float32(np.sign(speed) * 1.5), jnp.float32(speed), jnp.int32(0))
    reference = PendulumEnv()
    reference.reset(seed=0)
    reference.state = np.array([state.theta, state.theta_dot], np.float64)
    action = np.array([np.sign(speed) * 9], np.float32)
    _, expected_reward, *_ = reference.step(action)
    _, after, reward, *_ = ENV.step(make_key(0), state, jnp.asarray(action), PARAMS)
    assert float(after.theta_dot) == np.sign(speed) * 8 == reference.state[1]
    assert float(reward) == pytest.approx(expected_reward, rel=1e-5)


def test_the_spaces_are_gymnasiums():
    reference = PendulumEnv()
    for ours, theirs in (
        (ENV.action_space(PARAMS), reference.action_space),
        (ENV.observation_space(PARAMS), reference.observation_space),
    ):
        assert isinstance(ours, Box)
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_array_equal(np.broadcast_to(ours.low, ours.shape), theirs.low)
        np.testing.assert_array_equal(np.broadcast_to(ours.high, ours.shape), theirs.high)
    assert Pendulum(discrete_torques=7).action_space(PARAMS) == Discrete(7)
