"""Environments of JaxMARL, such as `jaxmarl:MPE_simple_spread_v3`.

One agent plays all of an environment's agents, or each of them is an environment of the batch.
"""

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from myriad.adapters.adapter import Adapter, Built, Stepped, defaults_of, results, strongly_typed
from myriad.errors import InvalidArgumentError
from myriad.spaces import Box, MultiDiscrete, Space


@dataclasses.dataclass(frozen=True)
class FromJaxMARL(Adapter):
    """An environment of JaxMARL, whose agents are one: a choice for each, and their rewards' sum.

    An observation is float32 `[agents, numbers]`, a row for each agent, filled up with zeros. An
    end at `max_steps` is a truncation, and any other a termination. An episode ends once all agents
    have ended.

    Attributes:
        agents_as_envs: each agent is an environment of the batch, as `each_as_env` says, and has
            its own row, choice and reward. All agents choose from the same space.
    """

    library: ClassVar[str] = "jaxmarl"

    agents_as_envs: bool = dataclasses.field(default=False, kw_only=True)

    @classmethod
    def names(cls) -> Iterable[str]:
        return importlib.import_module("jaxmarl").registered_envs

    @classmethod
    def arguments(cls, name: str) -> Mapping[str, Any]:
        try:
            kind = type(importlib.import_module("jaxmarl").make(name))
        except Exception:  # noqa: BLE001 (`build` meets it again, and says it)
            return {}
        # A class passes on to its base those that it doesn't name.
        known = {}
        for each in reversed(kind.__mro__):
            known |= defaults_of(each.__init__)
        del known["self"]
        return known

    def build(self) -> Built:
        env = importlib.import_module("jaxmarl").make(self.name, **dict(self.options))
        obs = jax.eval_shape(env.reset, jax.random.key(0))[0]
        numbers = max(obs[agent].size for agent in env.agents)
        actions = [env.action_space(agent) for agent in env.agents]
        if not self.agents_as_envs:
            space = Box(-np.inf, np.inf, (len(env.agents), numbers))
            return Built(env, space, _joint(actions))
        spaces = [_joint([each]) for each in actions]
        if any(each != spaces[0] for each in spaces):
            raise InvalidArgumentError(
                "agents_as_envs",
                "must be false where agents choose from different spaces, but got True.",
            )
        return Built(env, Box(-np.inf, np.inf, (numbers,)), spaces[0])

    def start(self, key: jax.Array, params: Any) -> tuple[jax.Array, Any]:
        obs, state = self.env.reset(key)
        return self._rows(obs), strongly_typed(state)

    def reset(self, key: jax.Array, params: Any) -> tuple[jax.Array, Any]:
        reset = super().reset
        if not self.agents_as_envs:
            return reset(key, params)
        return self._each(lambda _, key: reset(key, params))(None, key)

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Stepped:
        play = self._each(self._play) if self.agents_as_envs else self._play
        (obs, reward), (state, terminated, truncated, info) = play(action, (key, state))
        return results(obs, state, jnp.sum(reward), terminated, truncated, info)

    def _each(self, joint: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        return each_as_env(joint, len(self.env.agents))

    def _play(self, action: jax.Array, args: tuple[jax.Array, Any]) -> tuple[Any, Any]:
        """Return what differs by agent, then what they share. `args` are the key and the state."""
        obs, state, rewards, dones, info = self.env.step_env(*args, self._split(action.ravel()))
        reward = jnp.stack([jnp.float32(rewards[agent]).ravel()[0] for agent in self.env.agents])
        done = dones["__all__"]
        limit = getattr(self.env, "max_steps", None)
        late = limit is not None and hasattr(state, "step") and state.step >= limit
        return (self._rows(obs), reward), (state, done & ~late, done & late, info)

    def _rows(self, obs: Mapping[str, jax.Array]) -> jax.Array:
        numbers = self.observation_space(None).shape[-1]
        rows = [jnp.ravel(obs[agent]).astype(jnp.float32) for agent in self.env.agents]
        return jnp.stack([jnp.pad(row, (0, numbers - row.size)) for row in rows])

    def _split(self, action: jax.Array) -> dict[str, jax.Array]:
        actions, start = {}, 0
        for agent in self.env.agents:
            space = self.env.action_space(agent)
            size = int(np.prod(space.shape))
            part = action[start : start + size]
            actions[agent] = part.reshape(space.shape).astype(space.dtype)
            start += size
        return actions


def each_as_env(joint: Callable[[Any, Any], Any], num_agents: int) -> Callable[[Any, Any], Any]:
    """Return a function of one agent for a function of all agents of an environment.

    In a batch under `jax.vmap`, each `num_agents` rows in order are the agents of one environment.
    The other arguments, such as its key and its state, are those of its first row. Alone, without a
    batch, all agents do the same, and the results are those of the first.

    Args:
        joint: maps what agents bring, leaves `[num_agents, ...]`, and what they share to a pair of
            results: what differs by agent, leaves `[num_agents, ...]`, and what they share.
        num_agents: how many agents.
    """

    @jax.custom_batching.custom_vmap
    def alone(own: Any, shared: Any) -> Any:
        same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_agents, *leaf.shape)), own)
        own, shared = joint(same, shared)
        return jax.tree.map(lambda leaf: leaf[0], own), shared

    @alone.def_vmap
    def in_batch(axis_size: int, is_batched: Any, own: Any, shared: Any) -> Any:
        if axis_size % num_agents:
            raise InvalidArgumentError(
                f"num_envs, eval_rollouts and the tiles of a Rollout must be multiples of "
                f"{num_agents}, since each agent of an environment counts as one, but one of them "
                f"is {axis_size}."
            )

        def filled(leaf: jax.Array, has_axis: bool) -> jax.Array:  # noqa: FBT001
            return leaf if has_axis else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))

        own, shared = jax.tree.map(filled, (own, shared), tuple(is_batched))
        own = jax.tree.map(lambda leaf: leaf.reshape(-1, num_agents, *leaf.shape[1:]), own)
        own, shared = jax.vmap(joint)(own, jax.tree.map(lambda leaf: leaf[::num_agents], shared))
        own = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), own)
        shared = jax.tree.map(lambda leaf: jnp.repeat(leaf, num_agents, axis=0), shared)
        return (own, shared), jax.tree.map(lambda _: True, (own, shared))

    return alone


def _joint(action_spaces: list[Any]) -> Space:
    """Return the space of all agents' actions, one after another."""
    spaces = importlib.import_module("jaxmarl.environments.spaces")
    if all(isinstance(each, spaces.Discrete) for each in action_spaces):
        return MultiDiscrete(tuple(int(each.n) for each in action_spaces))
    if all(isinstance(each, spaces.Box) for each in action_spaces):
        low, high = (
            np.concatenate(
                [np.full(box.shape, getattr(box, end), np.float32).ravel() for box in action_spaces]
            )
            for end in ("low", "high")
        )
        return Box(low, high, low.shape)
    raise InvalidArgumentError(
        "env",
        "must have agents that all choose from a Discrete, or all from a Box, but has "
        f"{', '.join(type(each).__name__ for each in action_spaces)}.",
    )


adapt = FromJaxMARL.adapt
