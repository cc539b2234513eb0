"""The cart and pole against Gymnasium's own, transition by transition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from myriad import Rollout, make_agent, make_key
from myriad.envs.cartpole import CartPole, CartPoleState

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


@pytest.mark.slow
def test_a_transition_equals_gymnasiums_over_twenty_thousand_visited_states():
    rollout = Rollout(ENV, make_agent("random", ENV), num_envs=50, scan_chunk_size=500)
    _, trajectory = rollout.record_chunk(rollout.init(seed=3))
    obs, action = np.asarray(trajectory.obs[:-1]), np.asarray(trajectory.action[1:])
    assert action.size > 20_000
    flat = obs.reshape(-1, 4)
    state, reward, terminated, _ = step_all(*flat.T, np.zeros(len(flat), np.int32), action.ravel())
    ours = np.stack([state.x, state.x_dot, state.theta, state.theta_dot], axis=-1)

    reference = CartPoleEnv()
    reference.reset(seed=0)
    theirs, theirs_terminated = np.empty_like(ours), np.empty(len(ours), bool)
    for i, (start, push) in enumerate(zip(flat.astype(np.float64), action.ravel(), strict=True)):
        reference.state, reference.steps_beyond_terminated = tuple(start), None
        theirs[i], _, theirs_terminated[i], _, _ = reference.step(int(push))

    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=0)
    assert (np.asarray(reward) == 1).all()
    distance_to_limit = np.minimum(
        np.abs(np.abs(theirs[:, 0]) - 2.4), np.abs(np.abs(theirs[:, 2]) - np.pi / 15)
    )
    decided = distance_to_limit > 1e-6
    np.testing.assert_array_equal(np.asarray(terminated)[decided], theirs_terminated[decided])


def test_step_500_truncates_and_does_not_terminate():
    balanced = [jnp.zeros(1)] * 4
    for time, expected in ((498, False), (499, True)):
        _, _, terminated, truncated = step_all(
            *balanced, jnp.full(1, time, jnp.int32), jnp.zeros(1, jnp.int32)
        )
        assert (bool(terminated[0]), bool(truncated[0])) == (False, expected)
