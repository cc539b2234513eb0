"""Environments of published results that no library for JAX has.

`python benchmarks/learning.py --published` trains in them. See `benchmarks/published.toml`.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from myriad import make_env
from myriad.envs.wrappers import ObservationWrapper
from myriad.spaces import Box, Discrete


class _NoVelocity(ObservationWrapper):
    """A gymnax environment without some of its observations, as in SB3's zoo."""

    shown: ClassVar[tuple[int, ...]]

    def observation(self, obs: Any, state: Any, params: Any) -> jax.Array:
        return obs[jnp.array(self.shown)]

    def observation_space(self, params: Any) -> Box:
        space: Any = self.env.observation_space(params)
        low, high = (np.broadcast_to(end, space.shape) for end in (space.low, space.high))
        return Box(low[[*self.shown]], high[[*self.shown]], (len(self.shown),), space.dtype)


@dataclasses.dataclass(frozen=True)
class CartPoleNoVelocity(_NoVelocity):
    """CartPole that shows where cart and pole are, and not how fast they move."""

    env: Any = dataclasses.field(default_factory=lambda: make_env("gymnax:CartPole-v1"))
    shown = (0, 2)


@dataclasses.dataclass(frozen=True)
class PendulumNoVelocity(_NoVelocity):
    """Pendulum that shows its angle, and not how fast it turns."""

    env: Any = dataclasses.field(default_factory=lambda: make_env("gymnax:Pendulum-v1"))
    shown = (0, 1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class InvalidActionsState:
    """The action that the next step rewards, the legal actions `[A]`, and the steps so far."""

    target: jax.Array
    legal: jax.Array
    time: jax.Array


@dataclasses.dataclass(frozen=True)
class InvalidActions:
    """sb3-contrib's `InvalidActionEnvDiscrete`: repeat what you see, and few actions are legal.

    A step draws a new target and `num_actions - num_invalid` legal actions, the target among them.
    """

    num_actions: int = 80
    num_invalid: int = 60
    default_params = {"max_steps": 100}  # noqa: RUF012  (an object's own, as users write it)

    def reset(self, key: jax.Array, params: Any) -> tuple[jax.Array, InvalidActionsState]:
        return self._next(key, jnp.int32(0))

    def step(
        self, key: jax.Array, state: InvalidActionsState, action: jax.Array, params: Any
    ) -> tuple[Any, ...]:
        reward = (action == state.target).astype(jnp.float32)
        obs, state = self._next(key, state.time + 1)
        return obs, state, reward, jnp.zeros((), bool), state.time >= params["max_steps"], {}

    def action_mask(self, state: InvalidActionsState) -> jax.Array:
        return state.legal

    def observation_space(self, params: Any) -> Box:
        return Box(0.0, 1.0, (self.num_actions,))

    def action_space(self, params: Any) -> Discrete:
        return Discrete(self.num_actions)

    def _next(self, key: jax.Array, time: jax.Array) -> tuple[jax.Array, InvalidActionsState]:
        # The first of a random order is the target, and the last ones are invalid.
        rank = jax.random.permutation(key, self.num_actions)
        target = jnp.argmin(rank).astype(jnp.int32)
        legal = rank < self.num_actions - self.num_invalid
        return jax.nn.one_hot(target, self.num_actions), InvalidActionsState(target, legal, time)
