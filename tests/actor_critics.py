"""Plain networks for the references of SAC and TD3, and trainings of both."""

import dataclasses

import jax
import jax.numpy as jnp

from myriad.agents.replay import ReplayRing

SMALL = {"hidden_sizes": (8, 8), "batch_size": 16, "buffer_size": 100, "learning_starts": 20}


def sampled(learner, state, key, num_envs):
    """Yield the normalised batches of an update's gradient steps, as its key draws them."""
    ring, shape = ReplayRing(learner.buffer_size, num_envs), (-1, learner.batch_size)
    num_rows = learner.gradient_steps * learner.batch_size
    slots = ring.draw(jax.random.fold_in(key, 1), state.replay, num_rows)
    for rows in slots.reshape(shape):
        batch = ring.at(state.replay, rows)
        obs, next_obs = map(state.obs_stats.normalize, (batch.obs, batch.next_obs))
        yield dataclasses.replace(batch, obs=obs, next_obs=next_obs)


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
