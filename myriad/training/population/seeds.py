"""The host loop for many seeds of one training, side by side in one program and one run folder."""

import contextlib
import dataclasses
import math
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from myriad.agents.controller import ControllerLearner
from myriad.errors import DivergedError, InvalidArgumentError, shown
from myriad.host import release_freed_memory
from myriad.timing.intervals import mean_interval
from myriad.training.active import ActiveSetting, in_short
from myriad.training.checkpoint import Checkpoints, import_orbax, newest_kept
from myriad.training.config import ResolvedConfig, require_values
from myriad.training.fits import shortage_named
from myriad.training.interrupts import how_to_go_on, interrupt_noted
from myriad.training.logging.history import History
from myriad.training.logging.monitor import Monitor, summary
from myriad.training.logging.progress import Progress
from myriad.training.logging.run_folder import RunFolder, lines_of, rows_of
from myriad.training.loop import Report
from myriad.training.population import (
    Population,
    PopulationState,
    default_mapping,
    require_seeds,
)
from myriad.training.population.memory import compile_seeds_within_memory
from myriad.training.results import SeedResults, Timings
from myriad.training.rows import bad_parts, evaluation_row, row_of_window, training_row
from myriad.training.short import too_few_updates, warn_of_short

# The most steps of all trainings of a device in one call: a few seconds, so that an interrupt
# doesn't wait long. If one training alone has smaller chunks, these are smaller as well.
_STEPS_PER_CALL = 4_000_000

Rows = list[dict[str, Any]]


def resolved_for_seeds(resolved: ResolvedConfig, profile_chunks: int = 0) -> ResolvedConfig:
    """Return a training of many seeds as it runs, with its mapping filled in.

    Raises:
        InvalidArgumentError: a setting can't be combined with many seeds.
    """
    config = resolved.config
    replay_memory = config.agent_options.get("replay_memory", "device")
    settings = [
        ("film_every", config.film_every, 0, "films show one training"),
        ("log_to", config.log_to, [], "trackers show one training"),
        ("compile_mode", config.compile_mode, "aot", "seeds share one compiled program"),
        ("agent.replay_memory", replay_memory, "device", "a device holds the states of its seeds"),
        ("profile_chunks", profile_chunks, 0, "a trace shows one training"),
    ]
    require_values("with many seeds", settings)
    if isinstance(resolved.learner, ControllerLearner):
        raise InvalidArgumentError(
            f"seeds must be left out for {config.agent}, which learns nothing, "
            f"but got {shown(config.seeds)}."
        )
    mapped = config.model_copy(update={"mapping": config.mapping or default_mapping()})
    return dataclasses.replace(resolved, config=mapped)


