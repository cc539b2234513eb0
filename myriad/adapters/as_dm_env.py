"""A Myriad environment as one of dm_env, imported on first use."""

import importlib
from typing import Any

import jax
import numpy as np

from myriad.envs.environment import Environment
from myriad.errors import InvalidArgumentError, shown
from myriad.random import make_key
from myriad.spaces import Box, Discrete

# Type checkers need not find dm_env.
_dm_env: Any = importlib.import_module("dm_env")


class AsDmEnv(_dm_env.Environment):
    """A Myriad environment as a `dm_env.Environment`, whose episodes all follow from one seed."""

    def __init__(self, env: Environment, seed: int):
        self.env = env
        self._key = make_key(seed)
        self._state: Any = None  # None before an episode and after one
        self._reset, self._step = jax.jit(env.reset), jax.jit(env.step)

    def reset(self) -> Any:
        self._key, key = jax.random.split(self._key)
        obs, self._state = self._reset(key, self.env.default_params)
        return _dm_env.restart(jax.device_get(obs))

    def step(self, action: Any) -> Any:
        if self._state is None:
            return self.reset()  # As dm_env has it: the action is ignored.
        spec = self.action_spec()
        says = f"must be of {spec}, but got {shown(action)}."
        try:
            action = spec.validate(np.asarray(action).astype(spec.dtype, casting="same_kind"))
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError("action", says) from error
        if np.isnan(action).any():  # It is neither below a bound nor above one.
            raise InvalidArgumentError("action", says)
        self._key, key = jax.random.split(self._key)
        obs, self._state, *others, _ = self._step(key, self._state, action, self.env.default_params)
        obs, reward, terminated, truncated = jax.device_get((obs, *others))
        if not (terminated or truncated):
            return _dm_env.transition(float(reward), obs)
        self._state = None
        return (_dm_env.termination if terminated else _dm_env.truncation)(float(reward), obs)

    def observation_spec(self) -> Any:
        return jax.tree.map(_spec, self.env.observation_space(self.env.default_params))

    def action_spec(self) -> Any:
        return _spec(self.env.action_space(self.env.default_params))


def _spec(space: Any) -> Any:
    if isinstance(space, Discrete):
        return _dm_env.specs.DiscreteArray(space.n, space.dtype)
    bounds = (space.low, space.high) if isinstance(space, Box) else (0, np.subtract(space.nvec, 1))
    return _dm_env.specs.BoundedArray(space.shape, space.dtype, *bounds)
