"""Plain networks for the references of SAC and TD3, and trainings of both."""

import jax
import jax.numpy as jnp
import numpy as np

from myriad import make_env
from myriad.agents import make_learner
from myriad.random import make_key
from myriad.training.evaluation import Evaluation
from myriad.training.loop import LearningLoop

SMALL = {"hidden_sizes": (8, 8), "batch_size": 16, "buffer_size": 100, "learning_starts": 20}


def train(learner, num_envs, num_updates):
    """Return the state after some updates from seed 0."""
    loop = LearningLoop(learner.env, learner, num_envs)
    state = jax.jit(loop.init)(make_key(0))
    return jax.jit(loop.run)(state, np.int32(num_updates), np.bool_(1))[0]


def apply(layers, inputs):
    """Apply flax's layers of two hidden layers with relu."""
    hidden = inputs
    for i in range(2):
        layer = layers[f"Dense_{i}"]
        hidden = jnp.maximum(hidden @ layer["kernel"] + layer["bias"], 0)
    return hidden @ layers["Dense_2"]["kernel"] + layers["Dense_2"]["bias"]


def q_value(critic, obs, action):
    """Return the values of actions, `[B]`."""
    return apply(critic, jnp.concatenate([obs, action], axis=1))[:, 0]


def return_on_pendulum(agent, num_updates):
    """Return the mean return after a training in 8 environments."""
    learner = make_learner(agent, make_env("pendulum-control"), 8)
    state = train(learner, 8, num_updates).agent
    evaluation = Evaluation(learner.env, learner, 64, max_steps=200)
    returns, _ = jax.jit(evaluation.returns)(state, make_key(1))
    return returns.mean()
