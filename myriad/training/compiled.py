"""A training's compiled programs, whether they fit into memory, and the loop over chunks.

`CompiledTraining` is a single training. `Population` has the same methods for several side by side.
The trainer runs their loop over chunks and the autotuner times it, so the autotuner measures what
will run.
"""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, TypeVar

import jax
import numpy as np

from myriad import settings
from myriad.agents.controller import ControllerLearner
from myriad.engine.devices import arrays_by_name, bytes_of
from myriad.engine.fusion import output_fusion
from myriad.engine.machine import resolve_platform
from myriad.engine.memory import available_bytes, require_room, require_room_for, stated_bytes
from myriad.engine.random import Counter, make_key
from myriad.envs.vector import as_float32
from myriad.errors import InvalidArgumentError
from myriad.host import collector_paused, release_freed_memory
from myriad.ranges import INT32
from myriad.training.config import TrainingConfig
from myriad.training.evaluation import Evaluation, Infos, evaluation_key
from myriad.training.loop import LearningLoop, Report, TrainState
from myriad.xla import is_on_host, result_shapes, use_compilation_cache, without_compilation_cache

OnReport = Callable[[Report, int], None]
# A program that was traced, with options of the compiler.
Traced = tuple[jax.stages.Traced, dict[str, Any] | None]
Tree = TypeVar("Tree")
# An evaluation returns for each episode the return, the length and whether it ended.
EPISODE_BYTES = 9


