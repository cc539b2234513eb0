"""Environments of XLand-MiniGrid, such as `xland:MiniGrid-Empty-8x8`."""

import dataclasses
import importlib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from myriad.adapters.adapter import Adapter, Built, Stepped, strongly_typed, timestep_results
from myriad.spaces import Box, Discrete


@dataclasses.dataclass(frozen=True)
class FromXLand(Adapter):
    """An environment of XLand-MiniGrid. Its parameters are static fields, as `view_size` is."""

    library: ClassVar[str] = "xland"

    @classmethod
    def names(cls) -> Iterable[str]:
        return importlib.import_module("xminigrid").registered_environments()

    @classmethod
    def arguments(cls, name: str) -> Mapping[str, Any]:
        params = importlib.import_module("xminigrid").make(name)[1]
        return {each.name: getattr(params, each.name) for each in dataclasses.fields(params)}

    def build(self) -> Built:
        env, params = importlib.import_module("xminigrid").make(self.name, **dict(self.options))
        obs = jax.eval_shape(lambda key: env.reset(params, key), jax.random.key(0)).observation
        numbers = importlib.import_module("xminigrid.core.constants")
        most = max(numbers.NUM_TILES, numbers.NUM_COLORS) - 1
        return Built(
            (env, params),
            jax.tree.map(lambda each: Box(0, most, each.shape, each.dtype), obs),
            Discrete(env.num_actions(params)),
        )

    def reset(self, key: jax.Array, params: Any) -> tuple[Any, Any]:
        env, own_params = self.env
        timestep = strongly_typed(env.reset(own_params, key))
        return timestep.observation, timestep

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Stepped:
        env, own_params = self.env
        timestep = env.step(own_params, state, action)
        return timestep_results(timestep, timestep, {})

    def render(self, state: Any) -> np.ndarray:
        """Draw the grid: uint8 `[H, W, 3]`, on the host."""
        env, own_params = self.env
        return np.asarray(env.render(own_params, state), np.uint8)
