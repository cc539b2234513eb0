"""PPO with a memory: both networks carry a hidden state through the steps of an episode.

`make_agent("ppo", env, network="gru")` builds it. Its minibatches are whole rollouts of some
environments. The networks run through them again from the memory with which the rollout began.
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
from myriad.agents.ppo import PPO, PPOBatch, PPOState
from myriad.agents.trajectory import Trajectory, act_and_step
from myriad.envs.vector import BatchState, select_reset
from myriad.errors import InvalidArgumentError, shown

# Folded into a key. PPO folds 1 into the key of its shuffles.
_COLLECT = 0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RecurrentPPOState(PPOState):
    """PPO's state with the `memory` of `actor` and `critic`, leaves `[N, ...]`."""

    memory: dict[str, Any]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RecurrentTrajectory(Trajectory):
    """A rollout with its values, `[T, N]` and `[N]`, and the memory before its first step."""

    value: jax.Array
    last_value: jax.Array
    memory: dict[str, Any]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sequences(PPOBatch):
    """PPO's batch by environments, leaves `[N, T, ...]`, and the memory before the first step."""

    done: jax.Array
    memory: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class RecurrentPPO(PPO):
    """PPO of networks with a memory, by backpropagation through the time of a rollout."""

    per_device: ClassVar[frozenset[str] | None] = frozenset({"running_return", "memory"})
    trains_memory: ClassVar[bool] = True

    @classmethod
    def defaults_for(
        cls, num_envs: int, total_steps: int | None, chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return PPO's defaults, with minibatches of whole environments."""
        defaults = super().defaults_for(num_envs, total_steps, chosen)
        most = defaults.get("num_minibatches", cls.num_minibatches)
        return defaults | {"num_minibatches": math.gcd(most, num_envs)}

    def require_num_envs(self, num_envs: int) -> None:
        """Raise InvalidArgumentError unless environments divide into minibatches and parts."""
        if num_envs % self.num_envs_multiple:
            raise InvalidArgumentError(
                "num_minibatches",
                f"x gradient_accumulation must divide num_envs = {num_envs} with network "
                f"{shown(self.network)}, but is {self.num_envs_multiple}.",
            )
        super().require_num_envs(num_envs)

    def init(self, key: jax.Array, num_envs: int) -> RecurrentPPOState:
        """Draw the networks' parameters. Raises the errors of `require_num_envs`."""
        first = super().init(key, num_envs)
        return RecurrentPPOState(**vars(first), memory=self.first_memory(num_envs))

    def collect(
        self, key: jax.Array, state: Any, batch_state: BatchState, envs: Environments
    ) -> tuple[RecurrentPPOState, BatchState, RecurrentTrajectory]:
        """Take `rollout_steps` steps of all environments."""
        first_memory = self.first_memory(state.running_return.shape[0])

        def step(memory: Any, obs: Any) -> tuple[Any, jax.Array, jax.Array]:
            return self._step(state.params, memory, self._inputs(state, flatten(obs)))

        def advance(carry: Any, t: jax.Array) -> tuple[Any, Any]:
            batch_state, running_return, memory = carry
            obs: Any = batch_state.obs

            def choose(keys: jax.Array, obs: jax.Array) -> tuple[jax.Array, Any]:
                after, outputs, value = step(memory, obs)
                choice = self.policy.sample(keys, outputs, self._log_std(state.params))
                return self.policy.action(choice), ((outputs, choice), value, after)

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

    def loss(self, params: dict[str, Any], batch: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return the loss of PPO for the `Sequences` of some environments, and its metrics."""
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
        return self._loss(params, outputs, value.T.reshape(-1), rows)

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
        inputs = self._inputs(state, flatten(obs))
        memory, outputs, _ = self._step(state.params, memory, inputs)
        return self._action(state, key, outputs, greedy=greedy), memory

    def _batch(self, state: PPOState, trajectory: Any, last_obs: jax.Array) -> Sequences:
        batch = self._valued(state, trajectory, trajectory.value, trajectory.last_value)
        shape = trajectory.reward.shape
        by_env = jax.tree.map(
            lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]).swapaxes(0, 1), batch
        )
        return Sequences(**vars(by_env), done=trajectory.done.T, memory=trajectory.memory)

    def _rows_of(self, state: PPOState, batch: Any) -> Callable[[jax.Array], Any]:
        def rows_of(order: jax.Array) -> Any:
            rows = jax.tree.map(lambda leaf: leaf[order], batch)
            return dataclasses.replace(rows, obs=self._inputs(state, rows.obs))

        return rows_of

    def _step(
        self, params: dict[str, Any], memory: dict[str, Any], inputs: jax.Array
    ) -> tuple[dict[str, Any], jax.Array, jax.Array]:
        """Return the next memory, the policy's outputs, `[N, P]`, and the values, `[N]`."""
        obs, mask = jnp.split(inputs, [self._obs_size], axis=1)
        actor, outputs = _stepped(self._actor, params["actor"], memory["actor"], obs)
        critic, value = _stepped(self._critic, params["critic"], memory["critic"], obs)
        outputs = legal_outputs(outputs.astype(jnp.float32), mask)
        return {"actor": actor, "critic": critic}, outputs, value[:, 0].astype(jnp.float32)


def _stepped(network: Any, params: Any, memory: Any, obs: jax.Array) -> tuple[Any, jax.Array]:
    """Return the next memory and the outputs. Only one of the two networks may have a memory."""
    if hasattr(network, "step"):
        return network.step(params, memory, obs)
    return memory, network.apply(params, obs)