class CompiledTraining:
    """The compiled programs of a training.

    Args:
        config: the training.
        num_devices: devices that share the training; by default those of `config`.

    Attributes:
        config: the training.
        members: what names each training in its rows, as in `config`; `[{}]` for the only one.
        loop: the updates, as pure functions.
        evaluation: the episodes of an evaluation, as a pure function.
        num_devices: devices that train.
        steps_per_update: steps of all environments of one training in one update.
        num_updates: updates in the whole training.
        eval_every: updates between two evaluations.
        chunk: updates in one call. The autotuner changes it.
        compile_mode: when the programs compile, as in `config`.
        programs: the programs by name, `init`, `run` and `evaluate`, once compiled.
        stated: the bytes that the compiler states of each, as `myriad.engine.memory.stated_bytes`.
        compile_s: seconds that tracing and compiling took, or loading what was compiled before.
    """

    def __init__(self, config: TrainingConfig, *, num_devices: int | None = None):
        self.config = config
        self.members = config.members
        self.steps_per_update = config.num_envs * config.learner.steps_per_update
        self.num_updates = config.num_updates
        self.eval_every = config.updates_per_eval
        self.chunk = config.updates_per_chunk
        self.compile_mode: str = config.compile_mode
        learner = config.learner.scheduled(self.num_updates)
        self.loop = LearningLoop(
            config.environment,
            learner,
            config.num_envs,
            num_devices=num_devices or config.num_devices,
            schedules=config.schedules,
        )
        self.num_devices = self.loop.num_present
        self.evaluation = Evaluation(
            config.environment, learner, config.eval_rollouts, max_steps=config.eval_max_steps
        )
        self.programs: dict[str, Any] = {}
        self.stated: dict[str, tuple[int, int]] = {}
        self.compile_s = 0.0

    def compile(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Compile the programs side by side. After that nothing compiles while they run.

        With any `compile_mode` but aot, programs compile at their first call instead, or never.

        Args:
            meanwhile: called while the compiler works.
        """
        start = time.perf_counter()
        is_kept = self.compile_mode in ("aot", "cached")
        if is_kept and (cache := settings.compilation_cache()) is not None:
            use_compilation_cache(cache)
        if self.compile_mode != "aot":
            meanwhile()
            programs: tuple[Any, ...] = self.loop.init, self.loop.run, self._evaluate
            if self.compile_mode != "off":
                programs = (*self.loop.jitted(), jax.jit(self._evaluate))
            under = {"off": jax.disable_jit, "jit": without_compilation_cache}
            if context := under.get(self.compile_mode):
                programs = tuple(context()(program) for program in programs)
            self.programs = dict(zip(("init", "run", "evaluate"), programs, strict=True))
            return
        # The collector is paused, since it would take a sixth of tracing and find nothing.
        with collector_paused(), ThreadPoolExecutor() as pool:
            compiling = {}
            # While the compiler works, Python is free to trace and lower the next program and to
            # import modules.
            for name, (traced, options) in self._traced():
                compiling[name] = pool.submit(traced.lower().compile, options)
            meanwhile()
            for name, compiled in compiling.items():
                self.programs[name] = compiled.result()
                self.stated[name] = stated_bytes(self.programs[name])
        self.compile_s = time.perf_counter() - start

    def _traced(self) -> Iterator[tuple[str, Traced]]:
        """Trace each program by name. The one that compiles the longest comes first."""
        init, run = self.loop.jitted()
        state = self.loop.shapes
        yield "run", (run.trace(state, np.int32(0), np.bool_(False)), None)  # noqa: FBT003
        yield "init", (init.trace(make_key(0), self.loop.options), None)
        own = self.loop.of_first_device(state)
        evaluate = jax.jit(self._evaluate).trace(*self.evaluation_args(own))
        yield "evaluate", (evaluate, output_fusion(lambda: evaluate.jaxpr))

    def _evaluate(
        self, agent: Any, key: jax.Array, num_updates: Counter, env_params: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, Infos]:
        return self.evaluation.episodes(agent, evaluation_key(key, num_updates), env_params)

    def evaluation_args(self, own: TrainState) -> tuple[Any, ...]:
        """Return the arguments of `evaluate`. It plays the environment of the configuration."""
        return own.agent, own.key, own.num_updates, self.evaluation.env_params

    def first_state(self, seeds: Sequence[int] | np.ndarray | None = None) -> TrainState:
        """Return the state before the first update.

        Args:
            seeds: the seed of each training; by default those of the configuration.
        """
        (seed,) = [self.config.seed] if seeds is None else seeds
        return self.programs["init"](self.loop.key(seed), self.loop.options)

    def run_window(
        self,
        state: TrainState,
        done: int,
        boundary: int,
        on_report: OnReport,
        interrupted: Event | None = None,
        running: np.ndarray | None = None,
    ) -> tuple[TrainState, int]:
        """Run chunks up to an update, or until `interrupted` is set.

        The device works on the next chunk while the host reads the report of the previous one.

        Args:
            state: the state after `done` updates. It is donated.
            done: updates done.
            boundary: the update to stop at, no later than the next evaluation's.
            on_report: called with each chunk's report, in the host's memory, and the updates done
                by then.
            interrupted: checked between chunks.
            running: which trainings go on, boolean `[M]`; by default all.

        Returns:
            the state, and the updates it has done.
        """
        report: Report | None = None
        while done < boundary and not (interrupted is not None and interrupted.is_set()):
            num_updates = min(self.chunk, boundary - done)
            begin = done % self.eval_every == 0
            previous = report
            state, report = self._run(state, num_updates, running, begin=begin)
            if previous is not None:
                on_report(self.gathered(previous), done)
            done += num_updates
        if report is not None:
            on_report(self.gathered(report), done)
        return state, done

    def _run(
        self, state: TrainState, num_updates: int, running: np.ndarray | None, *, begin: bool
    ) -> tuple[TrainState, Report]:
        """Do some updates. The report is not in the host's memory yet."""
        return self.programs["run"](state, np.int32(num_updates), np.bool_(begin))

    def play(
        self, state: TrainState, active: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Run the episodes of an evaluation.

        Args:
            state: the state.
            active: which trainings to evaluate, boolean `[M]`; by default all.

        Returns:
            the returns of the episodes and whether each ended, `[M, E]`, and the scalars of `info`
            at each episode's last step, each `[M, E]`.
        """
        own = self.loop.of_first_device(state)
        results = jax.device_get(self.programs["evaluate"](*self.evaluation_args(own)))
        returns, ended, _, infos = jax.tree.map(lambda leaf: leaf[None], results)
        return returns, ended, infos

    @property
    def devices(self) -> str:
        """The devices that train, such as "2 CPU devices"."""
        return self.loop.devices

    @property
    def described(self) -> str:
        """How many environments there are, and on what, for the progress."""
        shares = self.loop.num_devices
        on = f" in {shares} shares on {self.devices}" if shares > 1 else ""
        return f"{self.config.num_envs:,} environments{on}"

    def gathered(self, tree: Tree) -> Tree:
        """Fetch a report into the host's memory."""
        return jax.device_get(tree)

    def report_of(self, report: Report, index: int) -> Report:
        """Return the report of one training."""
        return report

    def agents(self, state: TrainState) -> Any:
        """Return the learner's state, of several trainings `[M, ...]`."""
        return self.loop.of_first_device(state).agent

    def learned(self, state: TrainState) -> dict[str, np.ndarray]:
        """Copy what the agents have learned into the host's memory, by name.

        That is the learner's state without what differs by device, such as a replay buffer.
        """
        if isinstance(self.loop.learner, ControllerLearner):
            return {}
        own = self.loop.learner.per_device or frozenset()
        arrays = arrays_by_name({"agent": self.loop.of_first_device(state).agent})
        shared = {name: x for name, x in arrays.items() if not own & {*name.split(".")[1:2]}}
        # A view of memory that is donated later would change.
        return jax.tree.map(np.array, self.gathered(shared))

    @property
    def state_shapes(self) -> TrainState:
        """The shapes of a state."""
        return self.loop.shapes

    @property
    def saved_shapes(self) -> TrainState:
        """The shapes of the state that a checkpoint holds."""
        return self.state_shapes

    def to_save(self, state: TrainState) -> TrainState:
        """Return the arrays that a checkpoint holds."""
        return state

    def everywhere(self, state: TrainState) -> TrainState:
        """Put a state from a checkpoint on the devices that train."""
        return self.loop.everywhere(state)

    def env_params(self, state: TrainState) -> dict[str, float]:
        """Return the environment's parameters that are arguments of the program, by name."""
        values = np.asarray(self.loop.of_first_device(state).env_params)
        values = np.atleast_2d(values)[0]  # all seeds have the same
        return dict(zip(self.loop.envs.params.floats, map(as_float32, values), strict=True))

    def with_env_params(self, state: TrainState, values: Sequence[float]) -> TrainState:
        """Return a state whose environments have other parameters, in the order of `env_params`."""
        env_params = self.loop.everywhere_same(np.asarray(values, np.float32))
        return dataclasses.replace(state, env_params=env_params)

    def stated_bytes(self) -> int:
        """Return the most bytes that the compiled programs hold at once in one memory.

        All devices of a CPU share one memory. Each other device has its own.
        """
        num_devices = self.num_devices if resolve_platform() == "cpu" else 1
        # The arguments of `run` are the state, which an evaluation leaves in memory.
        state, added = self.stated["run"]
        _, by_evaluation = self.stated["evaluate"]
        first = sum(self.stated["init"])
        return max(
            num_devices * first, num_devices * (state + added), num_devices * state + by_evaluation
        )


def _device_bytes(shapes: TrainState) -> int:
    """Return the bytes of a state on its devices. A CPU shares its memory with the host."""
    is_cpu = resolve_platform() == "cpu"
    leaves = jax.tree.leaves(shapes)
    return bytes_of([leaf for leaf in leaves if is_cpu or not is_on_host(leaf)])


def state_size(config: TrainingConfig) -> tuple[int, int]:
    """Measure the state of a training by its shapes for its environments and for twice as many.

    Returns:
        the bytes that don't depend on the number of environments, such as the replay buffer and the
        parameters, and the bytes that each environment adds.
    """
    num_envs = config.num_envs

    def size(count: int) -> int:
        return _device_bytes(LearningLoop(config.environment, config.learner, count).shapes)

    once = size(num_envs)
    if 2 * num_envs > INT32:
        return 0, once // num_envs  # So many can't be doubled, and beside them nothing else counts.
    # An agent or an environment may refuse numbers that aren't multiples of one of its own.
    per_env = max(1, (size(2 * num_envs) - once) // num_envs)
    return max(0, once - per_env * num_envs), per_env


def compile_within_memory(
    training: CompiledTraining,
    *,
    limit: int | None = None,
    subject: str = "",
    meanwhile: Callable[[], object] = lambda: None,
) -> int:
    """Compile a training's programs, unless it doesn't fit into memory.

    Args:
        training: the training, not compiled yet.
        limit: see `myriad.engine.memory.available_bytes`.
        subject: what needs the memory, for the message; by default the settings that decide it.
        meanwhile: called while the compiler works.

    Returns:
        the most bytes that the programs hold at once, as the compiler states them. Programs that
        compile at their first call state nothing, so it is a lower bound.

    Raises:
        InvalidArgumentError: it doesn't fit. The message says what would.
    """
    config = training.config

    def require_fit(stated: int, at_most: str) -> int:
        if config.seeds is not None:
            what = "seeds" if config.grid is None else "trainings"
            require_room_for(len(config.members), stated, what=what, at_most=at_most)
        else:
            named = [f"num_envs = {config.num_envs:,}"]
            if config.buffer_size is not None:
                named.append(f"buffer_size = {config.buffer_size:,}")
            settings = f"{', '.join(named)} and eval_rollouts = {config.eval_rollouts:,}"
            remedy = functools.partial(_what_fits, training, stated, at_most)
            require_room(subject or settings, stated, remedy, available_bytes(limit))
        return stated

    # A lower bound in one memory, from shapes. Before the updates are traced, since an impossible
    # size raises an unclear error there.
    episodes = EPISODE_BYTES * config.eval_rollouts * len(config.members)
    num_memories = 1 if resolve_platform() == "cpu" else training.num_devices
    least = (_device_bytes(training.state_shapes) + episodes) // num_memories
    stated = require_fit(least, "fewer than")
    training.compile(meanwhile)
    release_freed_memory()
    if training.compile_mode == "aot":
        stated = require_fit(training.stated_bytes(), "at most about")
    return stated


def _what_fits(training: CompiledTraining, stated: int, at_most: str, room: int) -> str:
    """Return smaller numbers that fit: of the setting that takes most, or of all together."""
    config = training.config
    fixed, per_env = state_size(config)
    # What each setting takes, in bytes of the state: an episode is played in its own environment.
    taken = {
        "environments": (config.num_envs, per_env * config.num_envs),
        "transitions of replay": (config.buffer_size or 0, fixed),
        "episodes of an evaluation": (config.eval_rollouts, per_env * config.eval_rollouts),
    }
    taken = {what: each for what, each in taken.items() if each[0]}
    most = max(taken, key=lambda what: taken[what][1])
    excess = 1 - room / stated
    kept = 1 - excess * sum(size for _, size in taken.values()) / taken[most][1]
    fitting = {most: int(kept * taken[most][0])}
    if kept <= 0:
        fitting = {what: int((1 - excess) * number) for what, (number, _) in taken.items()}
    if "environments" in fitting:
        fitting["environments"] -= fitting["environments"] % config.learner.num_envs_multiple
        if not fitting["environments"]:
            return "not even one environment fits"
    numbers = [f"{max(1, number):,} {what}" for what, number in fitting.items()]
    return f"{at_most} {' and '.join(numbers)} fit"


@contextlib.contextmanager
def shortage_named() -> Iterator[None]:
    """Turn JAX's error into a sentence if memory runs out although it should have sufficed.

    Another process may have taken it, or `ulimit -v` counts addresses that nothing uses.

    Raises:
        InvalidArgumentError: memory ran out in the block.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if error.error_code_string != "RESOURCE_EXHAUSTED":
            raise
        raise InvalidArgumentError(
            "memory ran out: use fewer environments or episodes or a smaller buffer_size, or leave "
            f"more memory; JAX says: {error}"
        ) from None


class Halves:
    """The halves of a training's updates on one device, with their arguments.

    No clock can run inside a compiled chunk, so they compile apart.

    Args:
        config: the training.

    Attributes:
        collect: maps a `TrainState` to the next one and the experience to learn from, jitted.
        learn: maps a `TrainState` and that experience to the next state, jitted. Both donate the
            state, as a training does, since otherwise a replay buffer would be copied.
        shapes: the shapes of a state and of the experience, as `learn` takes them.

    Raises:
        InvalidArgumentError: the agent has no `collect` and `learn`.
    """

    def __init__(self, config: TrainingConfig):
        self._config = config
        self._loop = loop = CompiledTraining(config, num_devices=1).loop
        self.collect: Any = jax.jit(loop.collect, donate_argnums=0)
        self.learn: Any = jax.jit(loop.learn, donate_argnums=0)
        self.shapes: Any = result_shapes(self.collect.trace(loop.shapes))

    def arguments(self) -> tuple[Any, Any]:
        """Return a state in which the agent learns, and the experience that it learns from."""
        state: Any = jax.jit(self._loop.init)(make_key(self._config.seed))
        # A replay buffer must be filled before an agent learns from it.
        before = self._loop.learner.first_learning_update(self._config.num_envs) - 1
        if before:
            run: Any = jax.jit(self._loop.run, donate_argnums=0)
            state, _ = run(state, np.int32(before), np.bool_(True))  # noqa: FBT003
        return self.collect(state)
