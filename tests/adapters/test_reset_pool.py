"""A pool of first states makes resets cheap, and changes nothing else."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import Rollout, check_env, create_config, make_agent, make_env, make_key
from myriad.adapters.adapter import Adapter, Built, results
from myriad.envs.cartpole import CartPole
from myriad.envs.vector import float_parameters
from myriad.errors import InvalidArgumentError
from myriad.spaces import Box, Discrete
from tests.adapters.rollouts import assert_rolls_out_and_compiles_once

STARTS = []


@dataclasses.dataclass(frozen=True)
class Dice(Adapter):
    """An environment of a made-up library, whose state holds the key of all its draws."""

    library: ClassVar[str] = "dice"

    @classmethod
    def names(cls):
        return ["two"]

    def build(self):
        return Built(None, Box(0.0, 1.0, (2,)), Discrete(2))

    def reset(self, key, params):
        STARTS.append(self)
        key, drawn = jax.random.split(key)
        return jax.random.uniform(drawn, (2,)), key

    def step(self, key, state, action, params):
        state, drawn = jax.random.split(state)
        obs = jax.random.uniform(drawn, (2,))
        return results(obs, state, 0.0, obs[0] > 0.5, jnp.zeros((), bool), {})


class Placed(CartPole):
    """A cart that starts near `gravity`."""

    def reset(self, key, params):
        STARTS.append(self)
        obs, state = super().reset(key, params)
        x = obs[0] + params.gravity
        return obs.at[0].set(x), dataclasses.replace(state, x=x)


def resets(env):
    keys = jax.random.split(make_key(1), 64)
    return jax.vmap(env.reset, in_axes=(0, None))(keys, env.default_params)


@pytest.mark.parametrize("env", [Dice.adapt("two"), Placed()])
def test_a_reset_picks_any_of_a_pool_that_is_drawn_once(env):
    STARTS.clear()
    pooled = make_env(env, reset_pool=5)
    assert pooled.reset_pool == 5
    assert_rolls_out_and_compiles_once(pooled)
    assert len(np.unique(resets(pooled)[0], axis=0)) == 5
    assert len(STARTS) == 1  # one trace
    assert pooled == make_env(env, reset_pool=5) != env
    without = resets(make_env(pooled, reset_pool=0))[0]
    np.testing.assert_array_equal(without, resets(env)[0])
    assert len(np.unique(without, axis=0)) == 64
    for size in (-1, 2.5):
        with pytest.raises(InvalidArgumentError, match="reset_pool must be an integer from 0"):
            make_env(pooled, reset_pool=size)


def test_episodes_from_the_same_first_state_draw_other_numbers():
    check_env(Dice.adapt("two"))  # though its state is a key
    env = make_env(Dice.adapt("two"), reset_pool=1)
    obs, state = resets(env)
    assert len(np.unique(obs, axis=0)) == 1
    step = jax.vmap(env.step, in_axes=(None, 0, None, None))
    assert len(np.unique(step(make_key(0), state, 0, None)[0], axis=0)) == 64


def test_a_pool_is_drawn_with_the_environments_own_parameters_and_takes_no_others():
    env = make_env(Placed(), reset_pool=4, gravity=1.6)
    for gravity, changed in ((1.6, env), (3.7, make_env(env, gravity=3.7))):
        np.testing.assert_allclose(resets(changed)[0][:, 0], gravity, atol=0.05)
    assert float_parameters(env) == ()
    for gravity in (9.8, jnp.linspace(1, 2, 16)):
        params = dataclasses.replace(env.default_params, gravity=gravity)
        with pytest.raises(InvalidArgumentError, match=r"with which the reset_pool .* was drawn"):
            Rollout(env, make_agent("random", env), 16, params=params).init(0)
    for given in (None, 5, CartPole()):
        with pytest.raises(InvalidArgumentError, match="params must be those with which"):
            env.reset(make_key(0), given)
    with pytest.raises(InvalidArgumentError, match="no arguments of a compiled function"):
        jax.jit(env.reset)(make_key(0), env.default_params)


def test_a_configuration_names_a_pool():
    config = create_config("cartpole", "ppo", **{"env.reset_pool": 8})
    assert config.env_options["reset_pool"] == config.environment.reset_pool == 8
    same = create_config(make_env("cartpole", reset_pool=8), "ppo")
    assert (same.env, same.env_options) == ("cartpole-control", config.env_options)
    assert config.changed(**{"env.reset_pool": 0}).environment == make_env("cartpole")
