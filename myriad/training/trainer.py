"""The host loop of a training: compile once, call chunk after chunk, evaluate, save and report.

`myriad.training.seeds` has it run many seeds side by side.
"""

import contextlib
import dataclasses
import math
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from myriad import distributed, hardware
from myriad.errors import DivergedError
from myriad.files import say
from myriad.host import release_freed_memory
from myriad.timing.intervals import mean_interval
from myriad.training.active import ActiveSetting, in_short
from myriad.training.checkpoint import Checkpoints, import_orbax, newest_kept
from myriad.training.config import TrainingConfig
from myriad.training.fits import compile_within_memory, shortage_named
from myriad.training.interrupts import how_to_go_on, interrupt_noted
from myriad.training.logging.films import Films
from myriad.training.logging.history import History
from myriad.training.logging.monitor import Monitor, summary
from myriad.training.logging.profile import Profile
from myriad.training.logging.progress import Progress
from myriad.training.logging.run_folder import RunFolder, lines_of, rows_of
from myriad.training.logging.trackers import Tracker, make_trackers
from myriad.training.loop import Report
from myriad.training.programs import Flag, OnReport
from myriad.training.results import SeedResults, Timings, TrainingResults
from myriad.training.rows import bad_parts, evaluation_row, row_of_window, training_row
from myriad.training.short import warn_if_short
from myriad.xla import default_dtype, matmul_precision

Rows = list[dict[str, Any]]


