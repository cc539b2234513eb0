"""Environments of brax, such as `brax:ant`, and of what has brax's interface."""

import dataclasses
import importlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

import jax
import numpy as np

from myriad.adapters.adapter import Adapter, Built, Stepped, defaults_of, results, strongly_typed
from myriad.ranges import Integer
from myriad.spaces import Box


@dataclasses.dataclass(frozen=True)
class WithBraxState(Adapter):
    """An environment in brax's episode wrapper, which says whether an end is a truncation.

    Its actions run from -1 to 1, as brax's own agents choose them.
    """

    def wrapped(self, env: Any, episode_length: int, action_repeat: int) -> Built:
        wrappers = importlib.import_module("brax.envs.wrappers.training")
        env = wrappers.EpisodeWrapper(env, episode_length, action_repeat)
        obs = jax.eval_shape(env.reset, jax.random.key(0)).obs
        space = jax.tree.map(lambda each: Box(-np.inf, np.inf, each.shape, each.dtype), obs)
        return Built(env, space, Box(-1.0, 1.0, (env.action_size,)))

    def reset(self, key: jax.Array, params: Any) -> tuple[Any, Any]:
        state = strongly_typed(self.env.reset(key))
        return state.obs, state

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Stepped:
        state = self.env.step(state, action)
        truncated = state.info["truncation"] > 0
        terminated = (state.done > 0) & ~truncated
        return results(state.obs, state, state.reward, terminated, truncated, state.metrics)


@dataclasses.dataclass(frozen=True)
class FromBrax(WithBraxState):
    """An environment of brax.

    Attributes:
        backend: the physics: generalized, spring, positional or mjx.
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
        env = _brax().get_environment(self.name, backend=self.backend, **dict(self.options))
        return self.wrapped(env, self.episode_length, self.action_repeat)

    def render(self, state: Any) -> np.ndarray:
        """Draw the bodies with MuJoCo: uint8 `[240, 320, 3]`, on the host."""
        image = importlib.import_module("brax.io.image")
        return np.asarray(image.render_array(self.env.sys, state.pipeline_state))


def _brax() -> Any:
    return importlib.import_module("brax.envs")
