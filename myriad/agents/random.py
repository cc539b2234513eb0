"""The uniformly random agent, with which environment throughput is measured."""

import dataclasses
from typing import ClassVar

import jax

from myriad.envs import Environment
from myriad.spaces import Space


@dataclasses.dataclass(frozen=True)
class RandomAgent:
    """Draw every action uniformly from the action space."""

    action_space: Space
    uses_observation: ClassVar[bool] = False

    @classmethod
    def create(cls, env: Environment) -> "RandomAgent":
        """Build the agent for the action space of `env`."""
        return cls(env.action_space(env.default_params))

    def act(self, key: jax.Array, obs: jax.Array | None) -> jax.Array:
        """Draw an action. `obs` is ignored."""
        return self.action_space.sample(key)
