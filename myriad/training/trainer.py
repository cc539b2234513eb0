"""The host loop of a training: compile once, call chunk after chunk, evaluate, save.

Whatever else happens along the way is a callback's.
"""

import contextlib
import dataclasses
import functools
import importlib
import math
import shlex
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from threading import Event
from typing import Any

import jax
import numpy as np

from myriad import distributed
from myriad.engine import machine
from myriad.engine.random import make_keys
from myriad.envs import OBJECT
from myriad.envs.vector import as_float32
from myriad.errors import DivergedError, InvalidArgumentError, ShortTrainingWarning
from myriad.files import say, seconds_shown
from myriad.host import release_freed_memory
from myriad.training.active_settings import ActiveSetting, in_short
from myriad.training.callbacks import Callback, Run
from myriad.training.callbacks.built_in import built_in_callbacks
from myriad.training.compiled import CompiledTraining, compile_within_memory, shortage_named
from myriad.training.config import TrainingConfig, names_of_code
from myriad.training.loop import PARTS, Report, whole
from myriad.training.results import History, Timings, TrainingResults
from myriad.training.run_folder import RunFolder, evaluation_row, lines_of, rows_of, training_of
from myriad.training.start import Start
from myriad.xla import default_dtype, matmul_precision

# With fewer updates than this, no agent learns much.
_FEW_UPDATES = 10
# About how long a call takes if nobody chose its size: an interrupt waits for two calls.
_CALL_S = 1.0


