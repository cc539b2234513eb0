"""What an agent is to the rollout: a pure choice of an action for ONE environment."""

from typing import Protocol

import jax


class Agent(Protocol):
    """A policy. `uses_observation` is False where the choice needs none, so that no observation is carried along."""

    uses_observation: bool

    def act(self, key: jax.Array, obs: jax.Array | None) -> jax.Array:
        """Choose an action of the environment's action space; `obs` is None unless `uses_observation`."""
        ...
