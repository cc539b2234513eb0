"""A training's compiled side: its three programs, and the loop of chunks from one evaluation to the next.

The trainer runs it, and the autotuner times it: what is tuned is what will run.
"""

import contextlib
import dataclasses
import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from myriad import settings
from myriad.training.config import TrainingConfig
from myriad.training.evaluation import Evaluation
from myriad.training.loop import LearningLoop, Report, TrainState, parallel_learner
from myriad.xla import count_cache_hits, use_compilation_cache

# The key of evaluations is folded from the run's with this and the update, away from every key of
# the training.
_EVALUATE = 0x7E57

OnReport = Callable[[Report, int], None]


class CompiledTraining:
    """The programs of a configuration: `init`, `run` and `evaluate`, once `compile` has been called.

    Args:
        config: any configuration; it is resolved here.

    Attributes:
        config: the resolved configuration.
        loop: the updates, as pure functions.
        steps_per_update: steps of all environments together in one update.
        num_updates: updates in the whole training.
        eval_every: updates between two evaluations.
        chunk: updates in one call of `run`.
        state_shapes: the shapes of a `TrainState`, once compiled.
        compile_s: seconds that tracing and compiling took.
        from_cache: whether every program came from the persistent cache.
    """

    def __init__(self, config: TrainingConfig):
        self.config = config = config.resolve()
        env = config.make_env()
        learner = config.make_learner(env)
        num_envs, unit = cast("int", config.num_envs), learner.steps_per_update
        self.steps_per_update = num_envs * unit
        self.num_updates = cast("int", config.steps_per_env) // unit
        self.eval_every = cast("int", config.eval_frequency) // unit
        self.chunk = cast("int", config.scan_chunk_size) // unit
        learner, num_devices = parallel_learner(with_schedule(learner, self.num_updates), num_envs)
        self.loop = LearningLoop(env, learner, num_envs, num_devices=num_devices)
        self._evaluation = Evaluation(
            env, learner, config.eval_rollouts, max_steps=config.eval_max_steps
        )
        self.init: Any = None
        self.run: Any = None
        self.evaluate: Any = None
        self.state_shapes: Any = None
        self.compile_s, self.from_cache = 0.0, False

    def compile(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Compile the three programs side by side, ahead of time: nothing compiles once the training runs.

        Args:
            meanwhile: called while the compiler works.
        """
        start = time.perf_counter()
        if (cache := settings.compilation_cache()) is not None:
            use_compilation_cache(cache)
        init, run = self.loop.jitted()
        evaluate = jax.jit(self._evaluate)
        with count_cache_hits() as hits, ThreadPoolExecutor(3) as pool, _collector_paused():
            first = init.trace(np.int64(0))
            state = self.state_shapes = jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), first.out_info
            )
            # The longest goes first; the compiler leaves Python free to trace the next one, and to
            # import.
            compiling = [
                pool.submit(run.lower(state, np.int32(0), np.bool_(False)).compile),  # noqa: FBT003
                pool.submit(first.lower().compile),
                pool.submit(evaluate.lower(state.agent, state.key, state.num_updates).compile),
            ]
            meanwhile()
            self.run, self.init, self.evaluate = (program.result() for program in compiling)
        self.compile_s, self.from_cache = time.perf_counter() - start, hits.count >= len(compiling)

    def first_state(self) -> TrainState:
        """Return the state before the first update."""
        return self.init(np.int64(self.config.seed))

    def next_boundary(self, done: int) -> int:
        """Return the update after which the next evaluation comes."""
        return min(self.num_updates, (done // self.eval_every + 1) * self.eval_every)

    def run_window(
        self,
        state: TrainState,
        done: int,
        boundary: int,
        on_report: OnReport,
        interrupted: threading.Event | None = None,
    ) -> tuple[TrainState, int]:
        """Run chunks up to an update, one ahead of the report that is read; stop early once `interrupted`.

        Args:
            state: after `done` updates; it is donated.
            done: updates done.
            boundary: the update to stop at, no later than the next evaluation's.
            on_report: called with each chunk's report, fetched, and the updates done by then.
            interrupted: looked at between chunks.

        Returns:
            the state, and the updates it has done.
        """
        report: Report | None = None
        while done < boundary and not (interrupted is not None and interrupted.is_set()):
            num_updates, begin = min(self.chunk, boundary - done), done % self.eval_every == 0
            previous, before = report, done
            state, report = self.run(state, np.int32(num_updates), np.bool_(begin))
            done += num_updates
            if previous is not None:
                on_report(jax.device_get(previous), before)
        if report is not None:
            on_report(jax.device_get(report), done)
        return state, done

    def _evaluate(
        self, agent: Any, key: jax.Array, num_updates: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        key = jax.random.fold_in(jax.random.fold_in(key, _EVALUATE), num_updates)
        return self._evaluation.returns(agent, key)


def with_schedule(learner: Any, num_updates: int) -> Any:
    """Return the learner with its schedules stretched over `num_updates`, where it has any and none was chosen."""
    if getattr(learner, "anneal_updates", num_updates) is None:
        return dataclasses.replace(learner, anneal_updates=num_updates)
    return learner


def compute_dtype() -> str:
    """Return the float type that arrays have where nobody says: float32, or float64 under `jax_enable_x64`."""
    return str(jnp.result_type(float))


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Spare tracing the collector, which takes a sixth of its time to find nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
