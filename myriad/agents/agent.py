"""What an agent is: a pure choice of actions, and for a learner also a pure update from experience.

In docstrings `N` is the number of environments, `O` the shape of an observation and `A` that of an
action.
"""

from typing import ClassVar, Protocol, TypeVar

import jax

from myriad.envs.vector import BatchState, Transition

State = TypeVar("State")

# The mesh axis over which a learner that shares its gradient steps among devices may sum.
LEARNER_AXIS = "learner"


class Agent(Protocol):
    """A fixed policy. If `uses_observation` is False, no observation is carried."""

    uses_observation: bool

    def act(self, key: jax.Array, obs: jax.Array | None) -> jax.Array:
        """Choose an action of ONE environment; `obs` is None unless `uses_observation`."""
        ...


class EnvStep(Protocol):
    """Advances all environments by one step, with auto-reset; use each key for one step only."""

    def __call__(
        self, key: jax.Array, batch_state: BatchState, action: jax.Array
    ) -> tuple[BatchState, Transition]:
        """Apply `action`, `[N, *A]`; choose the next one under `obs` of the state returned."""
        ...


class Learner(Protocol[State]):
    """An agent that learns: a frozen dataclass whose fields are its hyperparameters.

    `default_num_envs` is how many environments it learns from where nobody says, `metric_names`
    what `update` reports. A method `require_num_envs(num_envs)`, where there is one, raises where
    it can't learn from so many.
    """

    default_num_envs: ClassVar[int]
    metric_names: ClassVar[tuple[str, ...]]

    @property
    def steps_per_update(self) -> int:
        """Steps that `update` takes in every environment."""
        ...

    def init(self, key: jax.Array, num_envs: int) -> State:
        """Draw the first parameters; every array that learning changes is in the result."""
        ...

    def update(
        self, key: jax.Array, state: State, batch_state: BatchState, step: EnvStep
    ) -> tuple[State, BatchState, dict[str, jax.Array]]:
        """Collect `steps_per_update` steps of all environments and learn from them.

        Returns:
            The next state, the next batch, and a float32 scalar for each of `metric_names`, of
            which the trainer reports means.
        """
        ...

    def act(self, state: State, key: jax.Array, obs: jax.Array, *, greedy: bool) -> jax.Array:
        """Choose `[N, *A]` for observations `[N, *O]`; `greedy` leaves exploration out."""
        ...
