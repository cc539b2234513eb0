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


@dataclasses.dataclass(frozen=True)
class TMaze:
    """A cue at the start of a corridor of `length` steps, and a choice at its end that needs it."""

    default_params = {"length": 10}  # noqa: RUF012  (an object's own, as users write it)

    def reset(self, key: jax.Array, params: Any) -> tuple[jax.Array, Any]:
        state = jax.random.bernoulli(key), jnp.int32(0)
        return self._obs(state, params), state

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> tuple[Any, ...]:
        cue, time = state
        ends = time == params["length"]
        reward = (ends & (action == cue)).astype(jnp.float32)
        state = cue, time + 1
        return self._obs(state, params), state, reward, ends, jnp.zeros((), bool), {}

    def observation_space(self, params: Any) -> Box:
        return Box(-1.0, 1.0, (2,))

    def action_space(self, params: Any) -> Discrete:
        return Discrete(2)

    def _obs(self, state: Any, params: Any) -> jax.Array:
        cue, time = state
        shown = jnp.where(time == 0, jnp.where(cue, 1.0, -1.0), 0.0)
        return jnp.stack([shown, (time == params["length"]).astype(jnp.float32)])


@dataclasses.dataclass(frozen=True)
class RepeatPrevious:
    """POPGym's `RepeatPreviousEasy`: say the suit of the fourth last card that you saw.

    One deck is dealt. Each of the 48 answers that count gives or costs 1/48.
    """

    default_params = {"previous": 4}  # noqa: RUF012  (an object's own, as users write it)

    def reset(self, key: jax.Array, params: Any) -> tuple[jax.Array, Any]:
        state = jax.random.permutation(key, jnp.arange(52, dtype=jnp.int32) % 4), jnp.int32(0)
        return self._obs(state), state

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> tuple[Any, ...]:
        suits, time = state
        asked = time + 1 - params["previous"]
        reward = jnp.where(action == suits[asked], 1.0, -1.0) / (52 - params["previous"])
        reward = jnp.where(asked >= 0, reward, 0.0)
        state = suits, time + 1
        return self._obs(state), state, reward, time == 50, jnp.zeros((), bool), {}

    def observation_space(self, params: Any) -> Box:
        return Box(0.0, 1.0, (4,))

    def action_space(self, params: Any) -> Discrete:
        return Discrete(4)

    def _obs(self, state: Any) -> jax.Array:
        suits, time = state
        return jax.nn.one_hot(suits[time], 4)
