"""What an environment is: two pure functions of ONE instance, which the rollout batches.

In docstrings here `O` is the shape of an observation and `A` that of an action.
"""

import importlib
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import jax
import numpy as np

from myriad.errors import InvalidArgumentError
from myriad.spaces import Space

State = TypeVar("State")
Params = TypeVar("Params")


class Environment(Protocol[State, Params]):
    """A Markov decision process as pure functions; a frozen dataclass with these members is one.

    `default_params` is a dataclass pytree of figures that may be batched or differentiated; other
    fields of the environment are static. Auto-reset belongs to the rollout, so `step` never resets.
    """

    @property
    def default_params(self) -> Params: ...

    def reset(self, key: jax.Array, params: Params) -> tuple[jax.Array, State]:
        """Draw a first observation, `[*O]`, and a first state."""
        ...

    def step(
        self, key: jax.Array, state: State, action: jax.Array, params: Params
    ) -> tuple[jax.Array, State, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        """Advance one time step by `action`, `[*A]`.

        Returns:
            obs `[*O]`, state, reward (float32 scalar), terminated and truncated (boolean scalars),
            info. `terminated` means that the process ended; `truncated` that the time was up, so
            that a value still bootstraps.
        """
        ...

    def observation_space(self, params: Params) -> Space:
        """Return the space that holds every observation."""
        ...

    def action_space(self, params: Params) -> Space:
        """Return the space of the actions that `step` accepts."""
        ...


def require_32_bits() -> None:
    """Raise InvalidArgumentError under `jax_enable_x64`: environments compute in 32 bits."""
    if jax.config.values["jax_enable_x64"]:
        raise InvalidArgumentError(
            "jax_enable_x64 must be False, since Myriad's environments, rollouts and trainings "
            "compute in 32 bits, but is True."
        )


def load_drawing(name: str) -> Callable[[Any, Any], np.ndarray]:
    """Return the `draw(env, state)` of `myriad.rendering.<name>`, imported on first use."""
    return importlib.import_module(f"myriad.rendering.{name}").draw
