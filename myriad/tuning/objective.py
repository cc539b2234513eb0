"""What a trial is worth: its trainings in compiled programs, scored by greedy episodes.

Trainings of one shape run side by side in the slots of one `Population`, and a slot that becomes
free is filled again. Steps count all environments of a training together. `S` is the number of
training seeds, and `E` the number of episodes for each.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.errors import MyriadError
from myriad.training.evaluation import key_alone
from myriad.training.loop import PARTS
from myriad.training.population import Population
from myriad.tuning.settings import TuneSettings
from myriad.tuning.space import SearchSpace

# The least number of episodes in an evaluation, over all training seeds of a trial.
NUM_EPISODES = 128
CONFIDENCE = 0.95
# Trainings in the slots of one program, for each device. On a CPU, slots run one after another.
# With two, one can be refilled while the other continues. More would only end later.
_ON_CPU, _ELSEWHERE = 2, 16
# The length of a call. Longer calls would keep an interrupt waiting.
_CALL_S = 0.5

Shape = tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Score:
    """The mean return of greedy episodes.

    Attributes:
        value: the mean over all episodes.
        standard_error: the standard error of the mean. With several training seeds it is computed
            from their means, since episodes of one policy are similar. With one seed it covers only
            its episodes.
        by_seed: the mean of each training seed.
        num_episodes: number of episodes of all seeds together.
    """

    value: float
    standard_error: float
    by_seed: tuple[float, ...]
    num_episodes: int

    @classmethod
    def of(cls, returns: np.ndarray) -> "Score":
        """Score the return of every episode, `[S, E]`.

        Example:
            >>> Score.of(np.array([[1.0, 3.0], [3.0, 5.0]])).standard_error
            1.0
        """
        returns = np.asarray(returns, np.float64)
        means = returns.mean(axis=1)
        sample = means if len(means) > 1 else returns[0]
        error = sample.std(ddof=1) / math.sqrt(len(sample)) if len(sample) > 1 else math.nan
        return cls(float(means.mean()), float(error), tuple(map(float, means)), returns.size)

    def interval(self) -> tuple[float, float]:
        """Return the 95% interval of the mean by Student's t."""
        from scipy.stats import t

        freedom = (len(self.by_seed) if len(self.by_seed) > 1 else self.num_episodes) - 1
        # SciPy's own interval is NaN if all returns are equal.
        reach = float(t.ppf(0.5 + CONFIDENCE / 2, freedom)) * self.standard_error
        return self.value - reach, self.value + reach


