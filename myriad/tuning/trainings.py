"""Trainings of a study in the slots of compiled programs, which are filled again and again.

`train_all` takes trainings from a source and reports every evaluation to it. Trainings with equal
shapes run in one program, each with a slot per training seed.
"""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from myriad.errors import MyriadError
from myriad.training.config import TrainingConfig
from myriad.training.evaluation import key_alone
from myriad.training.loop import PARTS
from myriad.training.population import Population
from myriad.tuning.objective import Boundary, Score, boundaries, episodes_per_seed
from myriad.tuning.settings import TuneSettings
from myriad.tuning.space import SearchSpace

# Trainings in the slots of one program, for each device. On a CPU, slots run one after another.
# With two, one can be refilled while the other continues. More would only end later.
_ON_CPU, _ELSEWHERE = 2, 16
# The length of a call. Longer calls would keep an interrupt waiting.
_CALL_S = 0.5

Shape = tuple[tuple[str, str], ...]


@dataclasses.dataclass(eq=False)
class Training:
    """A configuration that is trained over its seeds.

    Attributes:
        fields: fields of the configuration, as `SearchSpace.suggest` returns them.
        seeds: the training seeds.
        origin: the source's own identifier.
        keep_states: keep the agents' states at the end.
        score: the score of the last evaluation.
        returns: the returns of its episodes, `[S, E]`.
        ended: whether each episode ended, `[S, E]`.
        update: updates done, in every seed.
        train_s: seconds of training, if they are measured.
        states: the agents' states at the end, one for each seed.
    """

    fields: Mapping[str, Any]
    seeds: tuple[int, ...]
    origin: Any = None
    keep_states: bool = False
    score: Score | None = None
    returns: Any = None
    ended: Any = None
    update: int = 0
    train_s: float = 0.0
    states: list[Any] = dataclasses.field(default_factory=list)


class Source(Protocol):
    """Provides trainings, and is told their results."""

    def take(self, shape: Shape | None) -> Training | None:
        """Return a training of this shape, or of any if None. Return None if there is no more."""
        ...

    def admits(self, training: Training, num_bytes: int) -> bool:
        """Get the bytes that a training needs, and return whether to train it."""
        ...

    def compiling(self, training: Training) -> None:
        """Called before the programs of a training's shape are compiled."""

    def compiled(self, training: Training, seconds: float) -> None:
        """Called after they were compiled."""

    def evaluated(self, training: Training, boundary: Boundary, *, is_last: bool) -> bool:
        """Called after an evaluation. Returns whether the training continues."""
        ...

    def failed(self, training: Training, reason: str) -> None:
        """Called if a training can't continue."""

    def put_back(self, training: Training) -> None:
        """Called if a training has to start again, to take it back."""


class _CrashError(Exception):
    """A compiled program, or the environment in it, raised `cause`."""

    def __init__(self, cause: Exception):
        super().__init__(str(cause))
        self.cause = cause


@contextlib.contextmanager
def _crashes_marked() -> Iterator[None]:
    """Mark errors of a program. Those of a source are not a training's fault."""
    try:
        yield
    except Exception as error:  # (your own environment may raise anything)
        raise _CrashError(error) from error


class Programs:
    """The compiled programs of a study, one set for each shape.

    Args:
        settings: the campaign.
        space: its search space.
        num_seeds: training seeds of each training.
    """

    def __init__(self, settings: TuneSettings, space: SearchSpace, num_seeds: int):
        self.settings = settings
        self.space = space
        self.num_seeds = num_seeds
        self.is_timed = bool({"train_s", "steps_per_s"} & set(settings.objectives))
        self._groups: dict[Shape, Group] = {}

    def shape(self, fields: Mapping[str, Any]) -> Shape:
        """Return a key of the program in which fields train."""
        return self.space.shape(fields)

    def has(self, shape: Shape) -> bool:
        """Return whether a shape's programs are compiled."""
        return shape in self._groups

    def config(self, fields: Mapping[str, Any]) -> TrainingConfig:
        """Return a training, evaluated in as many episodes as each seed needs."""
        episodes = episodes_per_seed(self.num_seeds)
        return self.settings.config(**{**fields, "eval_rollouts": episodes})

    def group(self, training: Training) -> "Group":
        """Return the slots for a training, and compile their programs if they are new.

        Raises:
            MyriadError: the configuration can't be used, or needs too much memory.
        """
        shape = self.shape(training.fields)
        if shape not in self._groups:
            self._groups[shape] = Group(self, shape, training.fields)
        return self._groups[shape]


