"""The host's side of a training: compile once, call chunk after chunk, evaluate at boundaries, save, report."""

import contextlib
import dataclasses
import gc
import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from myriad import hardware, settings
from myriad.checkpoint import Checkpoints
from myriad.config import TrainingConfig
from myriad.errors import DivergedError
from myriad.evaluation import Evaluation
from myriad.learning import PARTS, LearningLoop, Report, TrainState, parallel_learner
from myriad.program import count_cache_hits, use_compilation_cache
from myriad.trackers import make_trackers
from myriad.tracking import Progress, RunFolder, Table

# The key of evaluations is folded from the run's with this and the update, away from every key of the training.
_EVALUATE = 0x7E57


@dataclasses.dataclass(frozen=True)
class Timings:
    """Seconds of wall time, and environment steps per second of training, all environments together."""

    compile_s: float
    train_s: float
    evaluate_s: float
    total_s: float
    steps_per_s: float
    from_cache: bool


@dataclasses.dataclass(frozen=True)
class TrainingResults:
    """What a training came to.

    Attributes:
        agent_state: the learner's state, its parameters within.
        training: a row per evaluation boundary: update, steps, episodes, mean return and the means of the metrics.
        evaluations: a row per evaluation: update, steps, mean return and its standard deviation over the episodes.
        config: the resolved configuration.
        timings: how long it took.
        run_folder: where all of it is written.
        stopped: `end`, or `target` where the target return was reached.
    """

    agent_state: Any
    training: Table
    evaluations: Table
    config: TrainingConfig
    timings: Timings
    run_folder: Path
    stopped: str


@dataclasses.dataclass
class _Programs:
    init: Any
    run: Any
    evaluate: Any
    compile_s: float
    from_cache: bool


