"""Environments of Jumanji, such as `jumanji:Snake-v1`."""

import dataclasses
import importlib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from myriad.adapters.adapter import (
    Adapter,
    Built,
    Stepped,
    defaults_of,
    strongly_typed,
    timestep_results,
)
from myriad.spaces import Box, Discrete, MultiDiscrete


@dataclasses.dataclass(frozen=True)
class FromJumanji(Adapter):
    """An environment of Jumanji. Agents of a team share the sum of their rewards.

    An episode whose discount is 0 at its end is terminated, and any other is truncated. So a time
    limit is a termination in most of Jumanji's environments, whose observations tell the time.
    """

    library: ClassVar[str] = "jumanji"

    @classmethod
    def names(cls) -> Iterable[str]:
        return sorted(importlib.import_module("jumanji").registered_environments())

    @classmethod
    def arguments(cls, name: str) -> Mapping[str, Any]:
        registration = importlib.import_module("jumanji.registration")
        spec = registration._REGISTRY[name]  # noqa: SLF001 (it has no public one)
        return defaults_of(registration.load(spec.entry_point)) | spec.kwargs

    def build(self) -> Built:
        env = importlib.import_module("jumanji").make(self.name, **dict(self.options))
        if env.reward_spec.shape:
            env = importlib.import_module("jumanji.wrappers").MultiToSingleWrapper(env)
        action_space = _space(env.action_spec)
        if isinstance(action_space, Box) and action_space.is_whole:
            most = np.broadcast_to(action_space.high, action_space.shape)
            action_space = MultiDiscrete(tuple(int(n) + 1 for n in most))
        return Built(env, _space(env.observation_spec), action_space)

    def reset(self, key: jax.Array, params: Any) -> tuple[Any, Any]:
        state, timestep = self.env.reset(key)
        return strongly_typed(timestep.observation), strongly_typed(state)

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Stepped:
        state, timestep = self.env.step(state, action.astype(self.env.action_spec.dtype))
        return timestep_results(timestep, state, timestep.extras)

    def action_mask(self, state: Any) -> jax.Array | None:
        """Return which actions are legal, boolean `[n]`; None where the state doesn't hold that."""
        mask = getattr(state, "action_mask", None)
        space = self.action_space(None)
        is_mask = isinstance(space, Discrete) and mask is not None and mask.shape == (space.n,)
        return mask if is_mask else None

    def render(self, state: Any) -> np.ndarray:
        """Draw the state with Matplotlib as Jumanji does: uint8 `[H, W, 3]`, on the host."""
        pyplot = importlib.import_module("matplotlib.pyplot")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # It tries to show a window, too.
            self.env.render(state)
        figure = pyplot.gcf()
        figure.set_dpi(50)
        figure.canvas.draw()
        return np.array(figure.canvas.buffer_rgba())[..., :3]


def _space(spec: Any) -> Any:
    """Convert a spec of one array, or a tree of specs into the same tree of spaces."""
    specs = importlib.import_module("jumanji.specs")
    if isinstance(spec, specs.MultiDiscreteArray) and len(spec.shape) == 1:
        return MultiDiscrete(tuple(int(n) for n in np.asarray(spec.num_values)))
    if isinstance(spec, specs.DiscreteArray) and spec.name != "step_count":
        return Discrete(int(spec.num_values))
    if isinstance(spec, specs.DiscreteArray):
        # A number, since a choice of 4,000 would be 4,000 inputs of a network. Its last value is
        # one above what the spec says.
        return Box(0, int(spec.num_values), (), spec.dtype)
    if isinstance(spec, specs.BoundedArray):
        return Box(np.asarray(spec.minimum), np.asarray(spec.maximum), spec.shape, spec.dtype)
    if isinstance(spec, specs.Array):
        return Box(-np.inf, np.inf, spec.shape, spec.dtype)
    children = spec._specs.items()  # noqa: SLF001 (the only list of its parts)
    return spec._constructor(**{name: _space(each) for name, each in children})  # noqa: SLF001
