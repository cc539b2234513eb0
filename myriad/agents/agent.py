"""What an agent is: a pure choice of actions, and for a learner also a pure update from experience.

In docstrings `N` is the number of environments, `O` the shape of an observation and `A` that of an
action.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

import jax

from myriad.agents.shards import Shards
from myriad.envs.vector import BatchState, Transition
from myriad.errors import InvalidArgumentError

State = TypeVar("State")

# Steps of all environments together, where an agent has no number of its own.
DEFAULT_TOTAL_STEPS = 500_000
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


@runtime_checkable
class Learner(Protocol[State]):
    """An agent that learns: a frozen dataclass whose fields are its hyperparameters.

    Derive from it: the members behind `act` have defaults, which suit most learners.

    Attributes:
        default_num_envs: environments that it learns from if you don't say how many.
        structural: its numbers that switch a part of the program on or off, so that they can't
            differ by slot in a `Population`. Integers never can, but for `num_epochs`.
        by_shard: names of the parts of its state that begin with an axis of shards, where there are
            several. A learner that names none can't be cut.
        shards: how the training is cut. A learner that can be has a field of this name, which the
            trainer sets.
    """

    default_num_envs: ClassVar[int]
    structural: ClassVar[frozenset[str]] = frozenset()
    by_shard: ClassVar[frozenset[str]] = frozenset()
    shards: Shards = Shards()

    @property
    def metric_names(self) -> tuple[str, ...]:
        """What `update` reports."""
        ...

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
        state, batch_state, experience = self.collect(key, state, batch_state, step)
        state, metrics = self.learn(key, state, batch_state, experience)
        return state, batch_state, metrics

    def collect(
        self, key: jax.Array, state: State, batch_state: BatchState, step: EnvStep
    ) -> tuple[State, BatchState, Any]:
        """Take the steps of an update; return what is learned from, too.

        A learner that has this and `learn` needs no `update`. Their shares of the time can then be
        measured.

        Raises:
            InvalidArgumentError: the learner has only `update`.
        """
        raise self._undivided()

    def learn(
        self, key: jax.Array, state: State, batch_state: BatchState, experience: Any
    ) -> tuple[State, dict[str, jax.Array]]:
        """Learn from what `collect` returned; return the metrics of `update`."""
        raise self._undivided()

    def act(self, state: State, key: jax.Array, obs: jax.Array, *, greedy: bool) -> jax.Array:
        """Choose `[N, *A]` for observations `[N, *O]`; `greedy` leaves exploration out."""
        ...

    def _undivided(self) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"{type(self).__name__} has no collect and learn, so its updates can't be divided."
        )

    @property
    def agent(self) -> Any:
        """The dataclass whose fields are the hyperparameters: the learner itself, by default."""
        return self

    @property
    def num_envs_multiple(self) -> int:
        """A number of environments such that it can learn from each of its multiples."""
        return 1

    @classmethod
    def defaults_for(
        cls, num_envs: int, total_steps: int | None, chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the fields whose defaults are others in such a training.

        Args:
            num_envs: environments that it learns from.
            total_steps: steps of all environments together; None if nobody says how many.
            chosen: the fields that are set already.
        """
        return {}

    def default_total_steps(self, num_envs: int) -> int:
        """Return the steps of all environments together in a training, unless you say how many."""
        return DEFAULT_TOTAL_STEPS

    def require_num_envs(self, num_envs: int) -> None:
        """Raise InvalidArgumentError if it can't learn from so many environments."""

    def scheduled(self, num_updates: int) -> Self:
        """Return the learner for a training of so many updates.

        A schedule that follows the training's length gets its length here, unless you chose one.
        """
        return self

    def first_learning_update(self, num_envs: int) -> int:
        """Return which update changes the parameters first, counted from 1."""
        return 1

    def shared_among(self, num_envs: int, num_devices: int) -> int:
        """Return how many of the devices are worth sharing a gradient step among.

        A learner that answers more than 1 has a field `num_devices`, which the trainer sets.
        """
        return 1
