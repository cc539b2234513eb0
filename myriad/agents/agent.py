"""The protocols of agents: a pure function chooses actions, and a learner has a pure update too.

In docstrings `N` is the number of environments, `O` the shape of an observation and `A` the shape
of an action.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

import jax

from myriad.agents.shards import Shards
from myriad.envs.vector import BatchState, Transition
from myriad.errors import InvalidArgumentError

State = TypeVar("State")

# Steps of all environments together, for agents without a default of their own.
DEFAULT_TOTAL_STEPS = 500_000
# The mesh axis over which a learner may sum if it shares its gradient steps among devices.
LEARNER_AXIS = "learner"


class Agent(Protocol):
    """A fixed policy. If `uses_observation` is False, a rollout carries no observation."""

    uses_observation: bool

    def act(self, key: jax.Array, obs: jax.Array | None) -> jax.Array:
        """Choose an action of ONE environment; `obs` is None unless `uses_observation`."""
        ...


class EnvStep(Protocol):
    """Advances all environments by one step, with auto-reset. Use each key for one step only."""

    def __call__(
        self, key: jax.Array, batch_state: BatchState, action: jax.Array
    ) -> tuple[BatchState, Transition]:
        """Apply `action`, `[N, *A]`. Choose the next action from `obs` of the returned state."""
        ...


@runtime_checkable
class Learner(Protocol[State]):
    """An agent that learns: a frozen dataclass whose fields are its hyperparameters.

    Derive your learner from it. The members after `act` have defaults that suit most learners.

    Attributes:
        default_num_envs: environments that it learns from if you don't say how many.
        structural: names of numeric fields that switch a part of the program on or off, so that
            they can't differ by slot in a `Population`. Integers never can, except `num_epochs`.
        by_shard: names of the parts of its state that begin with an axis of shards if there are
            several. A learner that names none can't be cut into shards.
        shards: how the training is cut. A learner that can be cut has a field of this name, which
            the trainer sets.
    """

    default_num_envs: ClassVar[int]
    structural: ClassVar[frozenset[str]] = frozenset()
    by_shard: ClassVar[frozenset[str]] = frozenset()
    shards: Shards = Shards()

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of the metrics that `update` reports."""
        ...

    @property
    def steps_per_update(self) -> int:
        """Steps that `update` takes in every environment."""
        ...

    def init(self, key: jax.Array, num_envs: int) -> State:
        """Draw the first parameters. The result holds every array that learning changes."""
        ...

    def update(
        self, key: jax.Array, state: State, batch_state: BatchState, step: EnvStep
    ) -> tuple[State, BatchState, dict[str, jax.Array]]:
        """Collect `steps_per_update` steps of all environments and learn from them.

        Returns:
            the next state, the next state of the environments, and a float32 scalar for each of
            `metric_names`. The trainer reports their means.
        """
        state, batch_state, experience = self.collect(key, state, batch_state, step)
        state, metrics = self.learn(key, state, batch_state, experience)
        return state, batch_state, metrics

    def collect(
        self, key: jax.Array, state: State, batch_state: BatchState, step: EnvStep
    ) -> tuple[State, BatchState, Any]:
        """Take the steps of an update, and return the experience to learn from as well.

        A learner that has this and `learn` needs no `update`. Their shares of the time can then be
        measured.

        Raises:
            InvalidArgumentError: the learner has only `update`.
        """
        raise self._undivided()

    def learn(
        self, key: jax.Array, state: State, batch_state: BatchState, experience: Any
    ) -> tuple[State, dict[str, jax.Array]]:
        """Learn from the experience of `collect`, and return the metrics of `update`."""
        raise self._undivided()

    def act(self, state: State, key: jax.Array, obs: jax.Array, *, greedy: bool) -> jax.Array:
        """Choose actions `[N, *A]` for observations `[N, *O]`. `greedy` leaves exploration out."""
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
        """A number of which every multiple is a number of environments that it can learn from."""
        return 1

    @classmethod
    def defaults_for(
        cls, num_envs: int, total_steps: int | None, chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return defaults that are different in such a training.

        Args:
            num_envs: environments that it learns from.
            total_steps: steps of all environments together; None if unknown.
            chosen: the fields that are set already.
        """
        return {}

    def default_total_steps(self, num_envs: int) -> int:
        """Return the default number of steps of all environments together in a training."""
        return DEFAULT_TOTAL_STEPS

    def require_num_envs(self, num_envs: int) -> None:
        """Raise InvalidArgumentError if it can't learn from so many environments."""

    def scheduled(self, num_updates: int) -> Self:
        """Return the learner for a training of `num_updates` updates.

        A schedule over the whole training gets its length here, unless you chose a length.
        """
        return self

    def first_learning_update(self, num_envs: int) -> int:
        """Return the first update that changes the parameters, counted from 1."""
        return 1

    def shared_among(self, num_envs: int, num_devices: int) -> int:
        """Return among how many of the devices it is worth sharing a gradient step.

        A learner that returns more than 1 has a field `num_devices`, which the trainer sets.
        """
        return 1