class Trainings:
    """What the host loop runs: a training, or one for each of `M` seeds. Here it is a single one.

    Trainings that have not stopped have done the same number of updates.

    Args:
        programs: the programs, not compiled yet.
        seeds: the seed of each training, `[M]`, or None for the only one.
    """

    def __init__(self, programs: Any, seeds: Sequence[Any] = (None,)):
        self.programs = programs
        self.seeds = seeds

    @property
    def devices(self) -> str:
        """The devices that train, such as "2 CPU devices"."""
        return self.programs.loop.devices

    @property
    def described(self) -> str:
        """How many environments there are, and on what, for the progress."""
        shares = self.programs.loop.num_devices
        on = f" in {shares} shares on {self.devices}" if shares > 1 else ""
        return f"{self.programs.config.num_envs:,} environments{on}"

    def compile(self, *, resumes: bool, meanwhile: Callable[[], None]) -> None:
        """Compile the programs, unless they don't fit into memory."""
        compile_within_memory(self.programs, saves=True, resumes=resumes, meanwhile=meanwhile)

    def first_state(self) -> Any:
        """Return the state before the first update."""
        return self.programs.first_state()

    def restored(self, checkpoints: Checkpoints, done: int) -> Any:
        """Return the state that a checkpoint holds."""
        loop = self.programs.loop
        # A single process reads the whole state. Of several, each reads the part that it will hold.
        placement = loop.placement if distributed.count() > 1 else None
        state = checkpoints.restore(done, self.programs.state_shapes, placement)
        release_freed_memory()
        return loop.everywhere(state) if placement is None else state

    def to_save(self, state: Any) -> Any:
        """Return the arrays that a checkpoint holds."""
        return self.programs.loop.on_one_device(state)

    def run_window(
        self,
        state: Any,
        done: int,
        boundary: int,
        running: np.ndarray,
        on_report: OnReport,
        interrupted: Flag,
    ) -> tuple[Any, int]:
        """Run the trainings in `running`, `[M]`, as `CompiledTraining.run_window` does."""
        return self.programs.run_window(state, done, boundary, on_report, interrupted)

    def report_of(self, report: Report, index: int) -> Report:
        """Return the report of one training."""
        return report

    def evaluate(self, state: Any, running: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the returns of the evaluation's episodes, and whether each ended, `[M, E]`."""
        own = self.programs.loop.of_first_device(state)
        results = self.programs.evaluate(own.agent, own.key, own.num_updates)
        returns, ended, _ = jax.device_get(results)
        return returns[None], ended[None]

    def agents(self, state: Any) -> Any:
        """Return the learner's state, of many seeds with the axis of seeds first."""
        return self.programs.loop.of_first_device(state).agent


class Trainer:
    """A training, or many seeds of it, and the run folder.

    Args:
        trainings: what to train.
        folder: the run's folder. A run in it is resumed from its newest checkpoint.
        quiet: show no progress.
        profile_chunks: chunks to trace into the folder.
        settings: the active settings, for the progress and the trackers.

    Attributes:
        has_trained: whether an update was done, now or before the run was resumed.
    """

    def __init__(
        self,
        trainings: Trainings,
        folder: RunFolder,
        *,
        quiet: bool = False,
        profile_chunks: int = 0,
        settings: Sequence[ActiveSetting] = (),
    ):
        self.trainings = trainings
        self.config = trainings.programs.config
        self.folder = folder
        self.has_trained = False
        self._settings = settings
        self._checkpoints = Checkpoints(folder.checkpoints)
        # The devices that the run has trained on, those of this process last.
        self._devices = [trainings.devices]
        self._monitor = Monitor()
        self._num_updates = trainings.programs.num_updates
        self._steps_per_update = trainings.programs.steps_per_update
        self._eval_every = trainings.programs.eval_every
        self._total_steps = len(trainings.seeds) * self._num_updates * self._steps_per_update
        self._compile_s = 0.0
        self._progress = Progress(self._total_steps, quiet=quiet or not distributed.is_first())
        self._profile = Profile(folder, profile_chunks, say)
        self._films = Films(self.config, folder.path / "films")
        self._trackers: list[Tracker] = []
        # Each training's newest row, and whether it goes on.
        self._newest: dict[int | None, dict[str, Any]] = {}
        self._running = np.ones(len(trainings.seeds), bool)
        self._report: Any = None

    def run(self) -> TrainingResults:
        """Train to the end, from the newest checkpoint if there is one.

        Raises:
            InvalidArgumentError: it doesn't fit into memory.
            DivergedError: there is a NaN, or an infinity where the agent can't learn from one. The
                run's folder holds the last good checkpoint.
            KeyboardInterrupt: you interrupted it. A checkpoint was saved first. SIGTERM also saves
                one and then ends the process, unless you have a handler for it.
        """
        start = time.perf_counter()
        with contextlib.ExitStack() as opened:
            opened.callback(self._progress.close)
            opened.callback(self._profile.close)
            opened.enter_context(shortage_named())
            self._note_devices()
            self._compile()
            # Begin together, since JAX gives up on a process whose first message is 30 s late.
            distributed.broadcast(None)
            described = dataclasses.asdict(self.config)
            described["settings"] = [dataclasses.asdict(each) for each in self._settings]
            log_to = self.config.log_to if distributed.is_first() else []
            self._trackers = make_trackers(log_to, self.folder, described)
            for tracker in self._trackers:
                opened.callback(tracker.close)
            state, done, rows = self._first_state()
            if not done and distributed.is_first():
                warn_if_short(self.config, stacklevel=4)
            state, done = self._train(state, done, rows)
            agents = self.trainings.agents(state)
        total_s = time.perf_counter() - start
        results = TrainingResults(
            agents,
            History([training_row(row) for row in rows]),
            History([evaluation_row(row) for row in rows]),
            self.config,
            Timings.of(self._monitor, self._compile_s, self._steps_done(done), total_s),
            self.folder.path,
            "end" if self._running.any() else "target",
        )
        if self.config.seeds is None:
            return results
        return SeedResults(
            **vars(results),
            seeds=tuple(self.config.seeds),
            final_returns=self._returns(),
            reached_target=tuple(np.logical_not(self._running).tolist()),
        )

    def _note_devices(self) -> None:
        """Warn that a run continues on other devices, before anything takes long."""
        now = self._devices[-1]
        done = self._checkpoints.latest()
        before = distributed.broadcast([] if done is None else self._checkpoints.devices(done))
        others = [devices for devices in before if devices != now]
        platform = now.split()[1]
        agrees = "differs by rounding"
        if all(platform in devices for devices in others):
            agrees = "gives the same results within 1e-5 but not the same bits"
        is_news = others and done != self._num_updates
        if is_news and distributed.is_first():
            warnings.warn(
                f"this run trained on {' and '.join(others)} and continues on {now}: an update "
                f"{agrees}, so a long training ends differently, as if by another seed.",
                UserWarning,
                stacklevel=4,
            )
        self._devices = [*others, now]

    def _compile(self) -> None:
        what = f"{self.config.agent} on {self.config.env}"
        how = {"off": "nothing is compiled"}.get(self.config.compile_mode, "compiles as it goes")
        if self.config.compile_mode == "aot":
            self._progress.say(f"{what}: compiling ...")
        resumes = self._checkpoints.latest() is not None
        start = time.perf_counter()
        self.trainings.compile(resumes=resumes, meanwhile=import_orbax)
        if self.config.compile_mode == "aot":
            self._compile_s = time.perf_counter() - start
            how = f"ready in {self._compile_s:.1f} s"
        self._progress.say(f"{what}, {self.trainings.described}: {how}")
        if self._settings:
            self._progress.say(in_short(self._settings))

    def _first_state(self) -> tuple[Any, int, Rows]:
        done = self._checkpoints.latest()
        if done is None:
            self.folder.go_back_to([])
            return self.trainings.first_state(), 0, []
        self.has_trained = True
        state = self.trainings.restored(self._checkpoints, done)
        release_freed_memory()
        rows = rows_of(distributed.broadcast(distributed.on_first(lambda: self._rows_until(done))))
        self._newest = {row.get("seed"): row for row in rows}
        self._stop_at_target()
        return state, done, rows

    def _rows_until(self, done: int) -> str:
        """Return the lines up to a checkpoint, and cut the run's `metrics.jsonl` back to them."""
        lines = self._checkpoints.rows(done)
        if self.folder.go_back_to(rows_of(lines)):
            self._progress.say(f"{self.folder.metrics} is made again from checkpoint {done}")
        return lines

    def _save(self, done: int, state: Any, rows: Rows) -> None:
        with self._monitor.timed("save"):
            self.folder.flush()
            saved = self.trainings.to_save(state)
            self._checkpoints.save(done, saved, lines_of(rows), self._devices)
            del saved
            # Each save leaves a freed copy of the whole compressed state in the allocator.
            release_freed_memory()

    def _train(self, state: Any, done: int, rows: Rows) -> tuple[Any, int]:
        """Train window by window, save when it is time to, and stop at the end of the run."""
        saved = self._checkpoints.latest()
        saved_at = time.monotonic()
        self._monitor.restart(self._steps_done(done))
        self._progress.begin(self._steps_done(done))
        self._profile.start()
        with interrupt_noted() as interrupted:
            while done < self._num_updates and self._running.any():
                window_end = (done // self._eval_every + 1) * self._eval_every
                boundary = min(self._num_updates, window_end)
                state, done = self._run_window(state, done, boundary, interrupted)
                if done == boundary:
                    with self._monitor.timed("evaluate"):
                        new = self._evaluate(state, done)
                    rows += new
                    self._log(new, state, done)
                due = distributed.broadcast(
                    time.monotonic() - saved_at >= self.config.checkpoint_every_s
                )
                if done != saved and (interrupted.is_set() or due):
                    self._save(done, state, rows)
                    saved = done
                    saved_at = time.monotonic()
                if interrupted.is_set():
                    self._progress.close()
                    steps = self._steps_done(done)
                    interrupted.end(how_to_go_on(steps, self._total_steps, self.folder.path))
            if done != saved:
                self._save(done, state, rows)
        return state, done

    def _run_window(
        self, state: Any, done: int, boundary: int, interrupted: Flag
    ) -> tuple[Any, int]:
        """Run up to the next evaluation or an interrupt, and check every report."""
        start = time.perf_counter()
        first = self._steps_done(done)
        score = self._score()

        def watch(report: Report, done: int) -> None:
            self.has_trained = True
            self._report = report
            self._require_numbers(report, done)
            with self._monitor.timed("log"):
                self._profile.count()
            steps = self._steps_done(done)
            self._progress.update(steps, (steps - first) / (time.perf_counter() - start), score)

        with self._monitor.timed("train"):
            return self.trainings.run_window(
                state, done, boundary, self._running, watch, interrupted
            )

    def _require_numbers(self, report: Report, done: int) -> None:
        """Stop the run if a report contains a NaN or an infinity."""
        for index in np.flatnonzero(self._running).tolist():
            what = bad_parts(self.trainings.report_of(report, index))
            if what is not None:
                seed = self.trainings.seeds[index]
                whose = "" if seed is None else f" of seed {seed}"
                kept = newest_kept(self._checkpoints)
                raise DivergedError(
                    f"{what} by update {done}{whose}; {kept} in {self.folder.path}."
                )

    def _evaluate(self, state: Any, done: int) -> Rows:
        """Evaluate, and return the figures of the window and of the evaluation as rows."""
        returns, ended = self.trainings.evaluate(state, self._running)
        rows = []
        for index in np.flatnonzero(self._running).tolist():
            report = self.trainings.report_of(self._report, index)
            row = row_of_window(self.trainings.programs, done, report, returns[index], ended[index])
            if (seed := self.trainings.seeds[index]) is not None:
                row = {"seed": seed} | row
            rows.append(row)
            self._newest[seed] = row
        self._stop_at_target()
        steps = self._steps_done(done)
        left = (self._num_updates - done) * self._steps_per_update
        self._progress.shorten(steps + int(self._running.sum()) * left)
        self._progress.update(steps, self._monitor.rate(steps), self._score())
        return rows

    def _log(self, new: Rows, state: Any, done: int) -> None:
        """Write the newest rows to the run's folder and the trackers, and do what else is due."""
        evaluation = -(-done // self._eval_every)
        steps = self._steps_done(done)
        with self._monitor.timed("log"):
            for row in new:
                self.folder.append(row)
                for tracker in self._trackers:
                    tracker.log(row, steps)
            if _is_due(evaluation, self.config.film_every):
                self._films.record(self.trainings.agents(state), done)
        if not _is_due(evaluation, self.config.monitor_every):
            return
        of_machine = self._monitor.row(steps)
        with self._monitor.timed("log"):
            self.folder.append_monitor({"update": done, "steps": steps} | of_machine)
            self._progress.monitor(summary(of_machine))
            known = {f"monitor/{k}": v for k, v in of_machine.items() if v is not None}
            for tracker in self._trackers:
                tracker.log(known, steps)

    def _stop_at_target(self) -> None:
        """Stop the trainings whose newest evaluation reached the target return."""
        target = self.config.target_return
        if target is None:
            return
        newest = [self._newest.get(seed) for seed in self.trainings.seeds]
        running = [row is None or not row["eval_return"] >= target for row in newest]
        # Process 0 decides for all, since another host may round the mean differently.
        self._running = np.array(distributed.broadcast(running))

    def _steps_done(self, done: int) -> int:
        """Return the steps of all trainings together. Those that stopped early did fewer."""
        steps = done * self._steps_per_update
        return sum(
            steps if runs else self._newest[seed]["steps"]
            for seed, runs in zip(self.trainings.seeds, self._running.tolist(), strict=True)
        )

    def _returns(self) -> tuple[float, ...]:
        return tuple(self._newest[seed]["eval_return"] for seed in self.trainings.seeds)

    def _score(self) -> str | None:
        """Return the mean of the newest evaluations, of several seeds with its interval."""
        if len(self._newest) < len(self.trainings.seeds):
            return None
        returns = self._returns()
        low, high = mean_interval(returns)
        score = f"{statistics.fmean(returns):.1f}"
        if not math.isnan(low):
            score += f" ({low:.1f} to {high:.1f})"
        stopped = len(returns) - int(self._running.sum())
        if len(returns) > 1 and stopped:
            score += f", {stopped} of {len(returns)} seeds at the target"
        return score


def environment_record(
    config: TrainingConfig, settings: Sequence[ActiveSetting] = ()
) -> dict[str, Any]:
    """Return what a configuration leaves out: hardware, versions and settings.

    The record also names the preset that was given, if it set anything.

    Args:
        config: the training.
        settings: the active settings.
    """
    return {
        "preset": config.given["preset"] if config.from_preset() else None,
        "settings": [dataclasses.asdict(each) for each in settings],
        "hardware": dataclasses.asdict(hardware.fingerprint()),
        "versions": hardware.package_versions(),
        "matmul_precision": matmul_precision(),
        "compute_dtype": next(
            (each.value for each in settings if each.name == "precision" and each.active),
            default_dtype(),
        ),
    }


def _is_due(evaluation: int, every: int) -> bool:
    return every > 0 and evaluation % every == 0
