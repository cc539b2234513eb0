"""Many trainings of one shape in one compiled program: seeds side by side, or a study's trials.

`Population` holds the programs. A host loop over seeds and one over trials call it.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from myriad.errors import InvalidArgumentError, shown
from myriad.random import make_key, seed_key, words_of_seed
from myriad.ranges import INT32, Integer
from myriad.training.config import TrainingConfig, default_mapping
from myriad.training.loop import Report, TrainState
from myriad.training.population.slot_programs import (
    Mapped,
    Options,
    SlotPrograms,
    as_array,
)
from myriad.xla import holds_keys, numbers_of

# One state for each device.
PopulationState = tuple[TrainState, ...]


def saved_shapes(one: TrainState, num_trainings: int) -> TrainState:
    """Return the shapes of a checkpoint of `M` trainings, from those of one training."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((num_trainings, *leaf.shape), leaf.dtype), one
    )


class Population:
    """Trainings of one shape side by side, each in a slot of one compiled program.

    The loss and the gradient of a given batch agree with those of the same training alone within
    1e-5. Slots are spread over the devices, which run the same program at the same time. By default
    the slots of one
    device run one after another on a CPU, whose caches hold one training better than all of them,
    and side by side on other devices.

    Args:
        config: the trainings. Its seed is not read.
        num_slots: trainings side by side.
        traced: hyperparameters of the agent that differ by slot: floats, such as `learning_rate`,
            and `num_epochs`. Others compile as constants.
        mapping: "map" or "vmap"; by default what suits the device.
        num_devices: devices to spread the slots over; by default all of this process.

    Attributes:
        config: the trainings.
        num_slots: trainings side by side, `M`.
        num_devices: devices that the slots are spread over.
        num_updates: updates in one whole training.
        steps_per_update: steps of all environments of one training in one update.
        eval_every: updates between two evaluations.
        programs: what each device runs.

    Raises:
        InvalidArgumentError: a number can't be used, or a hyperparameter can't differ by slot.
        UnknownNameError: the agent has no such hyperparameter.

    Example:
        >>> from myriad import create_config
        >>> config = create_config("cartpole-control", "ppo", 16, 1024, **{"agent.num_epochs": 1})
        >>> population = Population(config, 2, traced=["learning_rate"])
        >>> population.compile()
        >>> state = population.first_state([0, 1], {"learning_rate": [1e-3, 3e-4]})
        >>> state, report = population.run(state, [1, 2], [True, True])
        >>> population.updates_done(state).tolist()
        [1, 2]
    """

    def __init__(
        self,
        config: TrainingConfig,
        num_slots: int,
        traced: Sequence[str] = (),
        *,
        mapping: Mapped | None = None,
        num_devices: int | None = None,
    ):
        Integer(1).require("num_slots", num_slots)
        if num_devices is not None:
            Integer(1, jax.local_device_count()).require("num_devices", num_devices)
        if mapping not in (None, "map", "vmap"):
            raise InvalidArgumentError("mapping", f"must be map or vmap, but got {shown(mapping)}.")
        shared = config.given.get("num_devices", 1)
        if shared > 1:
            raise InvalidArgumentError(
                "num_devices",
                f"must be 1 where trainings run side by side, each on one device, but is {shared}.",
            )
        self.config = config
        self.num_slots = num_slots
        self.num_updates = config.num_updates
        self.steps_per_update = config.num_envs * config.learner.steps_per_update
        self.eval_every = config.updates_per_eval
        self.num_devices = min(num_slots, num_devices or jax.local_device_count())
        # Every device has as many slots. Those beyond num_slots do nothing.
        self._slots_per_device = -(-num_slots // self.num_devices)
        self._padded = self._slots_per_device * self.num_devices
        self.programs = SlotPrograms(
            config, self._slots_per_device, traced, mapping or default_mapping()
        )

    @property
    def mapping(self) -> Mapped:
        """How slots share a device: "map" or "vmap"."""
        return self.programs.mapping

    @property
    def state_shapes(self) -> Any:
        """The shapes of a `TrainState`, once compiled."""
        return self.programs.state_shapes

    def compile(self, at_a_time: Any = len, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Compile all programs side by side. After that nothing compiles while the trainings run.

        Args:
            at_a_time: called with the programs' sizes before the compiler works; returns how many
                it may work on at a time.
            meanwhile: called while the compiler works.
        """
        self.programs.compile(jax.local_devices()[: self.num_devices], at_a_time, meanwhile)

    def first_state(
        self, seeds: Sequence[int] | np.ndarray, options: Options | None = None
    ) -> PopulationState:
        """Return the state before the first update.

        Args:
            seeds: one for each training, `[M]`.
            options: for each name in `traced`, a value for each slot, `[M]`.

        Raises:
            InvalidArgumentError: a seed or a value can't be used.
        """
        given = self.programs.values(options or {}, self.num_slots)
        values = {name: self._pad(value) for name, value in given.items()}
        # Refill all slots of a blank state, so that no second program for a first state compiles.
        is_new = np.ones(self._padded, bool)
        seed_words = self._pad(_words_of_seeds(seeds, self.num_slots))
        blank = self._on_each("blank")
        return tuple(self._on_each("refill", is_new, *seed_words.T, values, state=blank))

    def refill(
        self,
        state: PopulationState,
        slots: Sequence[int] | np.ndarray,
        seeds: Sequence[int] | np.ndarray,
        options: Options | None = None,
    ) -> PopulationState:
        """Begin new trainings in some slots. The others stay as they are.

        Args:
            state: the state of the population. It is donated.
            slots: the slots that begin anew, int `[K]`, each once.
            seeds: one for each new training, `[K]`.
            options: for each name in `traced`, a value for each new training, `[K]`.

        Raises:
            InvalidArgumentError: a seed or a value can't be used.
        """
        slots = as_array("slots", slots)
        is_whole = slots.ndim == 1 and (slots.dtype.kind in "iu" or not slots.size)
        if (
            not is_whole
            or len(set(slots.tolist())) < len(slots)
            or any(not 0 <= slot < self.num_slots for slot in slots)
        ):
            raise InvalidArgumentError(
                "slots",
                f"must be different integers from 0 to {self.num_slots - 1}, "
                f"but got {shown(slots.tolist())}.",
            )
        slots = slots.astype(np.int64)
        is_new = np.zeros(self._padded, bool)
        is_new[slots] = True
        values = {}
        for name, given in self.programs.values(options or {}, len(slots)).items():
            values[name] = np.zeros(self._padded, given.dtype)
            values[name][slots] = given
        seed_words = np.zeros((self._padded, 2), np.uint32)
        seed_words[slots] = _words_of_seeds(seeds, len(slots))
        return tuple(self._on_each("refill", is_new, *seed_words.T, values, state=state))

    def run(
        self, state: PopulationState, num_updates: Any, begin: Any
    ) -> tuple[PopulationState, Report]:
        """Do some updates in every slot, and wait for them.

        Args:
            state: the state of the population. It is donated.
            num_updates: updates of each training, int `[M]`. A slot with 0 stays as it is and costs
                almost nothing with mapping "map".
            begin: whether a new window of sums begins in a slot, boolean `[M]`.

        Returns:
            the next state, and a report in the host's memory with leaves `[M, ...]`.

        Raises:
            InvalidArgumentError: an array has another shape or kind.
        """
        counts = self._pad(self._of_slots("num_updates", num_updates, np.int32))
        begins = self._pad(self._of_slots("begin", begin, np.bool_))
        results = self._on_each("run", counts, begins, state=state)
        return tuple(state for state, _ in results), self._gathered(each for _, each in results)

    def evaluate(
        self, state: PopulationState, active: Any = None, keys: jax.Array | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Run the episodes of an evaluation with the policy of every active slot.

        Args:
            state: the state of the population.
            active: which slots to evaluate, boolean `[M]`; by default all. The others give zeros
                and, with mapping "map", cost nothing.
            keys: one key for all slots, or one for each, `[M]`, from `make_key`. None uses each
                training's own key, as when it is evaluated alone.

        Returns:
            returns, float32 `[M, E]`, and whether an episode ended, boolean `[M, E]`.

        Raises:
            InvalidArgumentError: an array has another shape or kind.
        """
        flags = np.ones(self.num_slots, bool)
        if active is not None:
            flags = self._of_slots("active", active, np.bool_)
        words = np.zeros((self._padded, 2), np.uint32)
        if keys is not None and getattr(keys, "dtype", None) != make_key(0).dtype:
            raise InvalidArgumentError("keys", f"must be as make_key makes, but got {shown(keys)}.")
        if keys is not None and keys.shape not in ((), (self.num_slots,)):
            raise InvalidArgumentError(
                "keys", f"must be one or {self.num_slots}, but have the shape {keys.shape}."
            )
        if keys is not None:
            words[: self.num_slots] = np.asarray(jax.random.key_data(keys))
        own = np.full(self._padded, keys is None)
        agents = [(x.agent, x.key, x.num_updates) for x in state]
        return self._gathered(
            self._on_each("evaluate", self._pad(flags), own, words, state=agents, unpack=True)
        )

    def updates_done(self, state: PopulationState) -> np.ndarray:
        """Return how many updates each training has done, int64 `[M]`."""
        count = self._gathered(each.num_updates for each in state)
        return count.high.astype(np.int64) << 32 | count.low.astype(np.int64)

    def member(self, state: PopulationState, slot: int) -> TrainState:
        """Return the state of one training as NumPy arrays, with its key as its two words."""

        def taken(leaf: jax.Array) -> np.ndarray:
            return np.asarray(jax.device_get(numbers_of(leaf)))[slot % self._slots_per_device]

        return jax.tree.map(taken, state[slot // self._slots_per_device])

    def gathered(self, state: PopulationState) -> TrainState:
        """Fetch all trainings as a checkpoint holds them, the same for any number of devices.

        Returns:
            NumPy arrays with leaves `[M, ...]`. A key is an array of its two words.
        """
        return self._gathered(jax.tree.map(numbers_of, each) for each in state)

    def scattered(self, trainings: TrainState) -> PopulationState:
        """Spread trainings from `gathered` or from a checkpoint over the devices."""

        def share_of(index: int) -> TrainState:
            first = index * self._slots_per_device
            # Unused slots of the last device hold copies of the last training.
            slots = np.minimum(np.arange(first, first + self._slots_per_device), self.num_slots - 1)
            device = jax.local_devices()[index]
            return jax.tree.map(lambda leaf: jax.device_put(_taken(leaf, slots), device), trainings)

        return tuple(map(share_of, range(self.num_devices)))

    @property
    def saved_shapes(self) -> TrainState:
        """The shapes of the result of `gathered`, with keys as keys."""
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((self.num_slots, *leaf.shape[1:]), leaf.dtype),
            self.state_shapes,
        )

    def agents(self, state: PopulationState) -> Any:
        """Fetch the agents' states, leaves `[M, ...]`."""
        return self._gathered(jax.tree.map(numbers_of, each.agent) for each in state)

    def _on_each(
        self, program: str, *arrays: Any, state: Sequence[Any] = (), unpack: bool = False
    ) -> list[Any]:
        """Call a program on every device with its share of the arrays, without waiting for it."""
        results = []
        for i, programs in enumerate(self.programs.of_devices):
            share = slice(i * self._slots_per_device, (i + 1) * self._slots_per_device)
            own = jax.tree.map(lambda array, share=share: array[share], arrays)
            of_state: tuple[Any, ...] = ()
            if state:
                of_state = state[i] if unpack else (state[i],)
            results.append(programs[program](*of_state, *own))
        return results

    def _gathered(self, shares: Iterable[Any]) -> Any:
        """Fetch the results of each device, `[K, ...]`, as one tree with leaves `[M, ...]`."""
        fetched = jax.device_get(list(shares))
        if len(fetched) == 1:  # Avoid a copy, since a state may be large.
            return jax.tree.map(lambda leaf: leaf[: self.num_slots], fetched[0])
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: self.num_slots], *fetched)

    def _of_slots(self, name: str, values: Any, kind: type[np.generic]) -> np.ndarray:
        """Return a value for each slot as an array of a kind, `[M]`."""
        array = as_array(name, values)
        if array.shape != (self.num_slots,) or not np.can_cast(array.dtype, kind, "same_kind"):
            raise InvalidArgumentError(
                name,
                f"must be {self.num_slots} values of {np.dtype(kind)}, but got an array of "
                f"{array.dtype} with the shape {array.shape}.",
            )
        if not all(0 <= value <= INT32 for value in array.tolist()):
            raise InvalidArgumentError(
                name, f"must be from 0 to {INT32:,}, but got {shown(array.tolist())}."
            )
        return array.astype(kind)

    def _pad(self, values: np.ndarray) -> np.ndarray:
        """Add zeros for the unused slots of the devices."""
        padding = [(0, self._padded - len(values))] + [(0, 0)] * (values.ndim - 1)
        return np.pad(values, padding)


def require_seeds(run_folder: Path, seeds: Sequence[int], keys: jax.Array) -> None:
    """Refuse saved trainings that began from other seeds than these.

    Args:
        run_folder: where they are saved, for the message.
        seeds: one for each training, `[M]`.
        keys: the saved key of each training, `[M]`.

    Raises:
        InvalidArgumentError: a seed or the order of the seeds has changed.
    """
    expected = jax.vmap(seed_key)(*_words_of_seeds(seeds, len(seeds)).T)
    if (jax.random.key_data(keys) != jax.random.key_data(expected)).any():
        raise InvalidArgumentError(
            f"{run_folder} holds trainings of other seeds than seeds = {shown([*seeds])} in its "
            "config.toml; put back what the run was started with, in the same order."
        )


def _words_of_seeds(seeds: Sequence[int] | np.ndarray, count: int) -> np.ndarray:
    """Return the low and the high 32 bits of seeds, uint32 `[count, 2]`."""
    array = as_array("seeds", seeds)
    if array.shape != (count,):
        raise InvalidArgumentError(
            "seeds", f"must be one for each of {count} slots, but got {shown(seeds)}."
        )
    words = [words_of_seed(seed) for seed in array.tolist()]
    return np.array(words, np.uint32).reshape(count, 2)


def _taken(leaf: Any, slots: np.ndarray) -> Any:
    return leaf[slots] if holds_keys(leaf) else np.asarray(leaf)[slots]