class SeedsTrainer:
    """Many seeds of one training, their program and their run folder.

    All seeds that have not stopped have done the same number of updates.

    Args:
        resolved: the result of `resolved_for_seeds`.
        folder: the run's folder. A run in it is resumed from its newest checkpoint.
        quiet: show no progress.
        settings: the active settings, for the progress.

    Attributes:
        has_trained: whether an update was done, now or before the run was resumed.
    """

    def __init__(
        self,
        resolved: ResolvedConfig,
        folder: RunFolder,
        *,
        quiet: bool = False,
        settings: Sequence[ActiveSetting] = (),
    ):
        self.config = resolved.config
        self.seeds = tuple(self.config.seeds or ())
        self.population = Population(resolved, len(self.seeds), mapping=self.config.mapping)
        self.folder = folder
        self.has_trained = False
        self._settings = settings
        self._checkpoints = Checkpoints(folder.checkpoints)
        self._monitor = Monitor()
        # The steps of a seed that doesn't stop early.
        self._steps = self.population.num_updates * self.population.steps_per_update
        self._progress = Progress(len(self.seeds) * self._steps, quiet=quiet)
        self._newest: dict[int, dict[str, Any]] = {}
        self._report: Any = None
        slots = -(-len(self.seeds) // self.population.num_devices)
        per_update = slots * self.population.steps_per_update
        self._chunk = max(1, min(resolved.updates_per_chunk, _STEPS_PER_CALL // per_update))

    def run(self) -> SeedResults:
        """Train all seeds to the end, from the newest checkpoint if there is one.

        Raises:
            InvalidArgumentError: they don't fit into memory.
            DivergedError: a seed has a NaN, or an infinity where the agent can't learn from one.
            KeyboardInterrupt: you interrupted it. A checkpoint was saved first.
        """
        start = time.perf_counter()
        with contextlib.ExitStack() as opened:
            opened.callback(self._progress.close)
            opened.enter_context(shortage_named())
            self._note_devices()
            self._compile()
            state, done, rows = self._first_state()
            if not done and (reason := too_few_updates(self.population.resolved)) is not None:
                warn_of_short(self.population.resolved, reason, stacklevel=4)
            state, done = self._train(state, done, rows)
            agents = self.population.agents(state)
        steps = self._steps_done(done)
        compile_s = self.population.programs.compile_s
        reached = tuple(map(self._has_reached, self.seeds))
        return SeedResults(
            agent_state=agents,
            training=History([training_row(row) for row in rows]),
            evaluations=History([evaluation_row(row) for row in rows]),
            config=self.config,
            timings=Timings.of(self._monitor, compile_s, steps, time.perf_counter() - start),
            run_folder=self.folder.path,
            stopped="target" if all(reached) else "end",
            seeds=self.seeds,
            final_returns=self._returns(),
            reached_target=reached,
        )

    @property
    def _devices(self) -> str:
        number = self.population.num_devices
        platform = jax.default_backend().upper()
        return f"{number} {platform} device{'s' if number > 1 else ''}"

    def _note_devices(self) -> None:
        """Warn that a run continues on devices that round its updates differently."""
        done = self._checkpoints.latest()
        before = [] if done is None else self._checkpoints.devices(done)
        if before and self._devices not in before:
            warnings.warn(
                f"these seeds trained on {before[-1]} and continue on {self._devices}: an update "
                "may differ by rounding, so a long training may end differently, as if by another "
                "seed.",
                UserWarning,
                stacklevel=4,
            )

    def _compile(self) -> None:
        population = self.population
        what = f"{self.config.agent} on {self.config.env}"
        self._progress.say(f"{what}: compiling ...")
        resumes = self._checkpoints.latest() is not None
        compile_seeds_within_memory(population, resumes=resumes, meanwhile=import_orbax)
        together = "one after another" if population.mapping == "map" else "side by side"
        self._progress.say(
            f"{what}, {len(self.seeds)} seeds of "
            f"{population.resolved.num_envs:,} environments, {together} on {self._devices}: "
            f"4 programs ready in {population.programs.compile_s:.1f} s"
        )
        if self._settings:
            self._progress.say(in_short(self._settings))

    def _first_state(self) -> tuple[PopulationState, int, Rows]:
        done = self._checkpoints.latest()
        if done is None:
            self.folder.go_back_to([])
            return self.population.first_state(self.seeds), 0, []
        self.has_trained = True
        saved = self._checkpoints.restore(done, self.population.saved_shapes)
        require_seeds(self.folder.path, self.seeds, saved.key)
        state = self.population.scattered(saved)
        del saved
        release_freed_memory()
        rows = rows_of(self._checkpoints.rows(done) or "")
        self._newest = {row["seed"]: row for row in rows}
        if self.folder.go_back_to(rows):
            self._progress.say(f"{self.folder.metrics} is made again from checkpoint {done}")
        return state, done, rows

    def _save(self, done: int, state: PopulationState, rows: Rows) -> None:
        with self._monitor.timed("save"):
            self.folder.flush()
            trainings = self.population.gathered(state)
            self._checkpoints.save(done, trainings, lines_of(rows), [self._devices])
            del trainings
            release_freed_memory()

    def _train(self, state: PopulationState, done: int, rows: Rows) -> tuple[PopulationState, int]:
        """Train window by window, save when it is time to, and stop once all seeds have."""
        population = self.population
        saved = self._checkpoints.latest()
        saved_at = time.monotonic()
        self._monitor.restart(self._steps_done(done))
        self._progress.begin(self._steps_done(done))
        with interrupt_noted() as interrupted:
            while done < population.num_updates and self._running.any():
                window_end = (done // population.eval_every + 1) * population.eval_every
                boundary = min(population.num_updates, window_end)
                state, done = self._run_window(state, done, boundary, interrupted)
                if done == boundary:
                    self._evaluate(state, done, rows)
                due = time.monotonic() - saved_at >= self.config.checkpoint_every_s
                if done != saved and (interrupted.is_set() or due):
                    self._save(done, state, rows)
                    saved = done
                    saved_at = time.monotonic()
                if interrupted.is_set():
                    self._progress.close()
                    total = len(self.seeds) * self._steps
                    interrupted.end(how_to_go_on(self._steps_done(done), total, self.folder.path))
            if done != saved:
                self._save(done, state, rows)
        return state, done

    def _run_window(
        self, state: PopulationState, done: int, boundary: int, interrupted: threading.Event
    ) -> tuple[PopulationState, int]:
        """Run up to the next evaluation or an interrupt, and check every report."""
        start = time.perf_counter()
        before = self._steps_done(done)
        running = self._running
        while done < boundary and not interrupted.is_set():
            count = min(self._chunk, boundary - done)
            begin = running & (done % self.population.eval_every == 0)
            with self._monitor.timed("train"):
                state, self._report = self.population.run(state, count * running, begin)
            done += count
            self.has_trained = True
            self._watch(self._report, done, running)
            steps = self._steps_done(done)
            rate = (steps - before) / (time.perf_counter() - start)
            self._progress.update(steps, rate, self._score())
        return state, done

    def _watch(self, report: Report, done: int, running: np.ndarray) -> None:
        """Stop the run if a seed's report contains a NaN or an infinity."""
        for slot in np.flatnonzero(running & report.is_bad.any(axis=1)).tolist():
            what = bad_parts(_of_slot(report, slot))
            kept = newest_kept(self._checkpoints)
            raise DivergedError(
                f"{what} by update {done} of seed {self.seeds[slot]}; {kept} in {self.folder.path}."
            )

    def _evaluate(self, state: PopulationState, done: int, rows: Rows) -> None:
        """Evaluate the seeds that still run, and write a row for each."""
        running = self._running
        with self._monitor.timed("evaluate"):
            returns, ended = self.population.evaluate(state, running)
        with self._monitor.timed("log"):
            for slot in np.flatnonzero(running).tolist():
                report = _of_slot(self._report, slot)
                row = row_of_window(self.population, done, report, returns[slot], ended[slot])
                row = {"seed": self.seeds[slot]} | row
                rows.append(row)
                self._newest[self.seeds[slot]] = row
                self.folder.append(row)
        every = self.config.monitor_every
        if every and -(-done // self.population.eval_every) % every == 0:
            steps = self._steps_done(done)
            of_machine = self._monitor.row(steps)
            self.folder.append_monitor({"update": done, "steps": steps} | of_machine)
            self._progress.monitor(summary(of_machine))
        left = (self.population.num_updates - done) * self.population.steps_per_update
        self._progress.shorten(self._steps_done(done) + int(self._running.sum()) * left)
        steps = self._steps_done(done)
        self._progress.update(steps, self._monitor.rate(steps), self._score())

    @property
    def _running(self) -> np.ndarray:
        """Return which seeds have not stopped, boolean `[M]`."""
        return np.array([not self._has_reached(seed) for seed in self.seeds])

    def _has_reached(self, seed: int) -> bool:
        target = self.config.target_return
        newest = self._newest.get(seed)
        return target is not None and newest is not None and newest["eval_return"] >= target

    def _steps_done(self, done: int) -> int:
        """Return the steps of all seeds together. Seeds that stopped early did fewer."""
        per_update = self.population.steps_per_update
        return sum(
            self._newest[seed]["steps"] if self._has_reached(seed) else done * per_update
            for seed in self.seeds
        )

    def _returns(self) -> tuple[float, ...]:
        return tuple(self._newest[seed]["eval_return"] for seed in self.seeds)

    def _score(self) -> str | None:
        """Return the mean of the seeds' last evaluations with its interval, for the progress."""
        if len(self._newest) < len(self.seeds):
            return None
        returns = self._returns()
        mean = float(np.mean(returns))
        low, high = mean_interval(returns)
        reached = sum(map(self._has_reached, self.seeds))
        stopped = f", {reached} of {len(returns)} seeds at the target" if reached else ""
        if math.isnan(low):
            return f"{mean:.1f}{stopped}"
        return f"{mean:.1f} ({low:.1f} to {high:.1f}){stopped}"


def _of_slot(report: Report, slot: int) -> Report:
    return jax.tree.map(lambda leaf: leaf[slot], report)
