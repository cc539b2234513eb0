"""The cart and pole and the pendulum against Gymnasium's own, transition by transition."""

import gymnasium
import jax
import numpy as np
import pytest

from myriad import make_key
from myriad.adapters.gymnasium import gymnasium_space
from myriad.envs.cartpole import CartPole, CartPoleState
from myriad.envs.pendulum import Pendulum, PendulumState
from myriad.spaces import Discrete

NUM_STATES = 5_000


def stepped_by_gymnasium(name, state, action):
    """Return the observation, the reward and the termination that it makes of each state."""
    own = gymnasium.make(name).unwrapped
    own.reset(seed=0)
    *coordinates, _ = (np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(state))
    if name == "Pendulum-v1":  # Its arithmetic is NumPy's, which takes all states at once.
        own.state = np.array(coordinates)
        obs, reward, terminated, *_ = own.step(action.astype(np.float64)[None])
        return obs.T, reward, np.full(NUM_STATES, terminated)
    found = []
    for start, push in zip(zip(*coordinates, strict=True), action, strict=True):
        own.state, own.steps_beyond_terminated = start, None
        found.append(own.step(int(push))[:3])
    return tuple(map(np.array, zip(*found, strict=True)))


@pytest.mark.parametrize(
    ("env", "name", "kind", "bounds"),
    [
        (CartPole(), "CartPole-v1", CartPoleState, [2.6, 3, 0.25, 3]),
        (Pendulum(), "Pendulum-v1", PendulumState, [10, 8]),
        (Pendulum(discrete_torques=5), "Pendulum-v1", PendulumState, [10, 8]),
    ],
    ids=["cartpole", "pendulum", "pendulum with five torques"],
)
def test_a_transition_equals_gymnasiums_from_thousands_of_states(env, name, kind, bounds):
    rng, params = np.random.default_rng(0), env.default_params
    limit = gymnasium.spec(name).max_episode_steps
    coordinates = [rng.uniform(-most, most, NUM_STATES).astype(np.float32) for most in bounds]
    state = kind(*coordinates, rng.integers(limit - 2, limit, NUM_STATES, np.int32))
    space = env.action_space(params)
    if isinstance(space, Discrete):
        action = rng.integers(0, space.n, NUM_STATES, np.int32)
        theirs = np.linspace(-2, 2, 5)[action] if kind is PendulumState else action
    else:  # beyond the limits, too, where it is clipped
        theirs = rng.uniform(-3, 3, NUM_STATES).astype(np.float32)
        action = theirs[:, None]
    keys = jax.random.split(make_key(0), NUM_STATES)
    step = jax.jit(jax.vmap(env.step, (0, 0, 0, None)))
    obs, after, reward, terminated, truncated, info = step(keys, state, action, params)
    expected_obs, expected_reward, expected_terminated = stepped_by_gymnasium(name, state, theirs)
    np.testing.assert_allclose(obs, expected_obs, rtol=1e-6, atol=2e-5)
    np.testing.assert_allclose(reward, expected_reward, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(terminated, expected_terminated)
    np.testing.assert_array_equal(truncated, state.time == limit - 1)
    np.testing.assert_array_equal(after.time, state.time + 1)
    assert info == {}


@pytest.mark.parametrize(
    ("env", "name"), [(CartPole(), "CartPole-v1"), (Pendulum(), "Pendulum-v1")]
)
def test_the_spaces_are_gymnasiums(env, name):
    theirs, params = gymnasium.make(name), env.default_params
    seen = env.observation_space(params)
    own = gymnasium.spaces.Box(seen.low, seen.high, seen.shape, seen.dtype)
    assert own == theirs.observation_space
    assert repr(gymnasium_space(env.action_space(params))) == repr(theirs.action_space)