class Trainer:
    """A configuration, its programs and its run folder.

    Args:
        config: any configuration; it is resolved here.
        folder: the run's folder, with a run to resume in it or without.
        quiet: show no progress.
    """

    def __init__(self, config: TrainingConfig, folder: RunFolder, *, quiet: bool = False):
        self.config = config = config.resolve()
        self.folder, self._checkpoints = folder, Checkpoints(folder.checkpoints)
        env = config.make_env()
        learner = config.make_learner(env)
        num_envs, unit = cast("int", config.num_envs), learner.steps_per_update
        self._steps_per_update = num_envs * unit
        self._num_updates = cast("int", config.steps_per_env) // unit
        self._eval_every = cast("int", config.eval_frequency) // unit
        self._chunk = cast("int", config.scan_chunk_size) // unit
        learner, num_devices = parallel_learner(with_schedule(learner, self._num_updates), num_envs)
        self._loop = LearningLoop(env, learner, num_envs, num_devices=num_devices)
        self._evaluation = Evaluation(env, learner, config.eval_rollouts, max_steps=config.eval_max_steps)
        self._progress = Progress(self._num_updates * self._steps_per_update, quiet=quiet)
        self._train_s = self._evaluate_s = 0.0
        self._report: Any = None
        self._shapes: Any = None

    def run(self) -> TrainingResults:
        """Train to the end, from the newest checkpoint where there is one.

        Raises:
            DivergedError: a NaN came up; the run's folder holds the last good checkpoint.
            KeyboardInterrupt: the user interrupted it; a checkpoint was saved first.
        """
        start = time.perf_counter()
        programs = self._compile()
        trackers = make_trackers(self.config.log_to, self.folder, self.config.model_dump(mode="json"))
        state, done, rows = self._first_state(programs)
        try:
            state, stopped = self._train(programs, state, done, rows, trackers)
        finally:
            self._progress.close()
            for tracker in trackers:
                tracker.close()
        steps = (int(state.num_updates) - done) * self._steps_per_update
        total_s = time.perf_counter() - start
        rate = steps / self._train_s if self._train_s else math.nan
        timings = Timings(
            programs.compile_s, self._train_s, self._evaluate_s, total_s, rate, from_cache=programs.from_cache
        )
        return TrainingResults(
            self._loop.on_one_device(state.agent),
            Table([{k: v for k, v in row.items() if not k.startswith("eval_")} for row in rows]),
            Table([_evaluation_row(row) for row in rows]),
            self.config,
            timings,
            self.folder.path,
            stopped,
        )

    def _compile(self) -> _Programs:
        """Compile the three programs side by side, ahead of time: nothing compiles once the training runs."""
        start = time.perf_counter()
        if (cache := settings.compilation_cache()) is not None:
            use_compilation_cache(cache)
        init, run = self._loop.jitted()
        evaluate = jax.jit(self._evaluate)
        with count_cache_hits() as hits, ThreadPoolExecutor(3) as pool, _collector_paused():
            first = init.trace(np.int64(0))
            state = self._shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), first.out_info)
            # The longest goes first; the compiler leaves Python free to trace the next one, and to import.
            compiling = [
                pool.submit(run.lower(state, np.int32(0), np.bool_(False)).compile),  # noqa: FBT003
                pool.submit(first.lower().compile),
                pool.submit(evaluate.lower(state.agent, state.key, state.num_updates).compile),
            ]
            _import_orbax()
            run, init, evaluate = (program.result() for program in compiling)
        compile_s, from_cache = time.perf_counter() - start, hits.count >= len(compiling)
        how = "loaded from the cache" if from_cache else "compiled"
        self._progress.say(
            f"{self.config.agent} on {self.config.env}, {self.config.num_envs:,} environments: "
            f"{len(compiling)} programs {how} in {compile_s:.1f} s"
        )
        return _Programs(init, run, evaluate, compile_s, from_cache)

    def _evaluate(self, agent: Any, key: jax.Array, num_updates: jax.Array) -> tuple[jax.Array, jax.Array]:
        key = jax.random.fold_in(jax.random.fold_in(key, _EVALUATE), num_updates)
        return self._evaluation.returns(agent, key)

    def _first_state(self, programs: _Programs) -> tuple[TrainState, int, list[dict[str, Any]]]:
        done = self._checkpoints.latest()
        if done is None:
            return programs.init(np.int64(self.config.seed)), 0, self.folder.rows(up_to_update=0)
        state = self._checkpoints.restore(done, self._shapes)
        return self._loop.everywhere(state), done, self.folder.rows(up_to_update=done)

    def _train(
        self, programs: _Programs, state: TrainState, done: int, rows: list[dict[str, Any]], trackers: list[Any]
    ) -> tuple[TrainState, str]:
        saved, saved_at, score = done, time.monotonic(), None
        with _interrupt_noted() as interrupted:
            while done < self._num_updates and not self._reached(rows):
                boundary = min(self._num_updates, (done // self._eval_every + 1) * self._eval_every)
                state, done = self._run_window(programs, state, done, boundary, score, interrupted)
                if done == boundary:
                    rows.append(self._row(programs, state, done))
                    score = rows[-1]["eval_return"]
                    self.folder.append(rows[-1])
                    for tracker in trackers:
                        tracker.log(rows[-1], done * self._steps_per_update)
                due = time.monotonic() - saved_at >= self.config.checkpoint_every_s
                if interrupted.is_set() or due:
                    self._checkpoints.save(done, state)
                    saved, saved_at = done, time.monotonic()
                if interrupted.is_set():
                    raise KeyboardInterrupt
            if saved < done:
                self._checkpoints.save(done, state)
        return state, "target" if self._reached(rows) else "end"

    def _run_window(
        self,
        programs: _Programs,
        state: TrainState,
        done: int,
        boundary: int,
        score: float | None,
        interrupted: threading.Event,
    ) -> tuple[TrainState, int]:
        """Run chunks up to the boundary, one ahead of the report that is read; stop early at an interrupt."""
        start, first = time.perf_counter(), done
        report: Report | None = None
        while done < boundary and not interrupted.is_set():
            num_updates = min(self._chunk, boundary - done)
            begin = done % self._eval_every == 0
            previous, before = report, done
            state, report = programs.run(state, np.int32(num_updates), np.bool_(begin))
            done += num_updates
            if previous is not None:
                self._watch(previous, before)
                rate = (before - first) * self._steps_per_update / (time.perf_counter() - start)
                self._progress.update(before * self._steps_per_update, rate, score)
        if report is not None:
            self._report = self._watch(report, done)
        self._train_s += time.perf_counter() - start
        return state, done

    def _watch(self, report: Report, done: int) -> Report:
        """Fetch a report, and stop the run at a NaN."""
        report = jax.device_get(report)
        bad = [part for part, is_nan in zip(PARTS, report.is_nan, strict=True) if is_nan]
        if bad:
            metrics = [name for name, value in report.metric_sums.items() if not math.isfinite(value)]
            what = f"{', '.join(bad)} ({', '.join(metrics)})" if metrics else ", ".join(bad)
            newest = self._checkpoints.latest()
            kept = "no checkpoint was saved before" if newest is None else f"the checkpoint of update {newest} is kept"
            raise DivergedError(f"NaN in {what} by update {done}; {kept} in {self.folder.path}.")
        return report

    def _row(self, programs: _Programs, state: TrainState, done: int) -> dict[str, Any]:
        """Evaluate, and put the window's figures in one row."""
        start = time.perf_counter()
        state = self._loop.on_one_device(state)
        returns, ended = jax.device_get(programs.evaluate(state.agent, state.key, state.num_updates))
        self._evaluate_s += time.perf_counter() - start
        window = done % self._eval_every or self._eval_every
        episodes = int(self._report.num_episodes)
        row: dict[str, Any] = {"update": done, "steps": done * self._steps_per_update, "episodes": episodes}
        if episodes:
            row["return"] = float(self._report.return_sum) / episodes
        row |= {name: float(total) / window for name, total in self._report.metric_sums.items()}
        mean, std = (float(f(returns, dtype=np.float64)) for f in (np.mean, np.std))
        row |= {"eval_return": mean, "eval_return_std": std, "eval_unfinished": int((~ended).sum())}
        rate = done * self._steps_per_update / self._train_s if self._train_s else 0.0
        self._progress.update(row["steps"], rate, mean)
        return row

    def _reached(self, rows: list[dict[str, Any]]) -> bool:
        target = self.config.target_return
        return target is not None and bool(rows) and rows[-1]["eval_return"] >= target


def with_schedule(learner: Any, num_updates: int) -> Any:
    """Return the learner with its schedules stretched over `num_updates`, where it has any and none was chosen."""
    if getattr(learner, "anneal_updates", num_updates) is None:
        return dataclasses.replace(learner, anneal_updates=num_updates)
    return learner


def environment_record() -> dict[str, Any]:
    """Return what a run's figures depend on beside its configuration: hardware, versions, precision."""
    return {
        "hardware": dataclasses.asdict(hardware.fingerprint()),
        "versions": hardware.package_versions() | {"python": sys.version.split()[0]},
        "matmul_precision": jax.config.values["jax_default_matmul_precision"] or "default",
        "compute_dtype": str(jnp.result_type(float)),
    }


def _evaluation_row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "update": row["update"],
        "steps": row["steps"],
        **{name.removeprefix("eval_"): value for name, value in row.items() if name.startswith("eval_")},
    }


def _import_orbax() -> None:
    import orbax.checkpoint  # noqa: F401  (only to have it loaded)


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


@contextlib.contextmanager
def _interrupt_noted() -> Iterator[threading.Event]:
    """Turn the first interrupt into a flag, so that no chunk is cut in two; the second one ends the process."""
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield noted  # only the main thread may set handlers, and only it is interrupted
        return
    previous = signal.getsignal(signal.SIGINT)

    def note(*_: Any) -> None:
        noted.set()
        signal.signal(signal.SIGINT, previous)

    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, previous)
