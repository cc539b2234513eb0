"""The protocol of environments: two pure functions of ONE instance, which the rollout batches.

In docstrings here `O` is the shape of an observation and `A` the shape of an action.
"""

from typing import Annotated, Any, Protocol, TypeVar

import jax

from myriad.ranges import Integer, Like, Number
from myriad.spaces import Space

# Types of parameters with their ranges, which `make_env` checks. Values may be batched or traced.
Finite = Annotated[float | jax.Array, Number(arrays=True)]
NotNegative = Annotated[float | jax.Array, Number(0, arrays=True)]
Positive = Annotated[float | jax.Array, Number(positive=True, arrays=True)]
Limit = Annotated[float | jax.Array, Number(positive=True, infinity=True, arrays=True)]
Probability = Annotated[float | jax.Array, Number(0, 1, arrays=True)]
Steps = Annotated[int | jax.Array, Integer(1, arrays=True)]

State = TypeVar("State")
Params = TypeVar("Params")


class Environment(Protocol[State, Params]):
    """A Markov decision process as pure functions: any frozen dataclass with these members.

    `default_params` is a dataclass and pytree of numbers that may be batched or differentiated. All
    other fields of the environment are static. The rollout does the auto-reset, so `step` never
    resets.
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
            info. `terminated` means that the process ended. `truncated` means that the time was up,
            so that a value still bootstraps.
        """
        ...

    def observation_space(self, params: Params) -> Space:
        """Return the space that holds every observation."""
        ...

    def action_space(self, params: Params) -> Space:
        """Return the space of the actions that `step` accepts."""
        ...


# The type of an argument that is an environment.
AnyEnvironment = Annotated[
    Environment, Like("an environment, as make_env builds it", "default_params", "reset", "step")
]


class Changeable:
    """The base of environments that make themselves anew, as those of other libraries do."""

    def changed(self, **overrides: Any) -> Any:
        """Return the environment with other fields or options."""
        raise NotImplementedError
