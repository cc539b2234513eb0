"""A Myriad environment as one of brax, imported on first use."""

import importlib
from typing import Any

import jax
import jax.numpy as jnp

from myriad.adapters import centre_and_half_range, is_bounded
from myriad.adapters.adapter import typed_key
from myriad.envs.environment import Environment
from myriad.envs.wrappers import FlattenObservation
from myriad.errors import InvalidArgumentError
from myriad.spaces import Box

# Type checkers need not find brax.
_base: Any = importlib.import_module("brax.envs.base")


class AsBrax(_base.Env):
    """A Myriad environment as a `brax.envs.Env`.

    `state.info` holds the key of the next step as `rng`, and as `time_out` whether the episode was
    truncated, with which brax's PPO bootstraps if you pass `bootstrap_on_timeout=True`.
    """

    def __init__(self, env: Environment):
        space = env.action_space(env.default_params)
        if not isinstance(space, Box) or not is_bounded(space):
            raise InvalidArgumentError(
                "env", f"must have bounded continuous actions for brax, but has {space}."
            )
        self.env = FlattenObservation(env)
        self._action_space = space
        self._centre, self._half_range = centre_and_half_range(space)

    def reset(self, rng: jax.Array) -> Any:
        rng, reset_key = jax.random.split(rng)
        obs, env_state = self.env.reset(typed_key(reset_key), self.env.default_params)
        zero = jnp.zeros(())
        info = {"rng": rng, "time_out": zero}
        return _base.State(env_state, obs.astype(jnp.float32), reward=zero, done=zero, info=info)

    def step(self, state: Any, action: jax.Array) -> Any:
        rng, step_key = jax.random.split(state.info["rng"])
        action = jnp.reshape(action, self._action_space.shape) * self._half_range + self._centre
        obs, env_state, reward, terminated, truncated, _ = self.env.step(
            typed_key(step_key), state.pipeline_state, action, self.env.default_params
        )
        time_out = (truncated & ~terminated).astype(jnp.float32)
        return state.replace(
            pipeline_state=env_state,
            obs=obs.astype(jnp.float32),
            reward=reward,
            done=(terminated | truncated).astype(jnp.float32),
            info={**state.info, "rng": rng, "time_out": time_out},
        )

    @property
    def observation_size(self) -> int:
        return self.env.observation_space(self.env.default_params).shape[0]

    @property
    def action_size(self) -> int:
        return int(self._half_range.size)

    @property
    def backend(self) -> str:
        return "myriad"
