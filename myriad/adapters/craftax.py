"""Environments of Craftax, such as `craftax:Craftax-Classic-Symbolic-v1`."""

import dataclasses
import functools
import importlib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from myriad.adapters.adapter import Adapter, Built, Stepped, results, strongly_typed
from myriad.spaces import Box, Discrete


@dataclasses.dataclass(frozen=True)
class FromCraftax(Adapter):
    """An environment of Craftax. Its parameters are fields, as `max_timesteps` is.

    Craftax calls every end of an episode a termination, that at `max_timesteps`, too.
    """

    library: ClassVar[str] = "craftax"

    @classmethod
    def names(cls) -> Iterable[str]:
        return [f"Craftax-{each}-v1" for each in _KINDS]

    @classmethod
    def arguments(cls, name: str) -> Mapping[str, Any]:
        params = _made(name).default_params
        return {each.name: getattr(params, each.name) for each in dataclasses.fields(params)}

    def build(self) -> Built:
        env = _made(self.name)
        params = env.default_params.replace(**dict(self.options))
        space = env.observation_space(params)
        box = Box(float(space.low), float(space.high), tuple(space.shape), space.dtype)
        return Built((env, params), box, Discrete(env.num_actions))

    @property
    def default_params(self) -> Any:
        return self.env[1]

    def reset(self, key: jax.Array, params: Any) -> tuple[jax.Array, Any]:
        return strongly_typed(self.env[0].reset_env(key, params))

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Stepped:
        obs, state, reward, done, info = self.env[0].step_env(key, state, action, params)
        return results(obs, state, reward, done, False, info)  # noqa: FBT003 (nothing truncates)

    def render(self, state: Any) -> np.ndarray:
        """Draw what the player sees: uint8 `[H, W, 3]`, on the host."""
        return np.asarray(_renderer("Classic" in self.name)(state)).astype(np.uint8)


# Craftax has no list of its names.
_KINDS = ("Classic-Pixels", "Classic-Symbolic", "Pixels", "Symbolic")


def _made(name: str) -> Any:
    make = importlib.import_module("craftax.craftax_env").make_craftax_env_from_name
    return make(name, auto_reset=False)


@functools.cache
def _renderer(is_classic: bool) -> Any:  # noqa: FBT001 (one place calls it)
    package = f"craftax.{'craftax_classic' if is_classic else 'craftax'}"
    size = importlib.import_module(f"{package}.constants").BLOCK_PIXEL_SIZE_IMG
    make = importlib.import_module(f"{package}.renderer").make_craftax_pixel_renderer
    return jax.jit(make(size))
