"""Environments of gymnax, such as `gymnax:CartPole-v1`, imported on first use."""

import dataclasses
import inspect
from typing import Any, Self

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments import environment, spaces

from myriad.adapters import NO_BOUND, finite_bounds
from myriad.adapters.adapter import Stepped, results, strongly_typed
from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.registry import check_overrides
from myriad.spaces import Box, Discrete, MultiDiscrete, Space


# No generated equality, since gymnax's parameters may hold arrays, which neither compare nor hash.
# An adapter equals only itself.
@dataclasses.dataclass(frozen=True, eq=False)
class FromGymnax:
    """A gymnax environment as a Myriad one, without its auto-reset, since the rollout does that.

    Observations are cast to float32, or to the integers that their space names. Every result is
    strongly typed, so that a chunk compiles once.
    """

    env: environment.Environment
    default_params: Any

    @property
    def name(self) -> str:
        return self.env.name

    @classmethod
    def adapt(cls, name_or_env: str | environment.Environment, /, **overrides: Any) -> Self:
        """Build the environment for `from_gymnax` and `make_env`."""
        is_name = isinstance(name_or_env, str)
        env = _make(name_or_env) if is_name else name_or_env
        params = {
            field.name: getattr(env.default_params, field.name)
            for field in dataclasses.fields(env.default_params)
        }
        # gymnax writes some floats as integers.
        kinds = {
            name: float(value) if type(value) is int else value for name, value in params.items()
        }
        config = {*inspect.signature(type(env)).parameters} if is_name else set()
        check_overrides(f"gymnax's {env.name}", dict.fromkeys(config) | kinds, overrides)
        chosen = {field: value for field, value in overrides.items() if field in config}
        if is_name and chosen:
            env = _make(name_or_env, **chosen)
        chosen = {field: value for field, value in overrides.items() if field in params}
        adapted = cls(env, dataclasses.replace(env.default_params, **chosen))
        # Refuse spaces without a counterpart here, and not in the middle of a trace.
        for space_of in (adapted.observation_space, adapted.action_space):
            space_of(adapted.default_params)
        return adapted

    def reset(self, key: jax.Array, params: Any) -> tuple[jax.Array, Any]:
        obs, state = self.env.reset_env(key, params)
        return self._observed(obs), strongly_typed(state)

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Stepped:
        obs, state, reward, terminated, info = self.env.step_env(
            key, state, self._choice(action), params
        )
        # In gymnax 0.0.x a time limit is a termination like any other.
        is_truncated = getattr(self.env, "is_truncated", None)
        truncated = is_truncated(state, params) if is_truncated else jnp.bool_(False)  # noqa: FBT003
        return results(self._observed(obs), state, reward, terminated, truncated, info)

    def observation_space(self, params: Any) -> Space:
        # Evaluate even inside a trace: gymnax computes bounds with JAX, but a space needs numbers.
        with jax.ensure_compile_time_eval():
            return myriad_space(self.env.observation_space(params))

    def action_space(self, params: Any) -> Space:
        with jax.ensure_compile_time_eval():
            return myriad_space(self.env.action_space(params))

    def _observed(self, obs: Any) -> jax.Array:
        return jnp.asarray(obs, self.observation_space(self.default_params).dtype)

    def _choice(self, action: jax.Array) -> Any:
        space = self.env.action_space(self.default_params)
        if isinstance(space, spaces.Tuple):
            return tuple(action[i] for i in range(space.num_spaces))
        return jnp.asarray(action, space.dtype)


def gymnax_space(space: Space) -> spaces.Space:
    """Convert a Myriad space. A vector of choices becomes a gymnax Tuple."""
    if isinstance(space, Discrete):
        return spaces.Discrete(space.n)
    if isinstance(space, MultiDiscrete):
        return spaces.Tuple([spaces.Discrete(n) for n in space.nvec])
    if isinstance(space, Box):
        low, high = finite_bounds(space)
        return spaces.Box(jnp.asarray(low), jnp.asarray(high), space.shape, space.dtype)
    raise InvalidArgumentError(f"{space!r} has no counterpart in gymnax; use a Box.")


def myriad_space(space: spaces.Space) -> Space:
    """Convert a gymnax space. A Tuple of choices becomes a vector."""
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.Tuple) and all(
        isinstance(part, spaces.Discrete) for part in space.spaces
    ):
        return MultiDiscrete(
            tuple(int(part.n) for part in space.spaces if isinstance(part, spaces.Discrete))
        )
    if isinstance(space, spaces.Box):
        low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
        low = np.where(low <= -NO_BOUND, -np.inf, low)
        high = np.where(high >= NO_BOUND, np.inf, high)
        shape = tuple(int(size) for size in np.atleast_1d(space.shape))
        is_integer = np.issubdtype(np.dtype(space.dtype), np.integer)
        return Box(low, high, shape, space.dtype if is_integer else np.float32)
    raise InvalidArgumentError(f"gymnax's {space!r} has no counterpart in Myriad; use one array.")


def _make(name: str, /, **config: Any) -> environment.Environment:
    if name not in gymnax.registered_envs:
        raise UnknownNameError("gymnax environment", name, gymnax.registered_envs)
    try:
        return gymnax.make(name, **config)[0]
    except OSError as error:  # One of gymnax's environments downloads data.
        raise InvalidArgumentError(f"gymnax can't build {name!r} here: {error}.") from error
