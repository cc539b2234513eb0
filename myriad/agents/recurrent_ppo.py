"""PPO with a memory: its networks carry a hidden state through the steps of an episode.

`make_agent("ppo", env, network="gru")` builds it.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from myriad.agents.networks.mlp import flatten
from myriad.agents.policies import legal_outputs
from myriad.agents.ppo import PPO, PPOBatch, PPOState
from myriad.agents.sequences import Recurrent, by_environment


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RecurrentPPOState(PPOState):
    """PPO's state with the `memory` of `actor` and `critic`, leaves `[N, ...]`."""

    memory: dict[str, Any]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sequences(PPOBatch):
    """PPO's batch by environments, leaves `[N, T, ...]`, and the memory before the first step."""

    done: jax.Array
    memory: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class RecurrentPPO(Recurrent, PPO):
    """PPO of networks of which at least one has a memory."""

    def init(self, key: jax.Array, num_envs: int) -> RecurrentPPOState:
        """Draw the networks' parameters. Raises the errors of `require_num_envs`."""
        first = super().init(key, num_envs)
        return RecurrentPPOState(**vars(first), memory=self.first_memory(num_envs))

    def loss(self, params: dict[str, Any], batch: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return the loss of PPO for the `Sequences` of some environments, and its metrics."""
        return self._loss(params, *self._unrolled(params, batch))

    def first_memory(self, num_envs: int) -> dict[str, Any]:
        """Return the memory of each environment before an episode's first step."""
        networks = {"actor": self._actor, "critic": self._critic}
        return {
            name: network.first_memory(num_envs) if hasattr(network, "step") else ()
            for name, network in networks.items()
        }

    def control(
        self, state: Any, memory: Any, key: jax.Array, obs: jax.Array, *, greedy: bool
    ) -> tuple[jax.Array, Any]:
        """Choose actions, and return them with the next memory. `act` acts as in a first step."""
        # The critic has no part in it, and may see what only a training shows.
        inputs = self._inputs(state, flatten(obs))
        actor, outputs = self._actor_step(state.params, memory["actor"], inputs)
        return self._action(state, key, outputs, greedy=greedy), memory | {"actor": actor}

    def _batch(self, state: PPOState, trajectory: Any, last_obs: jax.Array) -> Sequences:
        batch = self._valued(state, trajectory, trajectory.value, trajectory.last_value)
        return by_environment(Sequences, batch, trajectory)

    def _step(
        self, params: dict[str, Any], memory: dict[str, Any], inputs: jax.Array
    ) -> tuple[dict[str, Any], jax.Array, jax.Array]:
        """Return the next memory, the policy's outputs, `[N, P]`, and the values, `[N]`."""
        actor, outputs = self._actor_step(params, memory["actor"], inputs)
        obs = self._of_critic(inputs)
        critic, value = _stepped(self._critic, params["critic"], memory["critic"], obs)
        return {"actor": actor, "critic": critic}, outputs, value[:, 0].astype(jnp.float32)

    def _actor_step(
        self, params: dict[str, Any], memory: Any, inputs: jax.Array
    ) -> tuple[Any, jax.Array]:
        """Return the actor's next memory, and the policy's outputs, `[N, P]`."""
        obs, mask, _ = jnp.split(inputs, [self._obs_size, self._seen_size], axis=1)
        memory, outputs = _stepped(self._actor, params["actor"], memory, obs)
        return memory, legal_outputs(outputs.astype(jnp.float32), mask)


def _stepped(network: Any, params: Any, memory: Any, obs: jax.Array) -> tuple[Any, jax.Array]:
    """Return the next memory and the outputs. Only one of the two networks may have a memory."""
    if hasattr(network, "step"):
        return network.step(params, memory, obs)
    return memory, network.apply(params, obs)
