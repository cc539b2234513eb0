"""Environments of JaxMARL, such as `jaxmarl:MPE_simple_spread_v3`, as one agent that plays all."""

import dataclasses
import importlib
from collections.abc import Iterable, Mapping
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
    end at `max_steps` is a truncation, and any other a termination.
    """

    library: ClassVar[str] = "jaxmarl"

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
        space = Box(-np.inf, np.inf, (len(env.agents), numbers))
        return Built(env, space, _joint([env.action_space(agent) for agent in env.agents]))

    def start(self, key: jax.Array, params: Any) -> tuple[jax.Array, Any]:
        obs, state = self.env.reset(key)
        return self._rows(obs), strongly_typed(state)

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Stepped:
        obs, state, rewards, dones, info = self.env.step_env(key, state, self._split(action))
        reward = sum(rewards[agent] for agent in self.env.agents)
        done = dones["__all__"]
        limit = getattr(self.env, "max_steps", None)
        late = limit is not None and hasattr(state, "step") and state.step >= limit
        return results(self._rows(obs), state, reward, done & ~late, done & late, info)

    def _rows(self, obs: Mapping[str, jax.Array]) -> jax.Array:
        numbers = self.observation_space(None).shape[1]
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
