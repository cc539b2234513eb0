"""A pool of first states makes resets cheap, and changes nothing else."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import check_env, make_env, make_key
from myriad.adapters.adapter import Adapter, Built, results
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


def resets(env, num_resets=64):
    return jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(make_key(1), num_resets), None)


def test_without_a_pool_each_reset_draws():
    env = Dice.adapt("two")
    assert len(np.unique(resets(env)[0], axis=0)) == 64
    check_env(env)  # though its state is a key


def test_a_reset_picks_any_of_the_pool_and_episodes_from_the_same_draw_other_numbers():
    assert len(np.unique(resets(make_env(Dice.adapt("two"), reset_pool=4))[0], axis=0)) == 4
    env = make_env(Dice.adapt("two"), reset_pool=1)
    obs, state = resets(env)
    assert len(np.unique(obs, axis=0)) == 1
    step = jax.vmap(env.step, in_axes=(None, 0, None, None))
    assert len(np.unique(step(make_key(0), state, 0, None)[0], axis=0)) == 64


def test_the_pool_is_drawn_once_when_the_environment_is_built():
    STARTS.clear()
    env = make_env(Dice.adapt("two"), reset_pool=5)
    assert make_env(Dice.adapt("two"), reset_pool=5) == env != Dice.adapt("two")
    assert_rolls_out_and_compiles_once(env)
    assert len(STARTS) == 1  # one trace


def test_a_pool_is_a_field_like_any_other():
    env = make_env(Dice.adapt("two"), reset_pool=3)
    assert env.reset_pool == 3
    assert len(np.unique(resets(make_env(env, reset_pool=0))[0], axis=0)) == 64
    with pytest.raises(InvalidArgumentError, match="reset_pool must be an integer from 0"):
        make_env(env, reset_pool=-1)
