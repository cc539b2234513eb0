"""A training's three compiled programs, and the loop over chunks between two evaluations.

The trainer runs this loop and the autotuner times it, so the autotuner measures what will run. No
clock can run inside a compiled chunk, so `Halves` compiles the halves of an update apart.
"""

import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Protocol

import jax
import numpy as np

from myriad import settings
from myriad.counters import Counter
from myriad.host import collector_paused
from myriad.random import make_key
from myriad.timing import compare
from myriad.training.config import TrainingConfig
from myriad.training.evaluation import Evaluation, Infos, evaluation_key
from myriad.training.loop import LearningLoop, Report, TrainState
from myriad.xla import (
    equations,
    output_fusion,
    result_shapes,
    use_compilation_cache,
    without_compilation_cache,
)

OnReport = Callable[[Report, int], None]
# Pairs of samples of the two halves of an update.
_NUM_PAIRS = 7


class Flag(Protocol):
    """A flag that is checked between chunks, such as a `threading.Event`."""

    def is_set(self) -> bool:
        """Return whether to stop."""
        ...


def product_bytes(traced: jax.stages.Traced) -> int:
    """Return the bytes of the largest matrix that a program multiplies."""
    products = (
        each for each in equations(traced.jaxpr.jaxpr) if str(each.primitive) == "dot_general"
    )
    matrices: Any = [operand.aval for product in products for operand in product.invars]
    return max((x.size * x.dtype.itemsize for x in matrices), default=0)


class CompiledTraining:
    """The programs of a training: `init`, `run` and `evaluate`, once `compile` has been called.

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
            evaluation = evaluate.trace(of_first.agent, of_first.key, of_first.num_updates)
            running = run.trace(state, np.int32(0), np.bool_(False))  # noqa: FBT003
            self.product_bytes = product_bytes(running)
            # The slowest compilation starts first. While the compiler works, Python is free to
            # lower the next program and to import modules. The collector is paused, since it would
            # take a sixth of tracing and find nothing.
            with ThreadPoolExecutor(3) as pool:
                compiling = [
                    pool.submit(running.lower().compile),
                    pool.submit(first.lower().compile),
                    pool.submit(
                        evaluation.lower().compile, output_fusion(lambda: evaluation.jaxpr)
                    ),
                ]
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
        interrupted: Flag | None = None,
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
