"""The uniformly random agent, with which environment throughput is measured."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.engine.vector_math import argmax
from myriad.envs import Environment
from myriad.envs.wrappers import MaskedObservation, nvec_of
from myriad.spaces import Space


@dataclasses.dataclass(frozen=True)
class RandomAgent:
    """Draw every action uniformly from the action space, or from the legal ones if it sees a mask.

    Attributes:
        action_space: the space.
        uses_observation: whether a mask of the legal actions follows the observation.
    """

    action_space: Space
    uses_observation: bool = dataclasses.field(default=False, metadata={"derived": True})

    @classmethod
    def create(cls, env: Environment) -> "RandomAgent":
        """Build the agent for the action space of `env`."""
        return cls(env.action_space(env.default_params), isinstance(env, MaskedObservation))

    def act(self, key: jax.Array, obs: Any) -> jax.Array:
        """Draw an action. Without a mask, `obs` is ignored."""
        if not self.uses_observation:
            return self.action_space.sample(key)
        nvec = nvec_of(self.action_space)
        is_legal = obs[-sum(nvec) :] > 0
        # The largest of equally distributed numbers is each of them with equal probability.
        scores = jnp.where(is_legal, jax.random.uniform(key, is_legal.shape), -1)
        choices = [argmax(part, axis=0) for part in jnp.split(scores, np.cumsum(nvec)[:-1])]
        action = jnp.stack(choices).astype(jnp.int32)
        return action.reshape(self.action_space.shape)
