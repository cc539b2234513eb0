"""The host's side of a training: compile once, call chunk after chunk, evaluate at boundaries, save, report."""

import contextlib
import dataclasses
import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from myriad import hardware
from myriad.errors import DivergedError
from myriad.training.checkpoint import Checkpoints
from myriad.training.config import TrainingConfig
from myriad.training.history import History
from myriad.training.loop import PARTS, Report, TrainState
from myriad.training.programs import CompiledTraining, compute_dtype
from myriad.training.progress import Progress
from myriad.training.run_folder import RunFolder
from myriad.training.trackers import make_trackers


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
        training: a row per evaluation boundary: update, steps, episodes, mean return and the means
            of the metrics.
        evaluations: a row per evaluation: update, steps, mean return and its standard deviation
            over the episodes.
        config: the resolved configuration.
        timings: how long it took.
        run_folder: where all of it is written.
        stopped: `end`, or `target` where the target return was reached.
    """

    agent_state: Any
    training: History
    evaluations: History
    config: TrainingConfig
    timings: Timings
    run_folder: Path
    stopped: str


class Trainer:
    """A configuration, its programs and its run folder.

    Args:
        config: any configuration; it is resolved here.
        folder: the run's folder, with a run to resume in it or without.
        quiet: show no progress.
    """

    def __init__(self, config: TrainingConfig, folder: RunFolder, *, quiet: bool = False):
        self.programs = CompiledTraining(config)
        self.config = self.programs.config
        self.folder, self._checkpoints = folder, Checkpoints(folder.checkpoints)
        self._progress = Progress(
            self.programs.num_updates * self.programs.steps_per_update, quiet=quiet
        )
        self._train_s = self._evaluate_s = 0.0
        self._report: Any = None

    def run(self) -> TrainingResults:
        """Train to the end, from the newest checkpoint where there is one.

        Raises:
            DivergedError: a NaN came up; the run's folder holds the last good checkpoint.
            KeyboardInterrupt: the user interrupted it; a checkpoint was saved first.
        """
        start = time.perf_counter()
        with contextlib.ExitStack() as opened:
            opened.callback(self._progress.close)
            self._compile()
            trackers = make_trackers(
                self.config.log_to, self.folder, self.config.model_dump(mode="json")
            )
            for tracker in trackers:
                opened.callback(tracker.close)
            state, done, rows = self._first_state()
            state, stopped = self._train(state, done, rows, trackers)
        steps = (int(state.num_updates) - done) * self.programs.steps_per_update
        return TrainingResults(
            self.programs.loop.on_one_device(state.agent),
            History([{k: v for k, v in row.items() if not k.startswith("eval_")} for row in rows]),
            History([_evaluation_row(row) for row in rows]),
            self.config,
            self._timings(steps, time.perf_counter() - start),
            self.folder.path,
            stopped,
        )

    def _timings(self, steps: int, total_s: float) -> Timings:
        rate = steps / self._train_s if self._train_s else math.nan
        programs = self.programs
        return Timings(
            programs.compile_s,
            self._train_s,
            self._evaluate_s,
            total_s,
            rate,
            from_cache=programs.from_cache,
        )

    def _compile(self) -> None:
        self.programs.compile(meanwhile=_import_orbax)
        how = "loaded from the cache" if self.programs.from_cache else "compiled"
        self._progress.say(
            f"{self.config.agent} on {self.config.env}, {self.config.num_envs:,} environments: "
            f"3 programs {how} in {self.programs.compile_s:.1f} s"
        )

    def _first_state(self) -> tuple[TrainState, int, list[dict[str, Any]]]:
        done = self._checkpoints.latest()
        if done is None:
            return self.programs.first_state(), 0, self.folder.rows(up_to_update=0)
        state = self._checkpoints.restore(done, self.programs.state_shapes)
        return self.programs.loop.everywhere(state), done, self.folder.rows(up_to_update=done)

    def _train(
        self, state: TrainState, done: int, rows: list[dict[str, Any]], trackers: list[Any]
    ) -> tuple[TrainState, str]:
        saved, saved_at, score = done, time.monotonic(), None
        with _interrupt_noted() as interrupted:
            while done < self.programs.num_updates and not self._reached(rows):
                boundary = self.programs.next_boundary(done)
                state, done = self._run_window(state, done, boundary, score, interrupted)
                if done == boundary:
                    rows.append(self._row(state, done))
                    score = rows[-1]["eval_return"]
                    self.folder.append(rows[-1])
                    for tracker in trackers:
                        tracker.log(rows[-1], done * self.programs.steps_per_update)
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
        state: TrainState,
        done: int,
        boundary: int,
        score: float | None,
        interrupted: threading.Event,
    ) -> tuple[TrainState, int]:
        """Run up to the next evaluation, or to an interrupt, watching what comes back."""
        start, first, steps = time.perf_counter(), done, self.programs.steps_per_update

        def watch(report: Report, done: int) -> None:
            self._report = self._watch(report, done)
            rate = (done - first) * steps / (time.perf_counter() - start)
            self._progress.update(done * steps, rate, score)

        state, done = self.programs.run_window(state, done, boundary, watch, interrupted)
        self._train_s += time.perf_counter() - start
        return state, done

    def _watch(self, report: Report, done: int) -> Report:
        """Stop the run at a NaN."""
        bad = [part for part, is_nan in zip(PARTS, report.is_nan, strict=True) if is_nan]
        if bad:
            metrics = [
                name for name, value in report.metric_sums.items() if not math.isfinite(value)
            ]
            what = f"{', '.join(bad)} ({', '.join(metrics)})" if metrics else ", ".join(bad)
            newest = self._checkpoints.latest()
            kept = (
                "no checkpoint was saved before"
                if newest is None
                else f"the checkpoint of update {newest} is kept"
            )
            raise DivergedError(f"NaN in {what} by update {done}; {kept} in {self.folder.path}.")
        return report

    def _row(self, state: TrainState, done: int) -> dict[str, Any]:
        """Evaluate, and put the window's figures in one row."""
        start = time.perf_counter()
        state = self.programs.loop.on_one_device(state)
        returns, ended = jax.device_get(
            self.programs.evaluate(state.agent, state.key, state.num_updates)
        )
        self._evaluate_s += time.perf_counter() - start
        window = done % self.programs.eval_every or self.programs.eval_every
        episodes = int(self._report.num_episodes)
        row: dict[str, Any] = {
            "update": done,
            "steps": done * self.programs.steps_per_update,
            "episodes": episodes,
        }
        if episodes:
            row["return"] = float(self._report.return_sum) / episodes
        row |= {name: float(total) / window for name, total in self._report.metric_sums.items()}
        mean, std = (float(f(returns, dtype=np.float64)) for f in (np.mean, np.std))
        row |= {"eval_return": mean, "eval_return_std": std, "eval_unfinished": int((~ended).sum())}
        rate = done * self.programs.steps_per_update / self._train_s if self._train_s else 0.0
        self._progress.update(row["steps"], rate, mean)
        return row

    def _reached(self, rows: list[dict[str, Any]]) -> bool:
        target = self.config.target_return
        return target is not None and bool(rows) and rows[-1]["eval_return"] >= target


def environment_record() -> dict[str, Any]:
    """Return what a run's figures depend on beside its configuration: hardware, versions, precision."""
    return {
        "hardware": dataclasses.asdict(hardware.fingerprint()),
        "versions": hardware.package_versions() | {"python": sys.version.split()[0]},
        "matmul_precision": jax.config.values["jax_default_matmul_precision"] or "default",
        "compute_dtype": compute_dtype(),
    }


def _evaluation_row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "update": row["update"],
        "steps": row["steps"],
        **{
            name.removeprefix("eval_"): value
            for name, value in row.items()
            if name.startswith("eval_")
        },
    }


def _import_orbax() -> None:
    import orbax.checkpoint  # noqa: F401  (only to have it loaded)


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
