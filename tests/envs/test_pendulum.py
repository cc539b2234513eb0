"""The pendulum against Gymnasium's own, transition by transition."""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.classic_control.pendulum import PendulumEnv

from myriad import Rollout, make_agent, make_key
from myriad.envs.pendulum import Pendulum, PendulumParams, PendulumState
from myriad.errors import InvalidArgumentError
from myriad.spaces import Box, Discrete
from myriad.xla import count_compilations

ENV = Pendulum()
PARAMS = ENV.default_params
EPISODES = 64


def batched(env, axes=None):
    return jax.jit(jax.vmap(env.step, (0, 0, 0, axes)))


def visited(env, step):
    """Play random episodes; return states before, actions and results, per step and episode."""
    keys = jax.random.split(make_key(3), EPISODES)
    _, state = jax.vmap(env.reset, (0, None))(keys, PARAMS)
    sample = jax.vmap(env.action_space(PARAMS).sample)
    rows = []
    for _ in range(200):
        keys = jax.vmap(jax.random.fold_in, (0, None))(keys, 1)
        action = sample(keys)
        after = step(keys, state, action, PARAMS)
        rows.append(jax.tree.map(np.asarray, (state, action, after[:5])))
        state = after[1]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)


def assert_transitions_equal_gymnasiums(state, action, torque, after):
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


@pytest.mark.slow
def test_a_transition_equals_gymnasiums_over_ten_thousand_visited_states():
    state, action, after = visited(ENV, batched(ENV))
    assert action.shape == (200, EPISODES, 1)
    assert np.abs(state.theta_dot).max() > 7
    assert np.abs(state.theta).max() > 2 * np.pi
    assert_transitions_equal_gymnasiums(state, action, action[..., 0], after)


@pytest.mark.slow
def test_discrete_torques_are_evenly_spaced_and_follow_gymnasium():
    env = Pendulum(discrete_torques=5)
    state, action, after = visited(env, batched(env))
    torques = np.linspace(-2, 2, 5)
    assert set(np.unique(action)) == set(range(5))
    assert_transitions_equal_gymnasiums(state, action, torques[action], after)


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


@pytest.mark.slow
def test_whole_episodes_follow_gymnasiums():
    step = jax.jit(ENV.step)
    rng = np.random.default_rng(0)
    for episode in range(5):
        reference = gymnasium.make("Pendulum-v1")
        reference.reset(seed=episode)
        start = reference.unwrapped.state
        state = PendulumState(jnp.float32(start[0]), jnp.float32(start[1]), jnp.int32(0))
        done, length = False, 0
        while not done:
            # Near upright float32 and Gymnasium's float64 drift apart by nature, e-fold every
            # quarter of a second.
            action = rng.uniform(-2, 2, 1).astype(np.float32)
            expected_obs, expected_reward, terminated, truncated, _ = reference.step(action)
            obs, state, reward, ours_terminated, ours_truncated, _ = step(
                make_key(0), state, action, PARAMS
            )
            np.testing.assert_allclose(obs, expected_obs, atol=1e-2)
            np.testing.assert_allclose(reward, expected_reward, atol=1e-2)
            assert (bool(ours_terminated), bool(ours_truncated)) == (terminated, truncated)
            done, length = terminated or truncated, length + 1
        assert length == 200


@pytest.mark.slow
def test_a_start_is_uniform_in_its_box():
    keys = jax.random.split(make_key(1), 20_000)
    obs, state = jax.vmap(ENV.reset, (0, None))(keys, PARAMS)
    for values, bound in ((state.theta, np.pi), (state.theta_dot, 1.0)):
        assert float(jnp.abs(values).max()) <= bound
        np.testing.assert_allclose(np.std(values), bound / np.sqrt(3), rtol=0.02)
        assert abs(float(np.mean(values))) < 0.03 * bound
    np.testing.assert_allclose(
        obs, np.stack([np.cos(state.theta), np.sin(state.theta), state.theta_dot], -1), atol=1e-6
    )
    assert abs(np.corrcoef(np.asarray(state.theta), np.asarray(state.theta_dot))[0, 1]) < 0.03


@pytest.mark.slow
def test_the_batched_step_equals_the_single_one():
    step = batched(ENV)
    state, action, after = visited(ENV, step)
    single = jax.jit(ENV.step)
    for index in [(t, t % EPISODES) for t in range(0, 200, 7)]:
        one = jax.tree.map(lambda leaf, index=index: jnp.asarray(leaf[index]), state)
        expected = single(make_key(0), one, jnp.asarray(action[index]), PARAMS)
        got = jax.tree.map(lambda leaf, index=index: leaf[index], after)
        for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(expected[:5]), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
        assert (got[3], got[4], got[1].time) == (expected[3], expected[4], expected[1].time)


@pytest.mark.slow
def test_parameters_may_be_batched():
    params = dataclasses.replace(PendulumParams(), gravity=jnp.array([1.0, 9.8, 20.0]))
    axes = dataclasses.replace(jax.tree.map(lambda _: None, PendulumParams()), gravity=0)
    state = PendulumState(jnp.full(3, 0.5), jnp.zeros(3), jnp.zeros(3, jnp.int32))
    keys = jax.random.split(make_key(2), 3)
    _, after, *_ = batched(ENV, axes)(keys, state, jnp.zeros((3, 1)), params)
    np.testing.assert_allclose(
        after.theta_dot, 0.05 * 1.5 * np.array([1, 9.8, 20]) * np.sin(0.5), rtol=1e-6
    )


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


@pytest.mark.parametrize("count", [0, 1, -3, 2.0, True, "5"])
def test_a_count_of_torques_that_makes_no_sense_is_refused(count):
    with pytest.raises(
        InvalidArgumentError,
        match="discrete_torques must be an integer from 2 to 1,000,000",
    ):
        Pendulum(discrete_torques=count)


@pytest.mark.slow
@pytest.mark.parametrize("env", [ENV, Pendulum(discrete_torques=3)])
def test_a_rollout_counts_episodes_of_200_steps_and_compiles_once(env):
    rollout = Rollout(env, make_agent("random", env), num_envs=32, scan_chunk_size=100)
    state = rollout.run_chunk(rollout.init(seed=0))
    with count_compilations() as compilations:
        state = rollout.run(state, num_steps=300)
    assert compilations.count == 0
    summary = rollout.summary(state)
    assert (summary.num_episodes, summary.mean_episode_length) == (64, 200)
    assert -1700 < summary.mean_episode_return < -800
