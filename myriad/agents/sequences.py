"""Learners with a memory: their rollouts are stored whole, one sequence for each environment.

`make_agent("ppo", env, network="gru")` builds `RecurrentPPO`. The network runs through a rollout
from the memory with which it began, first to act and then in each gradient step. In docstrings `T`
is the steps of a rollout, `N` the environments, `B = T N` and `P` the outputs of the policy or of
the Q-values.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from myriad.agents.agent import Environments
from myriad.agents.networks.mlp import flatten
from myriad.agents.normalization import discounted_return
from myriad.agents.policies import legal_outputs
from myriad.agents.ppo import PPO
from myriad.agents.pqn import PQN
from myriad.agents.trajectory import Trajectory, act_and_step
from myriad.envs.vector import BatchState, select_reset
from myriad.errors import InvalidArgumentError

# Folded into a key. Learners fold 1 into the key of their shuffles.
_COLLECT = 0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RecurrentTrajectory(Trajectory):
    """A rollout with its values, `[T, N]` and `[N]`, and the memory before its first step."""

    value: jax.Array
    last_value: jax.Array
    memory: Any


class Recurrent:
    """Makes a learner of rollouts one of sequences, by backpropagation through a rollout's time.

    Derive from this and then from the learner, such as `PPO`. Of that it uses `_choose(state, keys,
    outputs)`, which returns actions and what to keep of them, `_inputs(state, obs)` and `_valued`,
    which makes a batch. Write `first_memory`, and `_step(params, memory, inputs)`, which returns
    the next memory, the outputs, `[N, P]`, and the values, `[N]`. The state has a field `memory`,
    leaves `[N, ...]`, and a batch the fields `done` and `memory`. Minibatches are whole rollouts of
    some environments.
    """

    # Not a dataclass of `RolloutLearner`, whose defaults would replace those of the learner.

    per_device: ClassVar[frozenset[str] | None] = frozenset({"running_return", "memory"})
    trains_memory: ClassVar[bool] = True

    @classmethod
    def defaults_for(
        cls, num_envs: int, total_steps: int | None, chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the learner's defaults, with minibatches of whole environments."""
        learner: Any = super()
        defaults = learner.defaults_for(num_envs, total_steps, chosen)
        kind: Any = cls
        most = defaults.get("num_minibatches", kind.num_minibatches)
        return defaults | {"num_minibatches": math.gcd(most, num_envs)}

    def require_num_envs(self: Any, num_envs: int) -> None:
        """Raise InvalidArgumentError unless environments divide into minibatches and parts."""
        if num_envs % self.num_envs_multiple:
            rule = f"x gradient_accumulation must divide num_envs = {num_envs} with a memory"
            raise InvalidArgumentError("num_minibatches", rule, self.num_envs_multiple)
        learner: Any = super()
        learner.require_num_envs(num_envs)

    def collect(
        self: Any, key: jax.Array, state: Any, batch_state: BatchState, envs: Environments
    ) -> tuple[Any, BatchState, RecurrentTrajectory]:
        """Take `rollout_steps` steps of all environments."""
        first_memory = self.first_memory(state.running_return.shape[0])

        def step(memory: Any, obs: Any) -> tuple[Any, jax.Array, jax.Array]:
            return self._step(state.params, memory, self._inputs(state, flatten(obs)))

        def advance(carry: Any, t: jax.Array) -> tuple[Any, Any]:
            batch_state, running_return, memory = carry
            obs: Any = batch_state.obs

            def choose(keys: jax.Array, obs: jax.Array) -> tuple[jax.Array, Any]:
                after, outputs, value = step(memory, obs)
                action, choice = self._choose(state, keys, outputs)
                return action, (choice, value, after)

            batch_state, (choice, value, memory), result = act_and_step(
                jax.random.fold_in(key, _COLLECT), t, batch_state, choose, envs
            )
            done = result.terminated | result.truncated
            is_cut = result.truncated & ~result.terminated
            final_value = jnp.where(is_cut, step(memory, result.final_obs)[2], 0)
            reward = result.reward
            discounted, running_return = discounted_return(running_return, reward, done, self.gamma)
            kept = (flatten(obs), final_value, choice, reward, discounted, result.terminated)
            memory = select_reset(done, first_memory, memory)
            return (batch_state, running_return, memory), (*kept, is_cut, value)

        carry = (batch_state, state.running_return, state.memory)
        steps = jnp.arange(self.rollout_steps, dtype=jnp.uint32)
        (batch_state, running_return, memory), kept = jax.lax.scan(advance, carry, steps)
        last_value = step(memory, batch_state.obs)[2]
        trajectory = RecurrentTrajectory(*kept, last_value=last_value, memory=state.memory)
        state = dataclasses.replace(state, running_return=running_return, memory=memory)
        return state, batch_state, trajectory

    def _batch(self: Any, state: Any, trajectory: Any, last_obs: jax.Array) -> Any:
        """Return the learner's batch by environments, leaves `[N, T, ...]`."""
        batch = self._valued(state, trajectory, trajectory.value, trajectory.last_value)
        shape = trajectory.reward.shape
        sequences = jax.tree.map(
            lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]).swapaxes(0, 1), batch
        )
        return dataclasses.replace(sequences, done=trajectory.done.T, memory=trajectory.memory)

    def _unrolled(self: Any, params: Any, batch: Any) -> tuple[jax.Array, jax.Array, Any]:
        """Run through the sequences of some environments, leaves `[N, T, ...]`.

        Returns:
            the outputs, `[B, P]`, the values, `[B]`, and the batch by rows, `[B, ...]`.
        """
        first_memory = self.first_memory(batch.done.shape[0])

        def advance(memory: Any, at: tuple[jax.Array, jax.Array]) -> tuple[Any, Any]:
            inputs, done = at
            memory, outputs, value = self._step(params, memory, inputs)
            return select_reset(done, first_memory, memory), (outputs, value)

        by_step = (batch.obs.swapaxes(0, 1), batch.done.T)
        _, (outputs, value) = jax.lax.scan(advance, batch.memory, by_step)
        outputs = outputs.swapaxes(0, 1).reshape(-1, outputs.shape[-1])
        rows = jax.tree.map(
            lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), dataclasses.replace(batch, memory={})
        )
        return outputs, value.T.reshape(-1), rows

    def _rows_of(self: Any, state: Any, batch: Any) -> Callable[[jax.Array], Any]:
        def rows_of(order: jax.Array) -> Any:
            rows = jax.tree.map(lambda leaf: leaf[order], batch)
            return dataclasses.replace(rows, obs=self._inputs(state, rows.obs))

        return rows_of


@dataclasses.dataclass(frozen=True)
class RecurrentPPO(Recurrent, PPO):
    """PPO of networks of which at least one has a memory."""

    def loss(self, params: dict[str, Any], batch: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return the loss of PPO for the sequences of some environments, and its metrics."""
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


@dataclasses.dataclass(frozen=True)
class RecurrentPQN(Recurrent, PQN):
    """PQN of a network with a memory."""

    def loss(self, params: jax.Array, batch: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return the loss of PQN for the sequences of some environments, and its metrics."""
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

    def _step(
        self, params: jax.Array, memory: Any, inputs: jax.Array
    ) -> tuple[Any, jax.Array, jax.Array]:
        """Return the next memory, the values, `[N, A]`, and the best of them, `[N]`."""
        memory, values = self._network.step(params, memory, inputs)
        return memory, values, self._network.best_value(values)
