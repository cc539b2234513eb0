"""PQN with a memory: its network carries a hidden state through the steps of an episode.

`make_agent("pqn", env, network="gru")` builds it.
"""

import dataclasses
from typing import Any

import jax

from myriad.agents.networks.mlp import flatten
from myriad.agents.pqn import PQN, PQNBatch, PQNState
from myriad.agents.sequences import Recurrent, by_environment


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RecurrentPQNState(PQNState):
    """PQN's state with the network's `memory`, leaves `[N, ...]`."""

    memory: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sequences(PQNBatch):
    """PQN's batch by environments, leaves `[N, T, ...]`, and the memory before the first step."""

    done: jax.Array
    memory: Any


@dataclasses.dataclass(frozen=True)
class RecurrentPQN(Recurrent, PQN):
    """PQN of a network with a memory."""

    def init(self, key: jax.Array, num_envs: int) -> RecurrentPQNState:
        """Draw the network's parameters. Raises the errors of `require_num_envs`."""
        first = super().init(key, num_envs)
        return RecurrentPQNState(**vars(first), memory=self.first_memory(num_envs))

    def loss(self, params: jax.Array, batch: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return the loss of PQN for the `Sequences` of some environments, and its metrics."""
        values, _, rows = self._unrolled(params, batch)
        return self._loss(values, rows)

    def first_memory(self, num_envs: int) -> Any:
        """Return the memory of each environment before an episode's first step."""
        return self._network.module.first_memory(num_envs)

    def control(
        self, state: Any, memory: Any, key: jax.Array, obs: jax.Array, *, greedy: bool
    ) -> tuple[jax.Array, Any]:
        """Choose actions, and return them with the next memory. `act` acts as in a first step."""
        inputs = self._inputs(state, flatten(obs))
        memory, values, _ = self._step(state.params, memory, inputs)
        return self._action(state, key, values, greedy=greedy), memory

    def _batch(self, state: PQNState, trajectory: Any, last_obs: jax.Array) -> Sequences:
        batch = self._targeted(state, trajectory, trajectory.last_value)
        return by_environment(Sequences, batch, trajectory)

    def _step(
        self, params: jax.Array, memory: Any, inputs: jax.Array
    ) -> tuple[Any, jax.Array, jax.Array]:
        """Return the next memory, the values, `[N, A]`, and the best of them, `[N]`."""
        memory, values = self._network.step(params, memory, inputs)
        return memory, values, self._network.best_value(values)
