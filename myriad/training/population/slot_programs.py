"""The programs of trainings that share a device, one slot after another or side by side."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from myriad import settings
from myriad.collector import collector_paused
from myriad.counters import Counter
from myriad.errors import InvalidArgumentError, UnknownNameError, shown
from myriad.random import MIX2X32, seed_key
from myriad.ranges import ranges_of
from myriad.training.config import TrainingConfig
from myriad.training.evaluation import Evaluation, evaluation_key
from myriad.training.loop import LearningLoop, TrainState, traced_names
from myriad.training.programs import ProgramSize
from myriad.xla import output_fusion, result_shapes, use_compilation_cache

Options = Mapping[str, Any]
Mapped = Literal["map", "vmap"]


class SlotPrograms:
    """The programs that each device of a population runs: `blank`, `refill`, `run`, `evaluate`.

    Args:
        config: the trainings. Its seed is not read.
        num_slots: slots of each device, `K`.
        traced: hyperparameters of the agent that differ by slot.
        mapping: "map" or "vmap".

    Attributes:
        num_slots: slots of each device.
        traced: names of the hyperparameters that differ by slot.
        mapping: "map" or "vmap".
        loop: the updates of one training, as pure functions.
        evaluation: the episodes of one training.
        state_shapes: the shapes of a `TrainState` with the axis of slots first, `[K, ...]`, once
            compiled.
        sizes: the sizes of the programs, once compiled.
        of_devices: the compiled programs of each device, by name.
        compile_s: seconds that tracing and compiling took, or loading what was compiled before.

    Raises:
        InvalidArgumentError: a hyperparameter can't differ by slot.
        UnknownNameError: the agent has no such hyperparameter.
    """

    def __init__(
        self, config: TrainingConfig, num_slots: int, traced: Sequence[str], mapping: Mapped
    ):
        self.num_slots = num_slots
        self.traced = tuple(traced)
        self.mapping: Mapped = mapping
        self._agent = config.agent
        learner = config.learner.scheduled(config.num_updates)
        self._require_traceable(learner)
        self.loop = LearningLoop(config.environment, learner, config.num_envs)
        self.evaluation = Evaluation(
            config.environment, learner, config.eval_rollouts, max_steps=config.eval_max_steps
        )
        self.state_shapes: Any = None
        self.sizes: tuple[ProgramSize, ...] = ()
        self.of_devices: list[dict[str, Any]] = []
        self.compile_s = 0.0

    def compile(
        self,
        devices: Sequence[Any],
        at_a_time: Any = len,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Compile all programs side by side. After that nothing compiles while the trainings run.

        Args:
            devices: the devices, each of which gets its own set of programs.
            at_a_time: called with the programs' sizes before the compiler works; returns how many
                it may work on at a time.
            meanwhile: called while the compiler works.
        """
        start = time.perf_counter()
        if (cache := settings.compilation_cache()) is not None:
            use_compilation_cache(cache)
        with collector_paused():
            traced = [self._trace(device) for device in devices]
            self.sizes = tuple(ProgramSize.of(each) for each, _ in traced[0].values())
            with ThreadPoolExecutor(at_a_time(self.sizes)) as pool:
                # Each device has its own programs. One program of 2 partitions would be fused
                # differently, and end in other bits than a training alone.
                compiling = [
                    {
                        name: pool.submit(each.lower().compile, options)
                        for name, (each, options) in programs.items()
                    }
                    for programs in traced
                ]
                meanwhile()
                self.of_devices = [
                    {name: each.result() for name, each in programs.items()}
                    for programs in compiling
                ]
        self.compile_s = time.perf_counter() - start

    def _trace(self, device: Any) -> dict[str, tuple[jax.stages.Traced, Any]]:
        """Return a device's traced programs, with the compiler options of each."""
        slots = self.num_slots
        low, high = (np.zeros(slots, np.uint32) for _ in range(2))
        options = {name: np.zeros(slots, np.float32) for name in self.loop.options}
        counts = np.zeros(slots, np.int32)
        flags = np.zeros(slots, bool)
        keys = np.zeros((slots, 2), np.uint32)
        # Traced only for its shapes. `refill` resets a training, even the first in a slot.
        state = result_shapes(self._jitted(self._first, device).trace(low, high, options))
        self.state_shapes = state
        there = SingleDeviceSharding(device)
        blank = jax.jit(lambda: jax.tree.map(_zeros, state), out_shardings=there).trace()
        run = self._jitted(self.loop.run, device, donate=True).trace(state, counts, flags)
        of_agents = (state.agent, state.key, state.num_updates)
        evaluate = self._jitted(self._evaluate, device).trace(*of_agents, flags, flags, keys)
        refill = self._jitted(self._refill, device, donate=True)
        refill = refill.trace(state, flags, low, high, options)

        return {
            "run": (run, output_fusion(lambda: run.jaxpr)),
            "blank": (blank, {}),
            "refill": (refill, {}),
            "evaluate": (evaluate, output_fusion(lambda: evaluate.jaxpr)),
        }

    def _jitted(self, of_slot: Any, device: Any, *, donate: bool = False) -> Any:

        def of_device(*slots: Any) -> Any:
            if self.mapping == "vmap":
                return jax.vmap(of_slot)(*slots)
            return jax.lax.map(lambda slot: of_slot(*slot), slots)

        there = SingleDeviceSharding(device)
        return jax.jit(
            of_device,
            donate_argnums=0 if donate else (),
            in_shardings=there,
            out_shardings=there,
        )

    def _first(self, low: jax.Array, high: jax.Array, options: dict[str, jax.Array]) -> TrainState:
        return self.loop.init(seed_key(low, high), options)

    def _refill(
        self,
        state: TrainState,
        is_new: jax.Array,
        low: jax.Array,
        high: jax.Array,
        options: dict[str, jax.Array],
    ) -> TrainState:
        # With "map", a slot skips the branch that it doesn't need. Under vmap, every slot computes
        # both branches and selects one.
        return jax.lax.cond(is_new, lambda: self._first(low, high, options), lambda: state)

    def _evaluate(
        self,
        agent: Any,
        key: jax.Array,
        num_updates: Counter,
        active: jax.Array,
        own: jax.Array,
        words: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        own_key = evaluation_key(key, num_updates)
        data = jnp.where(own, jax.random.key_data(own_key), words)
        key = jax.random.wrap_key_data(data, impl=MIX2X32)

        def episodes() -> tuple[jax.Array, jax.Array]:
            return self.evaluation.returns(agent, key)

        shapes = jax.eval_shape(episodes)
        nothing = lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)  # noqa: E731
        return jax.lax.cond(active, episodes, nothing)

    def _require_traceable(self, learner: Any) -> None:
        traceable = traced_names(learner)
        for name in self.traced:
            if not hasattr(learner, name):
                raise UnknownNameError("hyperparameter", name, traceable)
            if name not in traceable:
                raise InvalidArgumentError(
                    f"{name} of {self._agent} can't differ by slot, since it is "
                    f"part of the compiled program; {', '.join(traceable)} can."
                )

    def values(self, options: Options, count: int) -> dict[str, np.ndarray]:
        """Return the hyperparameters of trainings as the programs take them.

        Args:
            options: values for each name in `traced`, `[count]`.
            count: how many values each must have.

        Raises:
            InvalidArgumentError: a value or the number of values can't be used.
        """
        if not isinstance(options, Mapping):
            raise InvalidArgumentError(
                "options",
                f"must be a dict of hyperparameters and values, but got {shown(options)}.",
            )
        if set(options) != set(self.traced):
            raise InvalidArgumentError(
                "options",
                f"must give values of {', '.join(self.traced) or 'nothing'}, "
                f"but gave those of {', '.join(options) or 'nothing'}.",
            )
        ranges = ranges_of(type(self.loop.learner))
        found = {name: np.full(count, each) for name, each in self.loop.options.items()}
        for name in self.traced:
            values = as_array(name, options[name])
            if values.shape != (count,):
                raise InvalidArgumentError(
                    name, f"must have {count} values, but has the shape {values.shape}."
                )
            for value in values.tolist():
                ranges[name].require(name, value)
            found[name] = values.astype(np.float32)
        return found


def as_array(name: str, values: Any) -> np.ndarray:
    """Return values as an array.

    Raises:
        InvalidArgumentError: the rows have different lengths.
    """
    try:
        return np.asarray(values)
    except ValueError:
        raise InvalidArgumentError(
            name, f"must be a list of values, but got {shown(values)}."
        ) from None


def _zeros(leaf: Any) -> jax.Array:
    return jnp.zeros(leaf.shape, leaf.dtype)
