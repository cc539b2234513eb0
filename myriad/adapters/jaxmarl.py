"""Environments of JaxMARL, such as `jaxmarl:MPE_simple_spread_v3`.

One agent plays all of an environment's agents, or each of them is an environment of the batch.
"""

import dataclasses
import importlib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from myriad.adapters.adapter import Adapter, Built, Stepped, defaults_of, results, strongly_typed
from myriad.adapters.each_as_env import each_as_env
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
            return Built(env, Box(-np.inf, np.inf, (len(actions), numbers)), _joint(actions))
        own = _joint(actions[:1])
        if any(_joint([each]) != own for each in actions):
            raise InvalidArgumentError(
                "agents_as_envs",
                "must be false where agents choose from different spaces, but got True.",
            )
        return Built(env, Box(-np.inf, np.inf, (numbers,)), own)

    def start(self, key: jax.Array, params: Any) -> tuple[jax.Array, Any]:
        obs, state = self.env.reset(key)
        return self._rows(obs), strongly_typed(state)

    def reset(self, key: jax.Array, params: Any) -> tuple[jax.Array, Any]:
        reset = super().reset
        if not self.agents_as_envs:
            return reset(key, params)
        return each_as_env(lambda _, key: reset(key, params), len(self.env.agents))(None, key)

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Stepped:
        play = each_as_env(self._play, len(self.env.agents)) if self.agents_as_envs else self._play
        (obs, reward), (state, terminated, truncated, info) = play(action, (key, state))
        return results(obs, state, jnp.sum(reward), terminated, truncated, info)

    def _play(self, action: jax.Array, args: tuple[jax.Array, Any]) -> tuple[Any, Any]:
        """Return what differs by agent, then what they share. `args` are the key and the state."""
        agents = self.env.agents
        spaces = [self.env.action_space(agent) for agent in agents]
        flat, unravel = ravel_pytree([jnp.zeros(space.shape, space.dtype) for space in spaces])
        actions = dict(zip(agents, unravel(action.ravel().astype(flat.dtype)), strict=True))
        obs, state, rewards, dones, info = self.env.step_env(*args, actions)
        reward = jnp.stack([jnp.float32(rewards[agent]).ravel()[0] for agent in agents])
        done = dones["__all__"]
        limit = getattr(self.env, "max_steps", None)
        late = limit is not None and hasattr(state, "step") and state.step >= limit
        return (self._rows(obs), reward), (state, done & ~late, done & late, info)

    def _rows(self, obs: Mapping[str, jax.Array]) -> jax.Array:
        numbers = self.observation_space(None).shape[-1]
        rows = [jnp.ravel(obs[agent]).astype(jnp.float32) for agent in self.env.agents]
        return jnp.stack([jnp.pad(row, (0, numbers - row.size)) for row in rows])


def _joint(action_spaces: list[Any]) -> Space:
    """Return the space of all agents' actions, one after another."""
    spaces = importlib.import_module("jaxmarl.environments.spaces")
    if all(isinstance(each, spaces.Discrete) for each in action_spaces):
        return MultiDiscrete(tuple(int(each.n) for each in action_spaces))
    if all(isinstance(each, spaces.Box) for each in action_spaces):
        ends = [
            [np.broadcast_to(end, box.shape).ravel() for end in (box.low, box.high)]
            for box in action_spaces
        ]
        low, high = np.concatenate(ends, axis=1, dtype=np.float32)
        return Box(low, high, low.shape)
    raise InvalidArgumentError(
        "env",
        "must have agents that all choose from a Discrete, or all from a Box, but has "
        f"{', '.join(type(each).__name__ for each in action_spaces)}.",
    )


adapt = FromJaxMARL.adapt
