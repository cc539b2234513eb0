"""A Myriad environment as one of gymnax 1.x or 0.0.x, imported on first use."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnax.environments import environment, spaces

from myriad.adapters.adapter import typed_key
from myriad.adapters.gymnax import gymnax_space
from myriad.envs.environment import Environment
from myriad.envs.vector import select_reset
from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.spaces import Discrete


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
        obs, env_state = self.env.reset(typed_key(key), self.own_params(params))
        no = jnp.zeros((), bool)
        return obs, AsGymnaxState(jnp.zeros((), jnp.int32), env_state, terminated=no, truncated=no)  # pyright: ignore[reportArgumentType]

    def step_env(self, key: jax.Array, state: AsGymnaxState, action: Any, params: Any) -> _Stepped:
        action = jnp.stack(action) if isinstance(action, tuple) else jnp.asarray(action)
        obs, env_state, reward, terminated, truncated, info = self.env.step(
            typed_key(key), state.env_state, action, self.own_params(params)
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