class Trainer:
    """A training, or many seeds of it, and the run folder.

    Args:
        trainings: what to train; for many seeds a `Population`.
        folder: the run's folder. A run in it is resumed from its newest checkpoint.
        callbacks: what is called along the way, after those of every training. Of several
            processes, process 0 alone calls them.
        start: what the agents begin with in place of drawn ones.
        settings: the active settings, to say.
        quiet: show no progress, and don't say what happens before the first update.
        profile_chunks: chunks to trace into the folder.
    """

    def __init__(
        self,
        trainings: CompiledTraining,
        folder: RunFolder,
        callbacks: Sequence[Callback] = (),
        start: Start | None = None,
        settings: Sequence[ActiveSetting] = (),
        *,
        quiet: bool = False,
        profile_chunks: int = 0,
    ):
        self.trainings = trainings
        self.config = trainings.config
        self._start = start
        self.folder = folder
        built_in = built_in_callbacks(
            self.config, quiet=quiet, profile_chunks=profile_chunks, settings=settings
        )
        self._callbacks = [*built_in, *callbacks] if distributed.is_first() else []
        self._is_quiet = quiet or not distributed.is_first()
        self._settings = settings
        self._checkpoints = folder.checkpoints
        # The devices that the run has trained on, those of this process last.
        self._devices = [trainings.devices]
        self._eval_every = trainings.eval_every
        size = (trainings.num_updates, trainings.steps_per_update)
        seeds = [each.get("seed") for each in trainings.members]
        self._run = Run(self.config, folder.path, seeds, *size, trainings.agents)
        # As rows name them.
        self._names = [training_of(each) for each in trainings.members]
        self._report: Any = None
        # The best agent of each training, `[M, ...]` of several, and its return.
        self._best: dict[str, np.ndarray] = {}
        self._best_returns = np.full(len(trainings.members), -np.inf)
        # Whether each training goes on.
        self._running = np.ones(len(trainings.members), bool)
        self._ends = False
        # The environment's parameters that train now.
        self._env_params: dict[str, float] = {}
        # A chunk that nobody chose begins with one update and grows until a call takes a second.
        self._sizes_calls = self.config.scan_chunk_size == self.config.untuned_chunk_size
        # The updates before those that learn, which take longer.
        self._before = self.config.learner.first_learning_update(self.config.num_envs) - 1
        # Steps that an earlier process did, and the seconds of phases inside the current one.
        self._first_steps = self._first_update = 0
        self._inside_s = 0.0

    def run(self) -> TrainingResults:
        """Train to the end, from the newest checkpoint if there is one.

        An exception of a callback ends the run, too. Nothing is saved for it.

        Raises:
            InvalidArgumentError: it doesn't fit into memory.
            DivergedError: there is a NaN, or an infinity where the agent can't learn from one. The
                run's folder holds the last good checkpoint.
            KeyboardInterrupt: you interrupted it. A checkpoint was saved first. SIGTERM also saves
                one and then ends the process, unless you have a handler for it.
        """
        start = time.perf_counter()
        run = self._run
        with shortage_named():
            self._note_devices()
            compile_s = self._compile()
            # Begin together, since JAX gives up on a process whose first message is 30 s late.
            distributed.broadcast(None)
            self._begin()
            if not run.update and distributed.is_first():
                warn_if_short(self.config, stacklevel=4)
            self._train()
            agents = run.agent_state
        run.state = None  # A callback may have kept the run.
        spent = (compile_s, run.seconds["train"], run.seconds["evaluate"])
        total_s = time.perf_counter() - start
        stopped = "callback" if run.update < run.num_updates else "end"
        newest = {training_of(row): row["eval_return"] for row in run.rows}
        return TrainingResults(
            agents,
            History([{k: row[k] for k in row if not k.startswith("eval_")} for row in run.rows]),
            History([evaluation_row(row) for row in run.rows]),
            self.config,
            Timings(*spent, total_s, self._rate()),
            self.folder.path,
            stopped if self._running.any() else "target",
            seeds=tuple(each.get("seed", self.config.seed) for each in self.trainings.members),
            final_returns=tuple(newest[name] for name in self._names),
            reached_target=tuple(np.logical_not(self._running).tolist()),
        )

    def _say(self, sentence: str) -> None:
        if not self._is_quiet:
            say(sentence)

    def _note_devices(self) -> None:
        """Warn that a run continues on other devices, before anything takes long."""
        now = self._devices[-1]
        done = self._checkpoints.latest()
        before = distributed.broadcast([] if done is None else self._checkpoints.devices(done))
        others = [devices for devices in before if devices != now]
        is_news = others and done != self._run.num_updates
        if is_news and distributed.is_first():
            warnings.warn(
                f"this run trained on {' and '.join(others)} and continues on {now}: its updates "
                "are rounded differently, so a long training ends as if by another seed.",
                UserWarning,
                stacklevel=4,
            )
        self._devices = [*others, now]

    def _compile(self) -> float:
        """Compile, and return the seconds that it took."""
        what = f"{self.config.agent} on {self.config.env}"
        how = {"off": "nothing is compiled"}.get(self.trainings.compile_mode, "compiles as it goes")
        compile_s = 0.0
        if self.trainings.compile_mode == "aot":
            self._say(f"{what}: compiling ...")
        start = time.perf_counter()
        with seconds_shown("compiling", self._say):
            # After compiling, this import would add a quarter of a second to a warm start.
            orbax = functools.partial(importlib.import_module, "orbax.checkpoint")
            compile_within_memory(self.trainings, meanwhile=orbax)
        if self.trainings.compile_mode == "aot":
            compile_s = time.perf_counter() - start
            how = f"ready in {compile_s:.1f} s"
        self._say(f"{what}, {self.trainings.described}: {how}")
        if self._settings:
            self._say(in_short(self.config, self._settings))
        return compile_s

    def _begin(self) -> None:
        """Make the first state, or restore the newest checkpoint and its rows."""
        run = self._run
        done = self._checkpoints.latest()
        if done is None:
            distributed.on_first(lambda: self.folder.go_back_to(""))
            run.state = self.trainings.first_state()
            if self._start is not None:
                run.state = self._start.into(run.state)
            return
        # A single process reads the whole state. Of several, each reads the part that it will hold.
        placement = self.trainings.loop.placement if distributed.count() > 1 else None
        run.state = self._checkpoints.restore(done, self.trainings.saved_shapes, placement)
        release_freed_memory()
        if placement is None:
            self._require_seeds(run.state.key)
            run.state = self.trainings.everywhere(run.state)
            release_freed_memory()
        lines = distributed.on_first(lambda: self._checkpoints.rows(done)) or ""
        distributed.on_first(lambda: self.folder.go_back_to(lines))
        rows = rows_of(distributed.broadcast(lines))
        run.update, run.rows = done, rows
        run.new_rows = list({training_of(row): row for row in rows}.values())
        if any(training_of(row) not in self._names for row in rows):
            raise self._changed("grid", self.config.grid)
        self._best = self._checkpoints.best(done, required=False)
        for row in rows if self._best else ():
            index = self._names.index(training_of(row))
            self._best_returns[index] = max(self._best_returns[index], row["eval_return"])
        if rows:
            run.evaluations = -(-rows[-1]["update"] // self._eval_every)

    def _require_seeds(self, keys: jax.Array) -> None:
        """Refuse a `config.toml` whose seeds are others than those that the checkpoint is of."""
        seeds = [each.get("seed", self.config.seed) for each in self.trainings.members]
        own = jax.random.key_data(make_keys(seeds))
        if (own != jax.random.key_data(keys).reshape(own.shape)).any():
            name = "seed" if self.config.seeds is None else "seeds"
            raise self._changed(name, getattr(self.config, name))

    def _changed(self, name: str, value: Any) -> InvalidArgumentError:
        where = self.folder.path / "config.toml"
        return InvalidArgumentError(name, f"of {where} must be as when the run began", value)

    def _train(self) -> None:
        """Train between the callbacks' start and their end, and then obey an interrupt."""
        run = self._run
        run.env_params = self._env_params = self.trainings.env_params(run.state)
        with contextlib.ExitStack() as started:
            run.can_set_env = True
            for callback in self._callbacks:
                callback.on_start(run)
                started.callback(callback.on_end, run)
            run.can_set_env = False
            with distributed.interrupt_noted() as interrupted:
                is_interrupted = self._run_windows(interrupted)
        if is_interrupted:
            # A callback of process 0 may end later than JAX lets the others wait at their exit.
            distributed.broadcast(None)
            self._end_interrupted(interrupted.number)

    def _end_interrupted(self, number: int) -> None:
        """Say how to go on, and end as the signal would have ended the process.

        The number is 0 if another process got the signal.

        Raises:
            KeyboardInterrupt: it was an interrupt.
        """
        several = " --distributed" if distributed.count() > 1 else ""
        trust = " --trust" if names_of_code(self.config.fields()) else ""
        path = str(self.folder.path)
        again = f"myriad train{several} --resume {shlex.quote(path)}{trust}"
        if self.config.env.startswith(OBJECT):
            again = f"resume({path!r}, env=...)"
        of = f"{self._run.steps:,} of {self._run.total_steps:,} steps"
        said = f"stopped after {of}, which are saved; `{again}` goes on"
        says = [said] if distributed.is_first() else []
        if several:
            jax.distributed.shutdown()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if number == signal.SIGINT:
            raise KeyboardInterrupt(*says)
        for sentence in says:
            say(sentence)
        signal.raise_signal(number or signal.SIGTERM)

    def _run_windows(self, interrupted: Event) -> bool:
        """Train window by window, and save when it is time to. Return whether it ends early."""
        run = self._run
        saved = self._checkpoints.latest()
        saved_at = time.monotonic()
        self._agree(is_due=False)
        self._first_steps, self._first_update = run.steps, run.update
        while run.update < run.num_updates and self._running.any() and not self._ends:
            window_end = (run.update // self._eval_every + 1) * self._eval_every
            boundary = min(run.num_updates, window_end)
            end = self._before if self._sizes_calls and run.update < self._before else boundary
            self._run_window(min(end, boundary), interrupted)
            if run.update == boundary:
                self._evaluate()
            since_s = time.monotonic() - saved_at
            is_due = self._agree(is_due=since_s >= self.config.checkpoint_every_s)
            if run.update != saved and (interrupted.is_set() or is_due):
                self._save()
                saved = run.update
                saved_at = time.monotonic()
            if interrupted.is_set():
                return True
        if run.update != saved:
            self._save()
        return False

    def _agree(self, *, is_due: bool) -> bool:
        """Have all processes do what process 0 decides: save, end, stop at the target, set_env."""
        run = self._run
        # The results of a run need an evaluation.
        ends = run.is_ending and bool(run.rows)
        said = [is_due, ends, [*run.stopped.items()], run.env_params]
        is_due, self._ends, stopped, env_params = distributed.broadcast(said)
        run.stopped = dict(stopped)
        if env_params != self._env_params:
            run.state = self.trainings.with_env_params(run.state, [*env_params.values()])
            run.env_params = self._env_params = env_params
        self._running = np.array([name not in run.stopped for name in self._names])
        return is_due

    def _run_window(self, boundary: int, interrupted: Event) -> None:
        """Run up to the next evaluation or an interrupt, and check every report."""
        run = self._run
        start = reported_at = time.perf_counter()
        first = run.steps
        if self._sizes_calls and run.update in (self._first_update, self._before):
            self.trainings.chunk = 1

        def watch(report: Report, update: int) -> None:
            nonlocal reported_at
            now = time.perf_counter()
            if self._sizes_calls:
                fitting = int(_CALL_S * (update - run.update) / (now - reported_at))
                size = min(fitting, 2 * self.trainings.chunk, self.config.updates_per_chunk)
                self.trainings.chunk = distributed.broadcast(max(1, size))
            reported_at = now
            self._report = report
            run.update = update
            self._require_numbers(report)
            run.steps_per_s = (run.steps - first) / (time.perf_counter() - start)
            with self._timed("log"):
                for callback in self._callbacks:
                    callback.on_update(run)

        state, run.state = run.state, None  # The first chunk takes its memory.
        with self._timed("train"):
            run.state, run.update = self.trainings.run_window(
                state, run.update, boundary, watch, interrupted, self._running
            )

    def _require_numbers(self, report: Report) -> None:
        """Stop the run if a report contains a NaN or an infinity."""
        for index in np.flatnonzero(self._running).tolist():
            own = self.trainings.report_of(report, index)
            bad = [part for part, is_bad in zip(PARTS, own.is_bad, strict=True) if is_bad]
            if not bad:
                continue
            sums = own.metric_sums.items()
            bad += [f"metric {name}" for name, value in sums if not math.isfinite(value)]
            member = self.trainings.members[index]
            whose = ", ".join(f"{name} {value}" for name, value in member.items())
            whose = f" of {whose}" if whose else ""
            newest = self._checkpoints.latest()
            kept = f"the checkpoint of update {newest} is kept in {self.folder.path}"
            if newest is None:
                kept = "no checkpoint was saved before"
            raise DivergedError(f"{', '.join(bad)} by update {self._run.update}{whose}; {kept}.")

    def _evaluate(self) -> None:
        """Evaluate, and note the figures of the window and of the evaluation as rows."""
        run = self._run
        rows, better = [], []
        steps = run.update * run.steps_per_update
        # Values that a callback has set, also those that it has set back.
        of_config = self.trainings.loop.envs.params.values
        named = {name for row in run.rows for name in row}
        set_env = {
            f"env/{name}": value
            for (name, value), given in zip(self._env_params.items(), of_config, strict=True)
            if value != as_float32(given) or f"env/{name}" in named
        }
        window = run.update % self._eval_every or self._eval_every
        with self._timed("evaluate"):
            returns, ended, infos = self.trainings.play(run.state, self._running)
            for index in np.flatnonzero(self._running).tolist():
                report = self.trainings.report_of(self._report, index)
                episodes = whole(report.num_episodes)
                placed = {"update": run.update, "steps": steps, "episodes": episodes}
                row = self.trainings.members[index] | placed
                if episodes:
                    row["return"] = float(report.return_sum) / episodes
                sums = report.metric_sums.items()
                row |= {name: float(total) / window for name, total in sums}
                row |= {
                    "eval_return": float(np.mean(returns[index], dtype=np.float64)),
                    "eval_return_std": float(np.std(returns[index], dtype=np.float64)),
                    "eval_unfinished": int((~ended[index]).sum()),
                }
                for name, values in infos.items():
                    row[f"eval_info/{name}"] = float(np.mean(values[index], dtype=np.float64))
                row |= set_env
                rows.append(row)
                if row["eval_return"] > self._best_returns[index]:
                    self._best_returns[index] = row["eval_return"]
                    better.append(index)
            if better:
                learned = self.trainings.learned(run.state)
                if not self._best or self.config.seeds is None:
                    self._best = learned
                else:
                    for name, each in learned.items():
                        self._best[name][better] = each[better]
        run.rows += rows
        run.new_rows = rows
        run.evaluations = -(-run.update // self._eval_every)
        run.steps_per_s = self._rate()
        # Each is timed by itself, so that the monitor counts those before it.
        run.can_set_env = True
        for callback in self._callbacks:
            with self._timed("log"):
                callback.on_evaluation(run)
        run.can_set_env = False

    def _save(self) -> None:
        run = self._run
        with self._timed("save"):
            saved = self.trainings.to_save(run.state)
            rows = lines_of(run.rows)
            self._checkpoints.save(run.update, saved, rows, self._devices, self._best)
            del saved
            # Each save leaves a freed copy of the whole compressed state in the allocator.
            release_freed_memory()
        with self._timed("log"):
            for callback in self._callbacks:
                callback.on_checkpoint(run)

    @contextlib.contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        """Count the block's seconds as one of `PHASES`, except for a phase inside the block."""
        start = time.perf_counter()
        before, self._inside_s = self._inside_s, 0.0
        try:
            yield
        finally:
            spent_s = time.perf_counter() - start
            self._run.seconds[phase] += spent_s - self._inside_s
            self._inside_s = before + spent_s

    def _rate(self) -> float:
        """Return the steps/s of training in this process, NaN before it has trained."""
        train_s = self._run.seconds["train"]
        return (self._run.steps - self._first_steps) / train_s if train_s else math.nan


def warn_if_short(config: TrainingConfig, *, stacklevel: int) -> None:
    """Warn a caller at `stacklevel` if a training has too few updates to learn much."""
    first = config.learner.first_learning_update(config.num_envs)
    learning = max(0, config.num_updates - first + 1)
    if learning >= _FEW_UPDATES or not config.learner.metric_names:
        return  # A fixed policy, without metrics, learns nothing anyway.
    learn = "" if first == 1 else f", of which {learning} learn"
    warnings.warn(
        f"{config.steps_per_env:,} steps of each of {config.num_envs:,} environments are "
        f"{config.num_updates} updates of {config.agent}{learn}, too few to learn much: "
        "raise steps_per_env or total_steps.",
        ShortTrainingWarning,
        stacklevel=stacklevel + 1,
    )


def environment_record(config: TrainingConfig, settings: Sequence[ActiveSetting]) -> dict[str, Any]:
    """Return what a configuration leaves out: hardware, versions and settings.

    The record also names the preset that was given, if it set anything.
    """
    return {
        "preset": config.given["preset"] if config.from_preset() else None,
        "settings": [dataclasses.asdict(each) for each in settings],
        "hardware": dataclasses.asdict(machine.fingerprint()),
        "versions": machine.package_versions(),
        "matmul_precision": matmul_precision(),
        "compute_dtype": getattr(config.learner, "compute_dtype", default_dtype()),
    }
