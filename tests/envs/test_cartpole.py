"""The cart and pole against Gymnasium's own, transition by transition."""

import dataclasses
from operator import itemgetter

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from myriad import Rollout, make_agent, make_env, make_key
from myriad.envs.cartpole import CartPole, CartPoleParams, CartPoleState

ENV = CartPole()
PARAMS = ENV.default_params


@jax.jit
def step_all(x, x_dot, theta, theta_dot, time, action):
    state = CartPoleState(x, x_dot, theta, theta_dot, time)
    keys = jax.random.split(make_key(0), x.shape[0])
    _, state, reward, terminated, truncated, _ = jax.vmap(ENV.step, (0, 0, 0, None))(
        keys, state, action, PARAMS
    )
    return state, reward, terminated, truncated


def visited_states(num_steps: int, num_envs: int):
    """Record states, actions and flags of random play, `[T, N]`, without rows before a reset."""
    env = make_env("cartpole-control")
    rollout = Rollout(env, make_agent("random", env), num_envs=num_envs, scan_chunk_size=num_steps)
    return rollout.record_chunk(rollout.init(seed=3))[1]


@pytest.mark.slow
def test_a_transition_equals_gymnasiums_over_a_hundred_thousand_visited_states():
    trajectory = visited_states(num_steps=500, num_envs=220)
    obs, action = np.asarray(trajectory.obs[:-1]), np.asarray(trajectory.action[1:])
    assert action.size > 100_000
    flat = obs.reshape(-1, 4)
    state, _, terminated, _ = step_all(*flat.T, np.zeros(len(flat), np.int32), action.ravel())
    ours = np.stack([state.x, state.x_dot, state.theta, state.theta_dot], axis=-1)

    reference = CartPoleEnv()
    reference.reset(seed=0)
    theirs, theirs_terminated = np.empty_like(ours), np.empty(len(ours), bool)
    for i, (start, push) in enumerate(zip(flat.astype(np.float64), action.ravel(), strict=True)):
        reference.state, reference.steps_beyond_terminated = tuple(start), None
        theirs[i], _, theirs_terminated[i], _, _ = reference.step(int(push))

    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=0)
    distance_to_limit = np.minimum(
        np.abs(np.abs(theirs[:, 0]) - 2.4), np.abs(np.abs(theirs[:, 2]) - np.pi / 15)
    )
    decided = distance_to_limit > 1e-6
    np.testing.assert_array_equal(np.asarray(terminated)[decided], theirs_terminated[decided])


@pytest.mark.slow
def test_whole_random_episodes_follow_gymnasiums():
    step = jax.jit(ENV.step)
    rng = np.random.default_rng(0)
    for episode in range(20):
        reference = gymnasium.make("CartPole-v1")
        first, _ = reference.reset(seed=episode)
        state = CartPoleState(*jnp.asarray(first), time=jnp.zeros((), jnp.int32))
        done = False
        while not done:
            action = int(rng.integers(2))
            expected, reward, terminated, truncated, _ = reference.step(action)
            got = step(make_key(0), state, jnp.int32(action), PARAMS)
            obs, state = got[:2]
            np.testing.assert_allclose(obs, expected, atol=1e-4, rtol=0)
            assert (float(got[2]), bool(got[3]), bool(got[4])) == (reward, terminated, truncated)
            done = terminated or truncated


def test_step_500_truncates_and_does_not_terminate():
    balanced = [jnp.zeros(1)] * 4
    for time, expected in ((498, False), (499, True)):
        _, _, terminated, truncated = step_all(
            *balanced, jnp.full(1, time, jnp.int32), jnp.zeros(1, jnp.int32)
        )
        assert (bool(terminated[0]), bool(truncated[0])) == (False, expected)


@pytest.mark.slow
def test_random_play_lasts_22_steps_on_average():
    env = make_env("CartPole-v1")
    rollout = Rollout(env, make_agent("random", env), num_envs=1000, scan_chunk_size=500)
    summary = rollout.summary(rollout.run(rollout.init(seed=0), num_steps=1000))
    assert summary.num_episodes > 10_000
    assert summary.mean_episode_length == pytest.approx(22.2, abs=0.5)
    assert summary.mean_episode_return == pytest.approx(summary.mean_episode_length)


def test_a_start_is_uniform_in_its_box():
    keys = jax.random.split(make_key(1), 20_000)
    obs, state = jax.vmap(ENV.reset, (0, None))(keys, PARAMS)
    assert float(jnp.abs(obs).max()) <= 0.05
    np.testing.assert_allclose(np.std(obs, axis=0), 0.1 / np.sqrt(12), rtol=0.02)
    assert len(np.unique(np.asarray(state.x))) > 19_000
    correlation = np.corrcoef(np.asarray(obs).T) - np.eye(4)
    assert np.abs(correlation).max() < 0.03


@pytest.mark.slow
def test_parameters_may_be_batched():
    keys = jax.random.split(make_key(2), 3)
    params = dataclasses.replace(CartPoleParams(), gravity=jnp.array([1.0, 9.8, 20.0]))
    axes = dataclasses.replace(jax.tree.map(lambda _: None, CartPoleParams()), gravity=0)
    _, state = jax.vmap(ENV.reset, (0, None))(keys, PARAMS)
    tilted = dataclasses.replace(state, theta=jnp.full(3, 0.1))
    _, after, *_ = jax.vmap(ENV.step, (0, 0, 0, axes))(keys, tilted, jnp.ones(3, jnp.int32), params)
    assert len(np.unique(np.asarray(after.theta_dot))) == 3


@pytest.mark.slow
def test_the_batched_step_equals_the_single_one():
    trajectory = visited_states(num_steps=20, num_envs=64)
    flat, action = (
        np.asarray(trajectory.obs[:-1]).reshape(-1, 4)[:200],
        np.asarray(trajectory.action[1:]).ravel()[:200],
    )
    batched = step_all(*flat.T, np.zeros(200, np.int32), action)
    single = jax.jit(ENV.step)
    for i in range(0, 200, 10):
        state = CartPoleState(*jnp.asarray(flat[i]), time=jnp.zeros((), jnp.int32))
        _, expected, _, terminated, truncated, _ = single(
            make_key(0), state, jnp.int32(action[i]), PARAMS
        )
        got = jax.tree.map(itemgetter(i), batched)
        # Where a sum nearly cancels, 1e-7 is the last bit of its terms.
        np.testing.assert_allclose(
            jax.tree.leaves(got[0]), jax.tree.leaves(expected), rtol=1e-6, atol=1e-7
        )
        assert (got[2], got[3]) == (terminated, truncated)
