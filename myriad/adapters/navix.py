"""Environments of NAVIX, such as `navix:Navix-Empty-8x8-v0`."""

import dataclasses
import importlib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from myriad.adapters.adapter import Adapter, Built, Stepped, results, strongly_typed
from myriad.spaces import Box, Discrete


@dataclasses.dataclass(frozen=True)
class FromNavix(Adapter):
    """An environment of NAVIX. Its `max_steps` truncate, by default 100 of them as in `navix.make`.

    Attributes:
        observation: the function of `navix.observations` that makes an observation.
    """

    library: ClassVar[str] = "navix"

    observation: str = "symbolic"

    @classmethod
    def names(cls) -> Iterable[str]:
        return importlib.import_module("navix").registry()

    @classmethod
    def arguments(cls, name: str) -> Mapping[str, Any]:
        return {"max_steps": 100, "gamma": 0.99, "penality_coeff": 0.0}

    def build(self) -> Built:
        navix = importlib.import_module("navix")
        observe = getattr(navix.observations, self.observation)
        env = navix.make(self.name, observation_fn=observe, **dict(self.options))
        obs = jax.eval_shape(env.reset, jax.random.key(0)).observation
        # NAVIX's own spaces leave numbers out, such as those of colours.
        most = 255 if obs.dtype == np.uint8 else jnp.iinfo(obs.dtype).max
        return Built(env, Box(0, most, obs.shape, obs.dtype), Discrete(int(env.action_space.n)))

    def reset(self, key: jax.Array, params: Any) -> tuple[jax.Array, Any]:
        timestep = strongly_typed(self.env.reset(key))
        return timestep.observation, timestep

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Stepped:
        # Its `step` would compute a reset, too, in case the last step ended the episode.
        timestep = self.env._step(state, action)  # noqa: SLF001
        return results(
            timestep.observation,
            timestep,
            timestep.reward,
            timestep.is_termination(),
            timestep.is_truncation(),
            {},
        )

    def render(self, state: Any) -> np.ndarray:
        """Draw the grid: uint8 `[H, W, 3]`, on the host."""
        return np.asarray(importlib.import_module("navix").observations.rgb(state.state), np.uint8)
