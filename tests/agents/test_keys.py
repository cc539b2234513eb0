"""No key is drawn from twice, so no two draws of a training are the same numbers."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import define_prng_impl

from myriad import Rollout, make_agent, make_env
from myriad.agents import make_learner
from myriad.engine import random
from myriad.training.loop import LearningLoop
from tests.learners import SMALL, env_of

DRAWN = []


def _recorded_bits(key, bit_width, shape):
    jax.debug.callback(lambda words: DRAWN.append(tuple(np.asarray(words).tolist())), key)
    return random._random_bits(key, bit_width, shape)


RECORDING = define_prng_impl(
    key_shape=(2,),
    seed=random._seed,
    split=random._split,
    random_bits=_recorded_bits,
    fold_in=random._fold,
    name="recording",
    tag="rec",
)


# An environment whose step and whose reset draw.
SNAKE = make_env("snake", height=4, width=4)


def keys_drawn_from_twice(run):
    DRAWN.clear()
    run(jax.random.key(0, impl=RECORDING))
    jax.effects_barrier()
    assert len(DRAWN) > 10
    return [key for key, uses in collections.Counter(DRAWN).items() if uses > 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "options", "num_devices"),
    # One device computes the shares of four, so that callbacks see each of them.
    [
        ("ppo", {}, 4),
        ("dqn", {"priority_alpha": 0.6}, 1),
        *((name, {}, 1) for name in SMALL if name not in ("ppo", "dqn")),
    ],
)
def test_a_training_draws_from_no_key_twice(agent, options, num_devices):
    env = SNAKE if env_of(agent) == "cartpole" else make_env("pendulum")
    at_once = {"learning_starts": 1} if "learning_starts" in SMALL[agent] else {}
    learner = make_learner(agent, env, **SMALL[agent] | at_once | options)
    loop = LearningLoop(env, learner, 2 * num_devices, num_devices=num_devices)

    def train(key):
        state = jax.jit(loop.init)(key)
        jax.jit(loop.run)(state, jnp.int32(2), jnp.bool_(True))  # noqa: FBT003

    assert keys_drawn_from_twice(train) == []


def test_a_rollout_draws_from_no_key_twice():
    rollout = Rollout(SNAKE, make_agent("random", SNAKE), num_envs=2, scan_chunk_size=2)
    assert keys_drawn_from_twice(lambda key: rollout.run(rollout.init(key), num_steps=5)) == []
