"""Many trainings of one shape in one compiled program: seeds side by side, or a study's trials.

The trainer's host loop over seeds and the trials of `myriad tune` call the same programs.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from myriad.agents.agent import row_of, without_schedules
from myriad.engine.devices import bytes_of, numbers_of, require_alive, shard_map
from myriad.engine.fusion import output_fusion
from myriad.engine.machine import resolve_platform
from myriad.engine.random import MIX2X32, Counter, holds_keys, make_key, seed_key, words_of_seed
from myriad.errors import InvalidArgumentError
from myriad.ranges import INT32, Integer, checked, ranges_of
from myriad.training.compiled import CompiledTraining, Traced, Tree
from myriad.training.config import TrainingConfig, default_mapping
from myriad.training.evaluation import Infos, evaluation_key
from myriad.training.loop import Report, TrainState, traced_names

__all__ = ["Population"]

# The axis of the devices that the slots are spread over.
_SLOTS = "slots"
# Of each hyperparameter a value for each slot.
Options = Mapping[str, Sequence[float | str] | np.ndarray]
Seeds = Sequence[int] | np.ndarray
Mapped = Literal["map", "vmap"]


class Population(CompiledTraining):
    """Trainings of one shape side by side, each in a slot of one compiled program.

    The loss and the gradient of a given batch agree with those of the same training alone within
    1e-5. Slots are spread over the devices. By default the slots of one device run one after
    another on a CPU, whose caches hold one training better than all of them, and side by side on
    other devices. A state is a `TrainState` with the axis of slots first.

    Args:
        config: the trainings. Its seed is not read.
        num_slots: trainings side by side.
        traced: hyperparameters of the agent that differ by slot: floats, such as `learning_rate`,
            and `num_epochs`. Others compile as constants.
        mapping: "map" or "vmap"; by default what suits the device.
        num_devices: devices to spread the slots over; by default all of this process.

    Attributes:
        num_slots: trainings side by side, `M`.
        traced: names of the hyperparameters that differ by slot.
        mapping: how slots share a device: "map" or "vmap".
        num_devices: devices that the slots are spread over.
        programs: the programs `run`, `evaluate`, `refill` and `blank`, once compiled.

    The other attributes are those of `CompiledTraining`.

    Raises:
        InvalidArgumentError: a number can't be used, or a hyperparameter can't differ by slot.
    """

    @checked
    def __init__(
        self,
        config: TrainingConfig,
        num_slots: Annotated[int, Integer(1)],
        traced: Sequence[str] = (),
        *,
        mapping: Mapped | None = None,
        num_devices: int | None = None,
    ):
        if num_devices is not None:
            Integer(1, jax.local_device_count()).require("num_devices", num_devices)
        shared = config.given.get("num_devices", 1)
        if shared > 1:
            rule = "must be 1 where trainings run side by side, each on one device"
            raise InvalidArgumentError("num_devices", rule, shared)
        super().__init__(config, num_devices=1)
        learner: Any = self.loop.learner
        traceable = traced_names(learner)
        for name in traced:
            if name not in traceable:
                can = ", ".join(traceable)
                says = f"{name} of {config.agent} can't differ by slot; {can} can."
                raise InvalidArgumentError(says)
        self.compile_mode = "aot"  # Nothing else is worth it for many.
        self.num_slots = num_slots
        self.traced = tuple(traced)
        self.mapping: Mapped = mapping or default_mapping()
        self.num_devices = min(num_slots, num_devices or jax.local_device_count())
        # Every device has as many slots. Those beyond num_slots do nothing.
        self._slots_per_device = -(-num_slots // self.num_devices)
        self._padded = self._slots_per_device * self.num_devices
        mesh = Mesh(np.array(jax.local_devices()[: self.num_devices]), (_SLOTS,))
        self._placement = NamedSharding(mesh, PartitionSpec(_SLOTS))

    @property
    def state_shapes(self) -> TrainState:
        return self._shapes_of(self._padded)

    @property
    def saved_shapes(self) -> TrainState:
        # Unused slots of the last device are not saved.
        return self._shapes_of(self.num_slots)

    def _shapes_of(self, num_slots: int) -> TrainState:
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((num_slots, *leaf.shape), leaf.dtype),
            self.loop.shapes,
        )

    def _traced(self) -> Iterator[tuple[str, Traced]]:
        low, high = (np.zeros(self._padded, np.uint32) for _ in range(2))
        options = {
            name: np.zeros((self._padded, *np.shape(each)), np.float32)
            for name, each in self.loop.options.items()
        }
        counts = np.zeros(self._padded, np.int32)
        flags = np.zeros(self._padded, bool)
        keys = np.zeros((self._padded, 2), np.uint32)
        there = self._placement
        state = self.state_shapes

        def jitted(of_slot: Any, *, donate: bool = False) -> Any:
            def of_device(*slots: Any) -> Any:
                if self.mapping == "vmap":
                    return jax.vmap(of_slot)(*slots)
                return jax.lax.map(lambda slot: of_slot(*slot), slots)

            of_all = shard_map(of_device, there.mesh, there.spec, there.spec)
            donated = 0 if donate else ()
            return jax.jit(of_all, donate_argnums=donated, in_shardings=there, out_shardings=there)

        def first(low: jax.Array, high: jax.Array, options: dict[str, jax.Array]) -> TrainState:
            return self.loop.init(seed_key(low, high), options)

        def refill(state: TrainState, is_new: jax.Array, *of_new: Any) -> TrainState:
            # With "map", a slot skips the branch that it doesn't need. Under vmap, every slot
            # computes both branches and selects one.
            return jax.lax.cond(is_new, lambda: first(*of_new), lambda: state)

        def zeros(leaf: Any) -> jax.Array:
            return jnp.zeros(leaf.shape, leaf.dtype)

        run = jitted(self.loop.run, donate=True).trace(state, counts, flags)
        yield "run", (run, output_fusion(lambda: run.jaxpr))
        of_agents = (state.agent, state.key, state.num_updates)
        env_params = self._evaluated_params
        evaluate = jitted(self._evaluate_slot).trace(*of_agents, flags, flags, keys, env_params)
        yield "evaluate", (evaluate, output_fusion(lambda: evaluate.jaxpr))
        refilled = jitted(refill, donate=True).trace(state, flags, low, high, options)
        yield "refill", (refilled, None)
        blank = jax.jit(lambda: jax.tree.map(zeros, state), out_shardings=there).trace()
        yield "blank", (blank, None)

    @property
    def _evaluated_params(self) -> np.ndarray:
        values = self.evaluation.env_params
        return np.broadcast_to(values, (self._padded, *values.shape))

    def _evaluate_slot(
        self,
        agent: Any,
        key: jax.Array,
        num_updates: Counter,
        active: jax.Array,
        own: jax.Array,
        words: jax.Array,
        env_params: jax.Array,
    ) -> tuple[jax.Array, jax.Array, Infos]:
        """Run the episodes of one slot if it is active, with its own key or that of the words."""
        own_key = evaluation_key(key, num_updates)
        data = jnp.where(own, jax.random.key_data(own_key), words)
        key = jax.random.wrap_key_data(data, impl=MIX2X32)

        def episodes() -> tuple[jax.Array, jax.Array, Infos]:
            returns, ended, _, infos = self.evaluation.episodes(agent, key, env_params)
            return returns, ended, infos

        shapes = jax.eval_shape(episodes)
        nothing = lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)  # noqa: E731
        return jax.lax.cond(active, episodes, nothing)

    def first_state(self, seeds: Seeds | None = None, options: Options | None = None) -> TrainState:
        """Return the state before the first update.

        Args:
            seeds: one for each training, `[M]`; by default those of `config`.
            options: for each name in `traced`, a value for each slot, `[M]`: numbers, or
                schedules such as "linear(1e-3, 0)". By default they are those of the grid of
                `config`, if it has one.

        Raises:
            InvalidArgumentError: a seed or a value can't be used.
        """
        # Refill all slots of a blank state, so that no second program for a first state compiles.
        if seeds is None:
            seeds = self.config.seeds and [each["seed"] for each in self.members]
        if options is None and self.config.grid is not None:
            options = {
                name: [each[f"agent.{name}"] for each in self.members] for name in self.traced
            }
        new = self._new_trainings(np.arange(self.num_slots), seeds, options)
        return self.programs["refill"](self.programs["blank"](), *new)

    def refill(
        self,
        state: TrainState,
        slots: Sequence[int] | np.ndarray,
        seeds: Seeds,
        options: Options | None = None,
    ) -> TrainState:
        """Begin new trainings in some slots. The others stay as they are.

        Args:
            state: the state of the population. It is donated.
            slots: the slots that begin anew, int `[K]`, each once.
            seeds: one for each new training, `[K]`.
            options: for each name in `traced`, a value for each new training, `[K]`.

        Raises:
            InvalidArgumentError: a seed or a value can't be used.
        """
        require_alive("state", state)
        numbers = np.asarray(slots).tolist()
        Integer(0, self.num_slots - 1, items=(0, self.num_slots)).require("slots", numbers)
        if len(set(numbers)) < len(numbers):
            raise InvalidArgumentError("slots", "must be different", numbers)
        new = self._new_trainings(np.array(numbers, int), seeds, options)
        return self.programs["refill"](state, *new)

    def _new_trainings(
        self, slots: np.ndarray, seeds: Seeds | None, options: Options | None
    ) -> tuple[Any, ...]:
        """Return what `refill` takes for every slot: whether it is new, its seed, its values."""

        def everywhere(values: np.ndarray) -> np.ndarray:
            every = np.zeros((self._padded, *values.shape[1:]), values.dtype)
            every[slots] = values
            return every

        given = {} if options is None else options
        if not isinstance(given, Mapping) or set(given) != set(self.traced):
            rule = f"must give values of {', '.join(self.traced) or 'nothing'}"
            raise InvalidArgumentError("options", rule, given)
        learner: Any = self.loop.learner
        ranges = ranges_of(learner)
        beside = {"anneal_updates": getattr(learner, "anneal_updates", None)}
        found = {
            name: np.broadcast_to(each, (len(slots), *np.shape(each)))
            for name, each in self.loop.options.items()
        }
        for name in self.traced:
            values = np.asarray(given[name], object)
            if values.shape != (len(slots),):
                raise InvalidArgumentError(name, f"must have {len(slots)} values", values)
            for value in values.tolist():
                number = without_schedules(type(learner), {**beside, name: value})[name]
                ranges[name].require(name, number)
            if len(slots):
                found[name] = np.stack([row_of(each, self.num_updates) for each in values])
        array = np.asarray(seeds)
        if array.shape != (len(slots),):
            rule = f"must be one for each of {len(slots)} slots"
            raise InvalidArgumentError("seeds", rule, seeds)
        words = [words_of_seed(seed) for seed in array.tolist()]
        words = everywhere(np.array(words, np.uint32).reshape(len(slots), 2))
        values = {name: everywhere(each) for name, each in found.items()}
        return everywhere(np.ones(len(slots), bool)), *words.T, values

    def run(
        self,
        state: TrainState,
        num_updates: Sequence[int] | np.ndarray,
        begin: Sequence[bool] | np.ndarray,
    ) -> tuple[TrainState, Report]:
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
        require_alive("state", state)
        counts = self._of_slots("num_updates", num_updates, np.int32)
        begins = self._of_slots("begin", begin, np.bool_)
        state, report = self.programs["run"](state, counts, begins)
        return state, self.gathered(report)

    def _run(
        self, state: TrainState, num_updates: int, running: np.ndarray | None, *, begin: bool
    ) -> tuple[TrainState, Report]:
        running = np.ones(self.num_slots, bool) if running is None else running
        counts = self._of_slots("num_updates", num_updates * running, np.int32)
        begins = self._of_slots("begin", begin & running, np.bool_)
        return self.programs["run"](state, counts, begins)

    def evaluate(
        self,
        state: TrainState,
        active: Sequence[bool] | np.ndarray | None = None,
        keys: jax.Array | None = None,
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
        return self.play(state, active, keys)[:2]

    def play(
        self,
        state: TrainState,
        active: Sequence[bool] | np.ndarray | None = None,
        keys: jax.Array | None = None,
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Do what `evaluate` does, and return the last scalars of `info`, `[M, E]`, as well."""
        require_alive("state", state)
        active = np.ones(self.num_slots, bool) if active is None else active
        flags = self._of_slots("active", active, np.bool_)
        words = np.zeros((self._padded, 2), np.uint32)
        if keys is not None:
            shape = keys.shape if getattr(keys, "dtype", None) == make_key(0).dtype else None
            if shape not in ((), (self.num_slots,)):
                rule = f"must be one or {self.num_slots}, as make_key makes"
                raise InvalidArgumentError("keys", rule, keys)
            words[: self.num_slots] = np.asarray(jax.random.key_data(keys))
        own = np.full(self._padded, keys is None)
        of_agents = (state.agent, state.key, state.num_updates)
        return self.gathered(
            self.programs["evaluate"](*of_agents, flags, own, words, self._evaluated_params)
        )

    def updates_done(self, state: TrainState) -> np.ndarray:
        """Return how many updates each training has done, int64 `[M]`."""
        count = self.gathered(state.num_updates)
        high, low = (np.asarray(word, np.int64) for word in (count.high, count.low))
        return high << 32 | low

    def member(self, state: TrainState, slot: int) -> TrainState:
        """Return the state of one training as NumPy arrays, with its key as its two words."""
        return jax.tree.map(lambda leaf: leaf[slot], self.gathered(state))

    def with_env_params(self, state: TrainState, values: Sequence[float]) -> TrainState:
        of_slots = np.broadcast_to(np.asarray(values, np.float32), state.env_params.shape)
        return dataclasses.replace(state, env_params=jax.device_put(of_slots, self._placement))

    @property
    def devices(self) -> str:
        plural = "s" if self.num_devices > 1 else ""
        return f"{self.num_devices} {jax.default_backend().upper()} device{plural}"

    @property
    def described(self) -> str:
        together = "one after another" if self.mapping == "map" else "side by side"
        each = f"{self.config.num_envs:,} environments"
        which = f"{self.num_slots} seeds"
        if self.config.grid is not None:
            seeds = self.num_slots // len(self.config.points)
            which = f"{len(self.config.points)} points x {seeds} seeds"
        return f"{which} of {each}, {together} on {self.devices}"

    def report_of(self, report: Report, index: int) -> Report:
        return jax.tree.map(lambda leaf: leaf[index], report)

    def agents(self, state: TrainState) -> Any:
        return self.gathered(state.agent)

    def to_save(self, state: TrainState) -> TrainState:
        return self.gathered(state)

    def gathered(self, tree: Tree) -> Tree:
        """Fetch a state, or a part of it, the same for any number of devices.

        Returns:
            NumPy arrays with leaves `[M, ...]`. A key is an array of its two words.
        """
        require_alive("state", tree)
        fetched = jax.device_get(jax.tree.map(numbers_of, tree))
        return jax.tree.map(lambda leaf: leaf[: self.num_slots], fetched)

    def everywhere(self, state: TrainState) -> TrainState:
        """Spread trainings from `gathered` or from a checkpoint over the devices."""
        # Unused slots hold copies of the last training.
        slots = np.minimum(np.arange(self._padded), self.num_slots - 1)

        def placed(leaf: Any) -> jax.Array:
            every = leaf[slots] if holds_keys(leaf) else np.asarray(leaf)[slots]
            return jax.device_put(every, self._placement)

        return jax.tree.map(placed, state)

    def stated_bytes(self, num_slots: int | None = None) -> int:
        """Return the most bytes that the compiled programs hold at once in one memory.

        Args:
            num_slots: count the bytes of so many slots on a single device, in place of all slots.
        """
        state = bytes_of(self.state_shapes) // self.num_devices
        held = state + max(added for _, added in self.stated.values())
        if num_slots is not None:
            return held * num_slots // self._slots_per_device
        return held * (self.num_devices if resolve_platform() == "cpu" else 1)

    def _of_slots(
        self, name: str, values: Sequence[float] | np.ndarray, kind: type[np.generic]
    ) -> np.ndarray:
        """Return a value for each slot as an array of a kind, with zeros for unused slots."""
        array = np.asarray(values)
        is_whole = array.shape == (self.num_slots,) and np.can_cast(array.dtype, kind, "same_kind")
        if not is_whole or not all(0 <= value <= INT32 for value in array.tolist()):
            rule = f"must be {self.num_slots} values of {np.dtype(kind)}, none below 0"
            raise InvalidArgumentError(name, rule, array)
        return np.pad(array.astype(kind), (0, self._padded - self.num_slots))
