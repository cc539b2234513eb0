"""Wrappers: what they show of the environment inside, and that learners learn behind them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.published_environments import InvalidActions
from myriad import Rollout, check_env, create_config, make_agent, make_env, train_and_evaluate
from myriad.envs.cartpole import CartPole, CartPoleParams
from myriad.envs.vector import VectorEnv
from myriad.envs.wrappers import (
    FlattenObservation,
    FrameStackObservation,
    MaskedObservation,
    PrivilegedObservation,
    Wrapper,
)
from myriad.errors import InvalidArgumentError
from myriad.spaces import Box, Discrete, MultiDiscrete
from tests.agents.plain_networks import Unplayed
from tests.learners import SMALL, env_of

CHOICE = Unplayed(Discrete(20), Discrete(2))
SPACES = {"place": Discrete(20), "digits": MultiDiscrete((3, 10)), "far": Box(0.0, 1.0, (1,))}
PARTS = Unplayed(SPACES, Discrete(2))


def test_choices_become_zeros_and_a_one_and_parts_follow_each_other_by_name():
    env = FlattenObservation(PARTS)
    space = env.observation_space(None)
    obs, _ = env.reset(jax.random.key(3), None)
    parts, _ = PARTS.reset(jax.random.key(3), None)
    expected = np.zeros(13 + 1 + 20, np.float32)
    expected[np.add(parts["digits"], [0, 3])] = 1
    expected[13] = parts["far"][0]
    expected[14 + parts["place"]] = 1
    np.testing.assert_array_equal(obs, expected)
    assert space.shape == obs.shape
    assert obs.dtype == space.dtype == np.float32
    assert FlattenObservation(CHOICE).observation_space(None).dtype == np.uint8


def test_the_last_frames_are_joined_along_the_last_axis():
    inner = make_env("cartpole")
    env = FrameStackObservation(inner, num_frames=3)
    params = env.default_params
    obs, state = env.reset(jax.random.key(0), params)
    first, inner_state = inner.reset(jax.random.key(0), params)
    np.testing.assert_array_equal(obs, np.tile(first, 3))
    obs, state, *_ = env.step(jax.random.key(1), state, 1, params)
    second, *_ = inner.step(jax.random.key(1), inner_state, 1, params)
    np.testing.assert_array_equal(obs, np.concatenate([first, first, second]))
    np.testing.assert_array_equal(env.render(state), inner.render(state.env_state))
    assert not hasattr(env, "control_error")


@pytest.mark.parametrize("env", [CHOICE, FrameStackObservation(FlattenObservation(PARTS), 2)])
def test_an_environment_has_no_fault_with_wrappers_and_without(env):
    check_env(env)


@pytest.mark.parametrize("agent", [name for name in SMALL if env_of(name) == "cartpole"])
def test_learners_refuse_an_observation_that_is_no_box(agent):
    with pytest.raises(InvalidArgumentError, match=r"env must have observations in a Box.*Discr"):
        make_agent(agent, CHOICE)
    make_agent(agent, FlattenObservation(CHOICE))


def test_only_a_learner_sees_a_flat_observation(tmp_path):
    class Level(Unplayed):
        def control_error(self, obs):
            return jnp.float32(10 - obs)

    sizes = {"num_envs": 2, "steps_per_env": 4, "eval_frequency": 4, "eval_max_steps": 8}
    assert create_config(PARTS, "ppo").environment == FlattenObservation(PARTS)
    for agent, env in (("bangbang", Level(Discrete(20), Discrete(2))), ("random", PARTS)):
        config = create_config(env, agent, **sizes)
        assert config.environment is env
        train_and_evaluate(config, tmp_path / agent, quiet=True)


class Watched(CartPole):
    """Its critic sees the time."""

    def privileged_observation(self, state, params):
        return jnp.float32(state.time)[None]


def test_what_a_critic_sees_follows_the_observation_also_before_a_reset():
    watched = Watched(CartPoleParams(max_steps=1))
    env = PrivilegedObservation(FrameStackObservation(watched, 2))
    space = env.observation_space(env.default_params)
    assert (space.shape, space.dtype) == ((9,), np.float32)
    envs = VectorEnv(env, 4)
    state = jax.jit(envs.reset)(jax.random.split(jax.random.key(0), 4))
    np.testing.assert_array_equal(state.obs[:, 8], np.zeros(4))
    np.testing.assert_array_equal(state.obs[:, :4], state.obs[:, 4:8])
    keys = jax.random.split(jax.random.key(1), (2, 4))
    _, transition = jax.jit(envs.step)(state, jnp.ones(4, jnp.int32), *keys)
    np.testing.assert_array_equal(transition.final_obs[:, 8], np.ones(4))
    np.testing.assert_array_equal(transition.obs[:, 8], np.zeros(4))
    config = create_config(watched, "ppo")
    assert config.environment == watched
    assert (config.learner.sees_privileged, make_agent("pqn", watched).sees_privileged) == (1, 0)


def test_overrides_reach_the_environment_inside():
    env = make_env(FrameStackObservation(make_env("cartpole")), gravity=1.6, num_frames=2)
    assert (env.num_frames, env.default_params.gravity) == (2, 1.6)
    assert isinstance(env, Wrapper)


class Pairs(InvalidActions):
    """The same with its 16 actions as pairs: a choice is legal if it is part of a legal pair."""

    def step(self, key, state, action, params):
        return super().step(key, state, 4 * action[0] + action[1], params)

    def action_mask(self, state):
        legal = state.legal.reshape(4, 4)
        return jnp.concatenate([legal.any(axis=1), legal.any(axis=0)])

    def action_space(self, params):
        return MultiDiscrete((4, 4))


# Two are legal, and the one that is shown gives a reward.
ONE_OF_TWO, TWO_PAIRS = InvalidActions(16, 14), Pairs(16, 14)


@pytest.mark.parametrize(("env", "share"), [(ONE_OF_TWO, 1 / 2), (TWO_PAIRS, 0.35)])
def test_the_random_agent_chooses_legal_actions_alone(env, share):
    config = create_config(env, "random", num_envs=16, steps_per_env=64)
    assert isinstance(config.environment, MaskedObservation)
    env = config.environment
    rollout = Rollout(env, make_agent("random", env), num_envs=64, scan_chunk_size=100)
    _, recorded = rollout.record_chunk(rollout.init(0))
    # Both halves of two pairs are legal four times, or twice if the pairs share one.
    np.testing.assert_allclose(recorded.reward.mean(), share, atol=0.03)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "env", "steps"), [("ppo", TWO_PAIRS, 2_048), ("dqn", ONE_OF_TWO, 3_000)]
)
def test_learners_choose_legal_actions_and_learn_which_are_good(agent, env, steps, tmp_path):
    config = create_config(env, agent, num_envs=16, steps_per_env=steps, eval_max_steps=100)
    results = train_and_evaluate(config, tmp_path / "run", quiet=True)
    assert results.evaluations[-1]["return"] > 95
