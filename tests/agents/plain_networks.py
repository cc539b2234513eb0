"""Plain networks, batches and environments for the references of the learners."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from myriad.agents.replay import ReplayRing

SMALL = {"hidden_sizes": (8, 8), "batch_size": 16, "buffer_size": 100, "learning_starts": 20}


@dataclasses.dataclass(frozen=True, eq=False)
class Unplayed:
    """An environment of any spaces in which nothing but another observation happens."""

    observations: Any
    actions: Any
    default_params: None = None

    def reset(self, key, params):
        spaces, tree = jax.tree.flatten(self.observations)
        keys = jax.random.split(key, len(spaces))
        drawn = [space.sample(own) for space, own in zip(spaces, keys, strict=True)]
        return jax.tree.unflatten(tree, drawn), None

    def step(self, key, state, action, params):
        never = jnp.zeros((), bool)
        return self.reset(key, params)[0], None, jnp.float32(0), never, never, {}

    def observation_space(self, params):
        return self.observations

    def action_space(self, params):
        return self.actions


def sampled(learner, state, key, num_envs):
    """Yield the normalised batches of an update's gradient steps, as its key draws them."""
    ring, shape = ReplayRing(learner.buffer_size, num_envs), (-1, learner.batch_size)
    num_rows = learner.gradient_steps * learner.batch_size
    slots = ring.draw(jax.random.fold_in(key, 1), state.replay, num_rows)
    for rows in slots.reshape(shape):
        batch = ring.at(state.replay, rows)
        obs, next_obs = map(state.obs_stats.normalize, (batch.obs, batch.next_obs))
        yield dataclasses.replace(batch, obs=obs, next_obs=next_obs)


def apply(layers, inputs, activation=jax.nn.relu):
    """Apply flax's layers: two hidden ones, with a layer norm if there is one, and a linear one."""
    hidden = inputs
    for i in range(2):
        hidden = hidden @ layers[f"Dense_{i}"]["kernel"] + layers[f"Dense_{i}"]["bias"]
        if norm := layers.get(f"LayerNorm_{i}"):
            centred = hidden - hidden.mean(-1, keepdims=True)
            deviation = jnp.sqrt(hidden.var(-1, keepdims=True) + 1e-6)
            hidden = centred / deviation * norm["scale"] + norm["bias"]
        hidden = activation(hidden)
    return hidden @ layers["Dense_2"]["kernel"] + layers["Dense_2"]["bias"]


def q_value(critic, obs, action):
    """Return the values of actions, `[B]`."""
    return apply(critic, jnp.concatenate([obs, action], axis=1))[:, 0]