def boundaries(num_steps: int, eval_interval: int, steps_per_update: int) -> dict[int, list[int]]:
    """Return the updates after which a trial is evaluated, with the steps that each reports.

    Evaluation `k` comes after the first update that ends at or past `k * eval_interval` steps and
    is reported as step `k * eval_interval`, so that a pruner can compare trials of all batch sizes.
    The last evaluation follows the whole training, and is reported as `num_steps`. A long update
    may reach several steps at once.

    Example:
        >>> boundaries(num_steps=12_000, eval_interval=5_000, steps_per_update=4_096)
        {2: [5000], 3: [10000, 12000]}
    """
    reported: dict[int, list[int]] = {}
    for steps in dict.fromkeys([*range(eval_interval, num_steps + 1, eval_interval), num_steps]):
        reported.setdefault(-(-steps // steps_per_update), []).append(steps)
    return reported


@dataclasses.dataclass(eq=False)
class Training:
    """A configuration that is trained over its seeds.

    Attributes:
        fields: fields of the configuration, as `SearchSpace.suggest` returns them.
        seeds: the training seeds.
        origin: what it is for, such as Optuna's trial.
        keeps_agents: keep the agents' states at the end.
        num_bytes: the bytes that it needs for all of its seeds, once its programs are compiled.
        update: updates done, in every seed.
        train_s: seconds of training; with those beside it, unless they are an objective.
        steps: the steps that the last evaluation reports.
        returns: the returns of its episodes, `[S, E]`.
        agents: the agents' states at the end, one for each seed, if they are kept.
        failure: why it can't continue.
        is_over: whether it has ended. Set it to end it early.
    """

    fields: Mapping[str, Any]
    seeds: tuple[int, ...]
    origin: Any = None
    keeps_agents: bool = False
    num_bytes: int = 0
    update: int = 0
    train_s: float = 0.0
    steps: Sequence[int] = ()
    returns: Any = None
    agents: Sequence[Any] = ()
    failure: str = ""
    is_over: bool = False

    @property
    def score(self) -> Score:
        """The score of the last evaluation."""
        return Score.of(self.returns)

    def fail(self, reason: str | Exception) -> None:
        """End it for a reason."""
        if isinstance(reason, Exception):
            first = str(reason).strip().partition("\n")[0]
            kind = "" if isinstance(reason, MyriadError) else f"{type(reason).__name__}: "
            reason = f"{kind}{first}"
        self.failure = reason
        self.is_over = True


# Returns the next training of a shape, or of any; None if there is no more.
Take = Callable[[Shape | None], Training | None]


def take_first(waiting: list[Training], space: SearchSpace, shape: Shape | None) -> Training | None:
    """Remove and return the first training of a shape, or of any."""
    for training in waiting:
        if shape in (None, space.shape(training.fields)):
            waiting.remove(training)
            return training
    return None


class Programs:
    """The compiled programs of a study, one set for each shape, and the loop that trains in them.

    Attributes:
        compiled: the slots for trainings of each shape that was compiled.
    """

    def __init__(self, settings: TuneSettings, space: SearchSpace):
        self.settings = settings
        self.space = space
        self.compiled: dict[Shape, _Slots] = {}

    def train(
        self, take: Take, is_interrupted: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[str, Training]]:
        """Train until there are no more trainings, and yield each that something happens to.

        What happens is "compiling", "ready" before it trains, "evaluated", or "failed". A training
        that you end while it is yielded leaves its slots to others. If a program crashes, all
        trainings in it fail.
        """
        while not is_interrupted() and (first := take(None)) is not None:
            shape = self.space.shape(first.fields)
            if shape not in self.compiled:
                yield "compiling", first
                try:
                    self.compiled[shape] = _Slots(self, shape, first.fields)
                except Exception as error:  # noqa: BLE001 (the compiler may raise anything)
                    first.fail(error)
                    yield "failed", first
                    continue
            yield from self.compiled[shape].begin(first)
            yield from self.compiled[shape].train(take, is_interrupted)


class _Slots:
    """The slots of a population for trainings of one shape, each in as many as it has seeds.

    Attributes:
        num_bytes: the bytes that a training needs for all of its seeds.
    """

    def __init__(self, programs: Programs, shape: Shape, fields: Mapping[str, Any]):
        settings, space = programs.settings, programs.space
        self.shape = shape
        self._programs = programs
        self._num_devices = jax.local_device_count()
        each = _ON_CPU if jax.default_backend() == "cpu" else _ELSEWHERE
        self._capacity = each * self._num_devices
        num_slots = -(-self._capacity * settings.num_seeds // self._num_devices)
        traced = [name for name in space.parameters if name not in space.static]
        # A conditional parameter that isn't drawn has its default, whatever others drew.
        alike = {name: value for name, value in fields.items() if name not in traced}
        episodes = -(-NUM_EPISODES // settings.num_seeds)
        config = settings.config(**{**alike, "eval_rollouts": episodes})
        names = [name.removeprefix("agent.") for name in traced]
        self._defaults = {name: getattr(config.learner.agent, name) for name in names}
        self.population = Population(config, num_slots * self._num_devices, names)
        self.population.compile()
        self.num_bytes = self.population.stated_bytes(settings.num_seeds)
        self._boundaries = boundaries(
            settings.num_steps, settings.steps_per_eval, self.population.steps_per_update
        )
        self._is_timed = bool({"train_s", "steps_per_s"} & set(settings.objectives))
        self._state: Any = None
        self._slots: dict[Training, list[int]] = {}
        self._per_call = 1

    def train(
        self, take: Take, is_interrupted: Callable[[], bool]
    ) -> Iterator[tuple[str, Training]]:
        """Train until no training is left. Others of this shape fill the slots that become free."""
        while self._slots and not is_interrupted():
            while len(self._slots) < self._capacity and (more := take(self.shape)) is not None:
                yield from self.begin(more)
            try:
                due = self._advance()
            except Exception as error:  # noqa: BLE001 (your own environment may raise anything)
                due = list(self._slots)
                for training in due:
                    training.fail(error)
            for training in due:
                yield ("failed" if training.failure else "evaluated"), training
                if training.is_over:
                    self._slots.pop(training, None)
        # Otherwise its state would stay on the device with the next shape's.
        self._slots.clear()
        self._state = None

    def begin(self, training: Training) -> Iterator[tuple[str, Training]]:
        """Begin a training, unless you end it when it is yielded, or it can't begin.

        Its slots are spread over the devices.
        """
        training.num_bytes = self.num_bytes
        yield "ready", training
        if training.is_over:
            return
        num_slots = self.population.num_slots
        taken = {slot for slots in self._slots.values() for slot in slots}
        # The first slot of each device comes first.
        by_device = np.arange(num_slots).reshape(self._num_devices, -1).T.ravel().tolist()
        slots = [slot for slot in by_device if slot not in taken][: len(training.seeds)]
        values = {
            name: np.full(len(slots), training.fields.get(f"agent.{name}", default))
            for name, default in self._defaults.items()
        }
        try:
            if self._state is None:
                everywhere = {name: [array[0]] * num_slots for name, array in values.items()}
                self._state = self.population.first_state([0] * num_slots, everywhere)
            self._state = self.population.refill(self._state, slots, training.seeds, values)
        except Exception as error:  # noqa: BLE001 (your own environment may raise anything)
            training.fail(error)
            yield "failed", training
            return
        self._slots[training] = slots

    def _advance(self) -> list[Training]:
        """Train for about half a second, and evaluate trainings that reached a boundary.

        Returns:
            those that were evaluated or failed.
        """
        start = time.perf_counter()
        for group in [[each] for each in self._slots] if self._is_timed else [list(self._slots)]:
            began = time.perf_counter()
            self._run(group)
            for training in group:
                training.train_s += time.perf_counter() - began
        seconds = max(time.perf_counter() - start, 1e-6)
        self._per_call = max(1, min(2 * self._per_call, round(self._per_call * _CALL_S / seconds)))
        due = [
            training
            for training in self._slots
            if not training.failure and training.update in self._boundaries
        ]
        if due:
            self._evaluate(due)
        return [training for training in self._slots if training.failure or training in due]

    def _run(self, trainings: Sequence[Training]) -> None:
        trips = np.zeros(self.population.num_slots, np.int32)
        begin = np.zeros(self.population.num_slots, bool)
        for training in trainings:
            slots = self._slots[training]
            ahead = next(update for update in self._boundaries if update > training.update)
            trips[slots] = min(self._per_call, ahead - training.update)
            begin[slots] = True
        self._state, report = self.population.run(self._state, trips, begin)
        is_bad = np.asarray(report.is_bad)
        for training in trainings:
            slots = self._slots[training]
            training.update += int(trips[slots[0]])
            bad = [part for i, part in enumerate(PARTS) if is_bad[slots, i].any()]
            if bad:
                training.fail(f"{', '.join(bad)} by step {self._steps(training):,}")

    def _evaluate(self, trainings: Sequence[Training]) -> None:
        # A seed's episodes are the same in every trial, and no training has them. Fresh seeds have
        # fresh episodes, so a winner isn't judged by those that selected it.
        first_seed = self._programs.settings.seed
        key = key_alone(first_seed)
        active = np.zeros(self.population.num_slots, bool)
        keys = [key] * self.population.num_slots
        for training in trainings:
            for slot, seed in zip(self._slots[training], training.seeds, strict=True):
                active[slot] = True
                keys[slot] = jax.random.fold_in(key, seed - first_seed)
        returns, _ = self.population.evaluate(self._state, active, jnp.stack(keys))
        for training in trainings:
            slots = self._slots[training]
            if not np.isfinite(returns[slots]).all():
                steps = self._steps(training)
                training.fail(f"NaN or infinity in an evaluation at step {steps:,}")
                continue
            training.returns = returns[slots]
            training.steps = self._boundaries[training.update]
            training.is_over = training.update == max(self._boundaries)
            if training.is_over and training.keeps_agents:
                members = [self.population.member(self._state, slot) for slot in slots]
                training.agents = [each.agent for each in members]

    def _steps(self, training: Training) -> int:
        return training.update * self.population.steps_per_update
