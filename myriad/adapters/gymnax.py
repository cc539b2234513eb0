"""Environments of gymnax, such as `gymnax:CartPole-v1`, and Myriad's as gymnax's.

`myriad.adapters` imports it on first use.
"""

import dataclasses
import inspect
from functools import partial
from typing import Any, Self

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnax.environments import environment, spaces

from myriad.adapters import NO_BOUND, finite_bounds
from myriad.adapters.adapter import Stepped, results, strongly_typed
from myriad.engine.random import holds_keys
from myriad.envs.environment import Environment
from myriad.envs.vector import select_reset
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


@struct.dataclass
class AsGymnaxState(environment.EnvState):
    """A Myriad state, with the steps since the reset and how the last one ended."""

    env_state: Any
    terminated: jax.Array
    truncated: jax.Array


# obs, state, reward, terminated or done, and info
_Stepped = tuple[jax.Array, AsGymnaxState, jax.Array, jax.Array, dict[Any, Any]]


class AsGymnax(environment.Environment[AsGymnaxState, Any]):
    """A Myriad environment as a gymnax one. `step`, `reset` and auto-reset are gymnax's own."""

    # Detached by default and kept by `with_transition_gradients()`, as for gymnax's differentiable
    # environments.
    _supports_transition_gradients = True

    def __init__(self, env: Environment):
        super().__init__()
        self.env = env

    @property
    def default_params(self) -> Any:
        return self.env.default_params

    def own_params(self, params: Any) -> Any:
        """Return the parameters of the Myriad environment."""
        return params

    @property
    def name(self) -> str:
        return type(self.env).__name__

    @property
    def num_actions(self) -> int:
        """Return the number of choices, or of components if the action is a vector."""
        space = self.env.action_space(self.env.default_params)
        return space.n if isinstance(space, Discrete) else space.shape[0]

    def reset_env(self, key: jax.Array, params: Any) -> tuple[jax.Array, AsGymnaxState]:
        obs, env_state = self.env.reset(_typed(key), self.own_params(params))
        no = jnp.zeros((), bool)
        return obs, AsGymnaxState(jnp.zeros((), jnp.int32), env_state, terminated=no, truncated=no)  # pyright: ignore[reportArgumentType]

    def step_env(self, key: jax.Array, state: AsGymnaxState, action: Any, params: Any) -> _Stepped:
        action = jnp.stack(action) if isinstance(action, tuple) else jnp.asarray(action)
        obs, env_state, reward, terminated, truncated, info = self.env.step(
            _typed(key), state.env_state, action, self.own_params(params)
        )
        state = AsGymnaxState(state.time + 1, env_state, terminated, truncated)
        obs, state = self._apply_transition_gradient_policy(obs, state)
        return obs, state, reward, terminated, {"discount": self.discount(state, params), **info}

    def is_terminated(self, state: AsGymnaxState, params: Any) -> jax.Array:
        return state.terminated

    def is_truncated(self, state: AsGymnaxState, params: Any) -> jax.Array:
        return state.truncated

    def action_space(self, params: Any = None) -> spaces.Space:
        params = self.default_params if params is None else params
        return gymnax_space(self.env.action_space(self.own_params(params)))

    def observation_space(self, params: Any) -> spaces.Space:
        return gymnax_space(self.env.observation_space(self.own_params(params)))


@struct.dataclass
class ParamsWithLimit(environment.EnvParams):
    """The environment's parameters, and the time limit that callers of gymnax 0.0.x look for."""

    env_params: Any = None


class AsOldGymnax(AsGymnax):
    """The same in the form of gymnax 0.0.x, whichever gymnax is installed.

    `done` is true at any end, and `info["discount"]` is 0 only if the episode terminated.
    """

    @property
    def default_params(self) -> ParamsWithLimit:
        params = self.env.default_params
        # Without a limit of its own, the environment ends its episodes itself.
        limit = getattr(params, "max_steps", np.iinfo(np.int32).max)
        return ParamsWithLimit(limit, super().default_params)

    def own_params(self, params: ParamsWithLimit) -> Any:
        return params.env_params

    @partial(jax.jit, static_argnames=("self",))
    def step(
        self, key: jax.Array, state: AsGymnaxState, action: Any, params: Any = None
    ) -> _Stepped:
        params = self.default_params if params is None else params
        step_key, reset_key = jax.random.split(key)
        *last, reward, done, info = self.step_env(step_key, state, action, params)
        first = self.reset_env(reset_key, params)
        return *select_reset(done, first, tuple(last)), reward, done, info

    def step_env(
        self, key: jax.Array, state: AsGymnaxState, action: Any, params: ParamsWithLimit
    ) -> _Stepped:
        if not isinstance(action, tuple):  # rejax drops the axis of a single component.
            action = jnp.reshape(action, self.env.action_space(self.own_params(params)).shape)
        obs, state, reward, _, info = super().step_env(key, state, action, params)
        late = state.time >= params.max_steps_in_episode
        state = dataclasses.replace(state, truncated=state.truncated | late)
        return obs, state, reward, self.is_terminal(state, params), info

    def is_terminal(self, state: AsGymnaxState, params: Any) -> jax.Array:
        return state.terminated | state.truncated

    def discount(self, state: AsGymnaxState, params: Any) -> jax.Array:
        return jnp.where(state.terminated, 0.0, 1.0)

    def _apply_transition_gradient_policy(self, observation: Any, state: Any) -> tuple[Any, Any]:
        return observation, state  # gymnax 0.0.x lets gradients through.


def as_gymnax(env: Environment, version: str) -> AsGymnax:
    """Convert the environment for `myriad.adapters.to_gymnax`."""
    forms = {"1.0.1": AsGymnax, "0.0.9": AsOldGymnax}
    if version not in forms:
        raise UnknownNameError("version of gymnax", version, forms)
    if version == "1.0.1" and not hasattr(environment.Environment, "is_truncated"):
        raise InvalidArgumentError("version", "must be 0.0.9 with a gymnax before 1.0", version)
    return forms[version](env)


def _typed(key: jax.Array) -> jax.Array:
    """Return a typed key, since users of gymnax may pass those of `jax.random.PRNGKey`."""
    return key if holds_keys(key) else jax.random.wrap_key_data(key)


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
