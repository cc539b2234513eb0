"""What an agent is: a pure function that chooses actions, or a learner with a pure update too.

In docstrings `N` is the number of environments, `O` the shape of an observation and `A` the shape
of an action.

A float hyperparameter may be a schedule over the training, which you write as "linear(0.2, 0)".
`make_learner` checks schedules and builds the learner of numbers. The training's program has a row
of numbers for each hyperparameter, and `myriad.training.loop` looks its value up in every update.
"""

import contextlib
import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Generic, Protocol, Self, TypeVar

import jax
import numpy as np

from myriad.envs.environment import Environment
from myriad.envs.vector import BatchState, Transition
from myriad.errors import InvalidArgumentError
from myriad.ranges import INT64, Integer, Number, ranges_of, require_ranges

State = TypeVar("State")
# Averages every leaf of a tree over the devices that train together.
Mean = Callable[[Any], Any]

# Types of hyperparameters with their ranges, which a learner's `create` checks.
Fraction = Annotated[float, Number(0, 1)]
Positive = Annotated[float, Number(positive=True)]
PositiveOrOff = Annotated[float | None, Number(positive=True, words=(None,))]
Limit = Annotated[float, Number(positive=True, infinity=True)]
Weight = Annotated[float, Number(0)]
Count = Annotated[int, Integer(1)]
ManySteps = Annotated[int, Integer(1, INT64)]
# How often an update repeats something. It is bounded, since an update can't be interrupted.
Repetitions = Annotated[int, Integer(1, 100_000)]
# The initial weights of a layer are orthogonal, and drawing wider ones takes minutes.
_WIDTHS = Integer(1, 16_384, items=(0, 64))
Widths = Annotated[tuple[int, ...], _WIDTHS]
WidthsOrSame = Annotated[tuple[int, ...] | None, _WIDTHS]

# Steps of all environments together, for agents without a default of their own.
DEFAULT_TOTAL_STEPS = 500_000

# The values in a row. 32 is a power of two, so no share of the training is rounded on its way to an
# index.
_NUM_POINTS = 33
# The shape of a row: 33 values at equal distances over the training, and the number of its updates.
# A number in all places is a constant.
ROW = (_NUM_POINTS + 1,)
_FORM = re.compile(r"\s*(linear|cosine|points)\s*\((.*)\)\s*")


def alone(tree: Any) -> Any:
    """Return the tree: the mean over a single device."""
    return tree


class Agent(Protocol):
    """A fixed policy. If `uses_observation` is False, a rollout carries no observation."""

    uses_observation: bool

    def act(self, key: jax.Array, obs: jax.Array | None) -> jax.Array:
        """Choose an action of ONE environment; `obs` is None unless `uses_observation`."""
        ...


class Environments(Protocol):
    """The `N` environments of one device, as the loop hands them to a learner."""

    def keys(self, key: jax.Array) -> jax.Array:
        """Return a key for each environment, `[N]`. They don't depend on the number of devices."""
        ...

    def step(
        self, key: jax.Array, batch_state: BatchState, action: jax.Array
    ) -> tuple[BatchState, Transition]:
        """Advance all environments by one step, with auto-reset. Use each key for one step only.

        `action` is `[N, *A]`. Choose the next one from `obs` of the returned state.
        """
        ...

    def own_key(self, key: jax.Array) -> jax.Array:
        """Return a key that differs by device, for shuffles and replay."""
        ...

    def mean(self, tree: Any) -> Any:
        """Average every leaf over the devices that train together."""
        ...