class Group:
    """Trainings of one shape in the slots of a population.

    Args:
        programs: the programs of the study.
        shape: the shape.
        fields: the fields of one of its trainings.

    Attributes:
        capacity: number of trainings at a time.
        most: number of trainings for which there are slots.
        shape: the shape.
        population: their slots.
        bytes_per_training: the bytes that a training needs for all of its seeds.
    """

    def __init__(self, programs: Programs, shape: Shape, fields: Mapping[str, Any]):
        num_devices = jax.local_device_count()
        per_device = _ON_CPU if jax.default_backend() == "cpu" else _ELSEWHERE
        self.capacity = self.most = per_device * num_devices
        num_slots = -(-self.capacity * programs.num_seeds // num_devices) * num_devices
        space = programs.space
        self._programs = programs
        self.shape = shape
        traced = [each.name for each in space.parameters if each.name not in space.static]
        # A conditional parameter that isn't drawn has its default, whatever others drew.
        config = programs.config(
            {name: value for name, value in fields.items() if name not in traced}
        )
        agent = config.learner.agent
        self._defaults = {name: getattr(agent, name.removeprefix("agent.")) for name in traced}
        names = [name.removeprefix("agent.") for name in traced]
        self.population = Population(config, num_slots, names)
        self.population.compile()
        self.bytes_per_training = self.population.needs().bytes(programs.num_seeds, 1)
        self._boundaries = boundaries(
            programs.settings.num_steps,
            programs.settings.eval_interval,
            self.population.steps_per_update,
        )
        self._state: Any = None
        self._slots: dict[Training, list[int]] = {}
        self._per_call = 1

    @property
    def trainings(self) -> list[Training]:
        """The trainings in the slots."""
        return list(self._slots)

    @property
    def has_room(self) -> bool:
        """Whether another training fits in."""
        return len(self._slots) < self.capacity

    def add(self, training: Training) -> None:
        """Begin a training in free slots, spread over the devices.

        Raises:
            MyriadError: one of its values can't be used.
        """
        taken = {slot for slots in self._slots.values() for slot in slots}
        free = [slot for slot in self._by_device() if slot not in taken]
        slots = free[: len(training.seeds)]
        values = {
            name.removeprefix("agent."): np.full(len(slots), training.fields.get(name, default))
            for name, default in self._defaults.items()
        }
        if self._state is None:
            num_slots = self.population.num_slots
            everywhere = {name: [array[0]] * num_slots for name, array in values.items()}
            self._state = self.population.first_state([0] * num_slots, everywhere)
        self._state = self.population.refill(self._state, slots, training.seeds, values)
        training.update = 0
        training.train_s = 0.0
        self._slots[training] = slots

    def _by_device(self) -> list[int]:
        """Return all slots, each device's first one first."""
        num_devices = jax.local_device_count()
        slots = np.arange(self.population.num_slots).reshape(num_devices, -1)
        return slots.T.ravel().tolist()

    def advance(self, source: Source) -> None:
        """Train for about half a second, and evaluate trainings that reached a boundary."""
        start = time.perf_counter()
        if self._programs.is_timed:
            for training in self.trainings:
                began = time.perf_counter()
                self._run([training], source)
                training.train_s += time.perf_counter() - began
        else:
            self._run(self.trainings, source)
        seconds = max(time.perf_counter() - start, 1e-6)
        self._per_call = max(1, min(2 * self._per_call, round(self._per_call * _CALL_S / seconds)))
        due = [each for each in self.trainings if each.update == self._boundary(each).update]
        if due:
            self._evaluate(due, source)

    def _boundary(self, training: Training) -> Boundary:
        return next(each for each in self._boundaries if each.update >= training.update)

    def _run(self, trainings: Sequence[Training], source: Source) -> None:
        trips = np.zeros(self.population.num_slots, np.int32)
        begin = np.zeros(self.population.num_slots, bool)
        for training in trainings:
            slots = self._slots[training]
            ahead = next(e.update for e in self._boundaries if e.update > training.update)
            trips[slots] = min(self._per_call, ahead - training.update)
            begin[slots] = True
        with _crashes_marked():
            self._state, report = self.population.run(self._state, trips, begin)
            is_bad = np.asarray(jax.device_get(report.is_bad))
        for training in trainings:
            slots = self._slots[training]
            training.update += int(trips[slots[0]])
            if is_bad[slots].any():
                bad = [part for i, part in enumerate(PARTS) if is_bad[slots, i].any()]
                del self._slots[training]
                steps = training.update * self.population.steps_per_update
                source.failed(training, f"{', '.join(bad)} by step {steps:,}")

    def _evaluate(self, trainings: Sequence[Training], source: Source) -> None:
        first_seed = self._programs.settings.seed
        active = np.zeros(self.population.num_slots, bool)
        keys = [_evaluation_key(first_seed, first_seed)] * self.population.num_slots
        for training in trainings:
            for slot, seed in zip(self._slots[training], training.seeds, strict=True):
                active[slot] = True
                keys[slot] = _evaluation_key(first_seed, seed)
        with _crashes_marked():
            returns, ended = self.population.evaluate(self._state, active, jnp.stack(keys))
        for training in trainings:
            slots = self._slots[training]
            boundary = self._boundary(training)
            if not np.isfinite(returns[slots]).all():
                del self._slots[training]
                steps = training.update * self.population.steps_per_update
                source.failed(training, f"NaN or infinity in an evaluation at step {steps:,}")
                continue
            training.returns = returns[slots]
            training.ended = ended[slots]
            training.score = Score.of(training.returns, training.ended)
            is_last = boundary is self._boundaries[-1]
            if is_last and training.keep_states:
                training.states = [
                    self.population.member(self._state, slot).agent for slot in slots
                ]
            if not source.evaluated(training, boundary, is_last=is_last) or is_last:
                del self._slots[training]

    def empty(self) -> list[Training]:
        """Take all trainings out of the slots, and return them."""
        left = self.trainings
        self._slots.clear()
        self._state = None
        return left


def train_all(
    programs: Programs, source: Source, is_interrupted: Callable[[], bool] = lambda: False
) -> list[Training]:
    """Train the trainings of a source until it has no more.

    If a program crashes with several trainings in it, they start again one at a time, so that only
    the one at fault is lost. Errors of the source are raised here.

    Returns:
        the trainings that an interrupt left unfinished.
    """
    group: Group | None = None
    while not is_interrupted():
        if group is None or not group.trainings:
            if group is not None:
                group.empty()  # Otherwise its state would stay on the device with the next one's.
            group = _next_group(programs, source)
            if group is None:
                return []
        while group.has_room and (more := source.take(group.shape)) is not None:
            _add(group, more, source)
        try:
            group.advance(source)
        except _CrashError as crash:
            _start_again(group, source, _reason(crash.cause))
    return group.empty() if group is not None else []


def _next_group(programs: Programs, source: Source) -> Group | None:
    while (training := source.take(None)) is not None:
        is_new = not programs.has(programs.shape(training.fields))
        if is_new:
            source.compiling(training)
        try:
            group = programs.group(training)
        except Exception as error:  # noqa: BLE001 (the compiler may raise anything)
            source.failed(training, _reason(error))
            continue
        if is_new:
            source.compiled(training, group.population.compile_s)
        if _add(group, training, source):
            return group
    return None


def _add(group: Group, training: Training, source: Source) -> bool:
    """Begin a training. Return False if its source declines or a value can't be used."""
    if not source.admits(training, group.bytes_per_training):
        return False
    try:
        group.add(training)
    except Exception as error:  # noqa: BLE001 (your own environment may raise anything)
        source.failed(training, _reason(error))
        return False
    return True


def _start_again(group: Group, source: Source, reason: str) -> None:
    """Find the training that crashed a program: a single one is at fault, several start again."""
    left = group.empty()
    if len(left) == 1:
        source.failed(left[0], reason)
        group.capacity = group.most
        return
    group.capacity = 1
    for training in left:
        source.put_back(training)


def _reason(error: Exception) -> str:
    first = str(error).strip().partition("\n")[0]
    return first if isinstance(error, MyriadError) else f"{type(error).__name__}: {first}"


@functools.cache
def _evaluation_key(first_seed: int, seed: int) -> jax.Array:
    """Return the key of a seed's evaluation episodes: the same in every trial, used by no training.

    Fresh seeds have fresh episodes, so a winner isn't judged by the episodes that selected it.
    """
    return jax.random.fold_in(key_alone(first_seed), seed - first_seed)
