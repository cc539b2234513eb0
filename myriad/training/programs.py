"""A training's three compiled programs, and the loop over chunks between two evaluations.

The trainer runs this loop and the autotuner times it, so the autotuner measures what will run. No
clock can run inside a compiled chunk, so `Halves` compiles the halves of an update apart.
"""

import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from threading import Event
from typing import Any

import jax
import numpy as np

from myriad import settings
from myriad.counters import Counter
from myriad.hardware import resolve_platform
from myriad.host import collector_paused
from myriad.random import make_key
from myriad.timing import compare
from myriad.training.config import TrainingConfig
from myriad.training.evaluation import Evaluation, Infos, evaluation_key
from myriad.training.loop import LearningLoop, Report, TrainState
from myriad.training.memory import (
    COPIES,
    SAVING_SHARE,
    bytes_of,
    product_bytes,
    restoring_bytes,
)
from myriad.xla import (
    Stated,
    output_fusion,
    result_shapes,
    use_compilation_cache,
    without_compilation_cache,
)

OnReport = Callable[[Report, int], None]
# Pairs of samples of the two halves of an update.
_NUM_PAIRS = 7


class CompiledTraining:
    """The programs of a training: `init`, `run` and `evaluate`, once `compile` has been called.

    The host loop runs it, or `SeedTrainings`, which has the same methods for many seeds.

    Args:
        config: the training.

    Attributes:
        config: the training.
        loop: the updates, as pure functions.
        steps_per_update: steps of all environments together in one update.
        num_updates: updates in the whole training.
        eval_every: updates between two evaluations.
        chunk: updates in one call of `run`. The autotuner changes it.
        state_shapes: the shapes of a `TrainState`, once compiled.
        product_bytes: `product_bytes` of `run`, once compiled.
        compile_s: seconds that tracing and compiling took, or loading what was compiled before.
    """

    # The seed of each training that the host loop runs. The only one needs no name.
    seeds = (None,)

    def __init__(self, config: TrainingConfig):
        self.config = config
        self.steps_per_update = config.num_envs * config.learner.steps_per_update
        self.num_updates = config.num_updates
        self.eval_every = config.updates_per_eval
        self.chunk = config.updates_per_chunk
        learner = config.learner.scheduled(self.num_updates)
        self.loop = LearningLoop(
            config.environment, learner, config.num_envs, num_devices=config.num_devices
        )
        self._evaluation = Evaluation(
            config.environment,
            learner,
            config.eval_rollouts,
            max_steps=config.eval_max_steps,
        )
        self.init: Any = None
        self.run: Any = None
        self.evaluate: Any = None
        self.state_shapes: Any = None
        self.product_bytes = 0
        self.compile_s = 0.0

    def compile(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Compile the three programs side by side. After that nothing compiles while they run.

        With any `compile_mode` but aot, programs compile at their first call instead, or never.

        Args:
            meanwhile: called while the compiler works.
        """
        start = time.perf_counter()
        mode = self.config.compile_mode
        if mode in ("aot", "cached") and (cache := settings.compilation_cache()) is not None:
            use_compilation_cache(cache)
        if mode != "aot":
            meanwhile()
            self._leave_to_first_call(mode)
            return
        with collector_paused():
            init, run = self.loop.jitted()
            evaluate: Any = jax.jit(self._evaluate)
            first = init.trace(make_key(0), self.loop.options)
            state = self.state_shapes = result_shapes(first)
            of_first = self.loop.of_first_device(state)
            running = run.trace(state, np.int32(0), np.bool_(False))  # noqa: FBT003
            self.product_bytes = product_bytes(running)
            # The slowest compilation starts first. While the compiler works, Python is free to
            # trace and lower the next program and to import modules. The collector is paused, since
            # it would take a sixth of tracing and find nothing.
            with ThreadPoolExecutor(3) as pool:
                compiling = [
                    pool.submit(running.lower().compile),
                    pool.submit(first.lower().compile),
                ]
                evaluation = evaluate.trace(of_first.agent, of_first.key, of_first.num_updates)
                fused = output_fusion(lambda: evaluation.jaxpr)
                compiling.append(pool.submit(evaluation.lower().compile, fused))
                meanwhile()
                self.run, self.init, self.evaluate = (program.result() for program in compiling)
        self.compile_s = time.perf_counter() - start

    def _leave_to_first_call(self, mode: str) -> None:
        self.state_shapes = result_shapes(jax.jit(self.loop.init).trace(make_key(0)))
        if mode == "off":
            programs = self.loop.init, self.loop.run, self._evaluate
            programs = tuple(_called_under(jax.disable_jit, each) for each in programs)
        else:
            programs = *self.loop.jitted(), jax.jit(self._evaluate)
        if mode == "jit":
            programs = tuple(_called_under(without_compilation_cache, each) for each in programs)
        self.init, self.run, self.evaluate = programs

    def first_state(self, seed: int | None = None) -> TrainState:
        """Return the state before the first update, by default from the configuration's seed."""
        seed = self.config.seed if seed is None else seed
        return self.init(self.loop.key(seed), self.loop.options)

    def run_window(
        self,
        state: TrainState,
        done: int,
        boundary: int,
        on_report: OnReport,
        interrupted: Event | None = None,
        running: Any = None,
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
            running: which trainings go on; the only one always does.

        Returns:
            the state, and the updates it has done.
        """
        report: Report | None = None
        while done < boundary and not (interrupted is not None and interrupted.is_set()):
            num_updates = min(self.chunk, boundary - done)
            begin = done % self.eval_every == 0
            previous = report
            state, report = self.run(state, np.int32(num_updates), np.bool_(begin))
            if previous is not None:
                on_report(jax.device_get(previous), done)
            done += num_updates
        if report is not None:
            on_report(jax.device_get(report), done)
        return state, done

    def _evaluate(
        self, agent: Any, key: jax.Array, num_updates: Counter
    ) -> tuple[jax.Array, jax.Array, jax.Array, Infos]:
        return self._evaluation.episodes(agent, evaluation_key(key, num_updates))

    def play(self, state: TrainState, running: Any) -> tuple[np.ndarray, np.ndarray, Any]:
        """Return the returns of the evaluation's episodes, and whether each ended, `[1, E]`.

        The last result holds the scalars of `info` at each episode's last step, each `[1, E]`.
        """
        own = self.loop.of_first_device(state)
        results = jax.device_get(self.evaluate(own.agent, own.key, own.num_updates))
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

    def report_of(self, report: Report, index: int) -> Report:
        """Return the report of one training."""
        return report

    def agents(self, state: TrainState) -> Any:
        """Return the learner's state, of many seeds with the axis of seeds first."""
        return self.loop.of_first_device(state).agent

    @property
    def saved_shapes(self) -> Any:
        """The shapes of the state that a checkpoint holds."""
        return self.state_shapes

    def to_save(self, state: TrainState) -> TrainState:
        """Return the arrays that a checkpoint holds."""
        return state

    def everywhere(self, state: TrainState) -> TrainState:
        """Put a state from a checkpoint on the devices that train."""
        return self.loop.everywhere(state)

    def stated_bytes(self, *, saves: bool = False, resumes: bool = False) -> int:
        """Return the most bytes that the programs hold at once, from the compiler's figures.

        Args:
            saves: whether checkpoints are saved.
            resumes: whether it begins with a checkpoint.
        """
        init, run = Stated.of(self.init), Stated.of(self.run)
        is_cpu = resolve_platform() == "cpu"
        # The figures are those of one device, and all devices of a CPU share its memory.
        num_devices = self.loop.num_present if is_cpu else 1
        # The state is donated, so most results of a call reuse the memory of its arguments.
        copied = COPIES * self.product_bytes if is_cpu else 0
        beside = [
            num_devices * (init.arguments + init.temporaries),
            num_devices * (run.beside_arguments + copied),
            Stated.of(self.evaluate).beside_arguments,
        ]
        # On other devices, a checkpoint is made in the host's memory and not where the state lies.
        if is_cpu and saves:
            beside.append(round(SAVING_SHARE * bytes_of(self.state_shapes)))
        if is_cpu and resumes:
            beside.append(restoring_bytes(bytes_of(self.state_shapes)))
        return num_devices * init.results + max(beside)


class Halves:
    """The halves of a training's updates on one device, with their arguments.

    Args:
        config: the training.

    Attributes:
        init: maps a key to a `TrainState`, jitted.
        collect: maps a `TrainState` to the next one and the experience to learn from, jitted.
        learn: maps a `TrainState` and that experience to the next state, jitted. Both donate the
            state, as a training does, since otherwise a replay buffer would be copied.

    Raises:
        InvalidArgumentError: the agent has no `collect` and `learn`.
    """

    def __init__(self, config: TrainingConfig):
        learner = config.learner.scheduled(config.num_updates)
        loop = LearningLoop(config.environment, learner, config.num_envs)
        self.collect: Any = jax.jit(loop.collect, donate_argnums=0)
        self.learn: Any = jax.jit(loop.learn, donate_argnums=0)
        self.init: Any = jax.jit(loop.init)
        self._run: Any = jax.jit(loop.run, donate_argnums=0)
        self._seed = config.seed
        # A replay buffer must be filled before an agent learns from it.
        self._before = learner.first_learning_update(config.num_envs) - 1
        self.shapes()  # Raises now, before anything takes long.

    def shapes(self) -> tuple[Any, Any]:
        """Return the shapes of a state and of the experience that the agent learns from."""
        return result_shapes(self._traced_collect())

    def traced(self) -> list[jax.stages.Traced]:
        """Return the traced programs of `arguments` and then of `learn`."""
        collect = self._traced_collect()
        state, experience = result_shapes(collect)
        fill = [self._run.trace(state, *self._fill())] if self._before else []
        first = self.init.trace(make_key(self._seed))
        return [first, *fill, collect, self.learn.trace(state, experience)]

    def arguments(self) -> tuple[Any, Any]:
        """Return a state in which the agent learns, and the experience that it learns from."""
        state = self.init(make_key(self._seed))
        if self._before:
            state, _ = self._run(state, *self._fill())
        return self.collect(state)

    def _traced_collect(self) -> jax.stages.Traced:
        return self.collect.trace(result_shapes(self.init.trace(make_key(self._seed))))

    def _fill(self) -> tuple[np.int32, np.bool_]:
        """Return the other arguments of `run`, with the updates before the first that learns."""
        return np.int32(self._before), np.bool_(True)  # noqa: FBT003


def collect_share(config: TrainingConfig) -> float:
    """Time collecting and learning in alternation on one device.

    Returns:
        the share of an update that collecting takes, from 0 to 1.

    Raises:
        InvalidArgumentError: the agent has no `collect` and `learn`.
    """
    halves = Halves(config)
    state, experience = halves.arguments()
    timed = compare(
        functools.partial(halves.collect, state),
        functools.partial(halves.learn, state, experience),
        num_pairs=_NUM_PAIRS,
        min_sample_s=0.02,
    )
    return 1 / (1 + timed.b_over_a)


def _called_under(
    context: Callable[[], AbstractContextManager[Any]], function: Callable[..., Any]
) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with context():
            return function(*args)

    return call