class Learner(Generic[State]):
    """An agent that learns: a frozen dataclass whose fields are its hyperparameters.

    Derive your learner from it. A learner knows nothing of devices: it sees the environments of
    one, and averages moments and gradients with the `mean` that it is given. `update`, or `collect`
    and `learn`, `init` and `act` are yours. The other members have defaults that suit most
    learners.

    Attributes:
        default_num_envs: environments that it learns from if you don't say how many.
        structural: names of numeric fields that switch a part of the program on or off, so that
            they can't differ by slot in a `Population`. Integers never can, except `num_epochs`.
        per_device: names of the fields of its state that differ by device, such as a replay buffer.
            All else must be the same on every device. With None it trains on one device only.

    Example:
        >>> from myriad import make_agent, make_env
        >>> learner = make_agent("pqn", make_env("cartpole-control"), rollout_steps=8)
        >>> isinstance(learner, Learner), learner.steps_per_update
        (True, 8)
    """

    default_num_envs: ClassVar[int]
    structural: ClassVar[frozenset[str]] = frozenset()
    per_device: ClassVar[frozenset[str] | None] = None

    @classmethod
    def create(cls, env: Environment, **overrides: Any) -> Self:
        """Build the learner for `env`. Raises InvalidArgumentError if a value can't be used."""
        learner = cls(env, **overrides)  # pyright: ignore[reportCallIssue]
        require_ranges(learner)
        return learner

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of the metrics that `update` reports."""
        raise NotImplementedError

    @property
    def steps_per_update(self) -> int:
        """Steps that `update` takes in every environment."""
        raise NotImplementedError

    def init(self, key: jax.Array, num_envs: int) -> State:
        """Draw the first parameters. The result holds every array that learning changes."""
        raise NotImplementedError

    def update(
        self, key: jax.Array, state: State, batch_state: BatchState, envs: Environments
    ) -> tuple[State, BatchState, dict[str, jax.Array]]:
        """Collect `steps_per_update` steps of all environments and learn from them.

        Returns:
            the next state, the next state of the environments, and a float32 scalar for each of
            `metric_names`. The trainer reports their means.
        """
        state, batch_state, experience = self.collect(key, state, batch_state, envs)
        own_key = envs.own_key(key)
        state, metrics = self.learn(own_key, state, batch_state, experience, envs.mean)
        return state, batch_state, metrics

    def collect(
        self, key: jax.Array, state: State, batch_state: BatchState, envs: Environments
    ) -> tuple[State, BatchState, Any]:
        """Take the steps of an update, and return the experience to learn from as well.

        A learner that has this and `learn` needs no `update`. Their shares of the time can then be
        measured.

        Raises:
            InvalidArgumentError: the learner has only `update`.
        """
        raise self._undivided()

    def learn(
        self, key: jax.Array, state: State, batch_state: BatchState, experience: Any, mean: Mean
    ) -> tuple[State, dict[str, jax.Array]]:
        """Learn from the experience of `collect`, and return the metrics of `update`."""
        raise self._undivided()

    def act(self, state: State, key: jax.Array, obs: jax.Array, *, greedy: bool) -> jax.Array:
        """Choose actions `[N, *A]` for observations `[N, *O]`. `greedy` leaves exploration out."""
        raise NotImplementedError

    def first_memory(self, num_envs: int) -> Any:
        """Return what each environment's policy remembers when an episode begins, `[N, ...]`.

        A policy has no memory by default. If yours has one, `control` is yours as well.
        """
        return ()

    def control(
        self, state: State, memory: Any, key: jax.Array, obs: jax.Array, *, greedy: bool
    ) -> tuple[jax.Array, Any]:
        """Choose actions as `act` does, and return them with the next memory."""
        return self.act(state, key, obs, greedy=greedy), memory

    def _undivided(self) -> InvalidArgumentError:
        return InvalidArgumentError(f"{type(self).__name__} has no collect and learn to divide.")

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

    @classmethod
    def default_total_steps(cls, num_envs: int) -> int:
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

    def default_num_devices(self, num_envs: int, available: int) -> int:
        """Return how many of the devices are worth training on together."""
        return 1

    def on_each_of(self, num_devices: int) -> Self:
        """Return the learner of one of so many devices, each of which has a share of the rows.

        Raises:
            InvalidArgumentError: a hyperparameter can't be shared among so many.
        """
        return self


def is_schedule(value: Any) -> bool:
    """Return whether an option of an agent is written as schedules are."""
    return isinstance(value, str) and _FORM.fullmatch(value) is not None


def without_schedules(kind: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a class of agents with a number in place of each schedule: its maximum.

    A schedule may touch 0 where a range begins above it, as a learning rate does at its end. One of
    the learning rate takes the place of `anneal_updates`.

    Raises:
        InvalidArgumentError: a schedule can't be read, leaves the range of its field, or is of a
            field that can't change in a training, or `anneal_updates` is given beside it.
    """
    found, floats, names = dict(options), {}, {each.name for each in dataclasses.fields(kind)}
    if isinstance(kind, type) and issubclass(kind, Learner):
        ranges = ranges_of(kind).items()
        floats = {k: v for k, v in ranges if not v.whole and k not in kind.structural}
    for name, value in options.items():
        if name in floats and isinstance(value, str) and "(" in value:
            for point in _points(name, value)[1]:
                if point or not floats[name].positive:
                    floats[name].require(name, point)
            found[name] = float(row_of(value)[:-1].max())
        elif is_schedule(value) and name in names:
            rule = f"must be constant over a training of {kind.__name__}"
            raise InvalidArgumentError(name, rule, value)
    if is_schedule(options.get("learning_rate")) and hasattr(kind, "anneal_updates"):
        length = found.setdefault("anneal_updates", None)
        if length is not None:
            rule = "must be None if learning_rate has a schedule"
            raise InvalidArgumentError("anneal_updates", rule, length)
    return found


def row_of(value: Any, num_updates: int = 1) -> np.ndarray:
    """Return the row of a number, or of a schedule over so many updates, float32 `[34]`."""
    if not isinstance(value, str):
        return np.full(ROW, value, np.float32)
    shares, values = _points("schedule", value)
    at = np.linspace(0, 1, _NUM_POINTS)
    if "cosine" in value:
        at = (1 - np.cos(np.pi * at)) / 2
    return np.array([*np.interp(at, shares, values), num_updates], np.float32)


def _points(name: str, text: str) -> tuple[list[float], list[float]]:
    """Return the shares of the training at which a schedule is given, and its values there."""
    with contextlib.suppress(ValueError):
        ((form, inside),) = _FORM.findall(text)
        if form == "points":
            pairs = [map(float, point.split(":")) for point in inside.split(",")]
            shares, values = map(list, zip(*pairs, strict=True))
        else:
            shares, values = [0.0, 1.0], [*map(float, inside.split(","))]
        increase = all(a < b for a, b in itertools.pairwise(shares))
        fits = len(shares) == len(values) and increase and 0 <= shares[0] <= shares[-1] <= 1
        if fits and is_schedule(text) and all(map(math.isfinite, values)):
            return shares, values
    rule = "must be a number, linear(a, b), cosine(a, b) or points(0: a, 1: b) of increasing shares"
    raise InvalidArgumentError(name, rule, text)
