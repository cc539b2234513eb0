"""Environments of brax, such as `brax:ant`."""

import dataclasses
import importlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

import jax
import numpy as np

from myriad.adapters.adapter import Adapter, Built, defaults_of, results, strongly_typed
from myriad.ranges import Integer
from myriad.spaces import Box


@dataclasses.dataclass(frozen=True)
class FromBrax(Adapter):
    """An environment of brax. Its actions run from -1 to 1, as brax's own agents choose them.

    Attributes:
        backend: the physics: generalized, spring, positional or mjx. By default the environment's
            own, which is generalized.
        episode_length: steps after which an episode is truncated.
        action_repeat: steps of brax in which each action is repeated.
    """

    library: ClassVar[str] = "brax"

    backend: str = "generalized"
    episode_length: Annotated[int, Integer(1)] = 1000
    action_repeat: Annotated[int, Integer(1)] = 1

    @classmethod
    def names(cls) -> Iterable[str]:
        return _brax()._envs  # noqa: SLF001 (brax has no public list)

    @classmethod
    def arguments(cls, name: str) -> Mapping[str, Any]:
        return defaults_of(_brax()._envs[name])  # noqa: SLF001

    def build(self) -> Built:
        env = _brax().create(
            self.name,
            self.episode_length,
            self.action_repeat,
            auto_reset=False,
            backend=self.backend,
            **dict(self.options),
        )
        obs = jax.eval_shape(env.reset, jax.random.key(0)).obs
        space = jax.tree.map(lambda each: Box(-np.inf, np.inf, each.shape, each.dtype), obs)
        return Built(env, space, Box(-1.0, 1.0, (env.action_size,)))

    def reset(self, key: jax.Array, params: Any) -> tuple[Any, Any]:
        state = strongly_typed(self.env.reset(key))
        return state.obs, state

    def step(
        self, key: jax.Array, state: Any, action: jax.Array, params: Any
    ) -> tuple[Any, Any, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        state = self.env.step(state, action)
        truncated = state.info["truncation"] > 0
        terminated = (state.done > 0) & ~truncated
        return results(state.obs, state, state.reward, terminated, truncated, state.metrics)

    def render(self, state: Any) -> np.ndarray:
        """Draw the bodies with MuJoCo: uint8 `[240, 320, 3]`, on the host."""
        image = importlib.import_module("brax.io.image")
        return np.asarray(image.render_array(self.env.sys, state.pipeline_state))


def _brax() -> Any:
    return importlib.import_module("brax.envs")


adapt = FromBrax.adapt
