"""The host loop of a training: compile once, call chunk after chunk, evaluate, save and report."""

import contextlib
import dataclasses
import time
import warnings
from collections.abc import Sequence
from typing import Any

import jax

from myriad import distributed, hardware
from myriad.errors import DivergedError
from myriad.files import say
from myriad.host import release_freed_memory
from myriad.training.active import ActiveSetting, in_short
from myriad.training.checkpoint import Checkpoints, import_orbax, newest_kept
from myriad.training.config import ResolvedConfig, TrainingConfig
from myriad.training.fits import compile_within_memory, shortage_named
from myriad.training.interrupts import how_to_go_on, interrupt_noted
from myriad.training.logging.films import Films
from myriad.training.logging.history import History
from myriad.training.logging.monitor import Monitor, summary
from myriad.training.logging.profile import Profile
from myriad.training.logging.progress import Progress
from myriad.training.logging.run_folder import RunFolder, lines_of, rows_of
from myriad.training.logging.trackers import Tracker, make_trackers
from myriad.training.loop import Report, TrainState
from myriad.training.programs import CompiledTraining, Flag
from myriad.training.results import Timings, TrainingResults
from myriad.training.rows import bad_parts, evaluation_row, row_of_window, training_row
from myriad.training.short import too_few_updates, warn_of_short
from myriad.xla import default_dtype, matmul_precision

# Don't look for ended episodes in longer trainings: an environment that has ended none by then
# hardly ever does.
_FEW_STEPS = 1_000


class Trainer:
    """A training, its programs and its run folder.

    Args:
        resolved: the training.
        folder: the run's folder. A run in it is resumed from its newest checkpoint.
        quiet: show no progress.
        profile_chunks: chunks to trace into the folder.
        settings: the active settings, for the progress and the trackers.

    Attributes:
        has_trained: whether an update was done, now or before the run was resumed.
    """

    def __init__(
        self,
        resolved: ResolvedConfig,
        folder: RunFolder,
        *,
        quiet: bool = False,
        profile_chunks: int = 0,
        settings: Sequence[ActiveSetting] = (),
    ):
        self._settings = settings
        self.programs = CompiledTraining(resolved)
        self.config = resolved.config
        self.folder = folder
        self._checkpoints = Checkpoints(folder.checkpoints)
        self._progress = Progress(
            self.programs.num_updates * self.programs.steps_per_update,
            quiet=quiet or not distributed.is_first(),
        )
        self.has_trained = False
        # The devices that the run has trained on, those of this process last.
        self._devices = [self.programs.loop.devices]
        self._monitor = Monitor()
        self._profile = Profile(folder, profile_chunks, say)
        self._films = Films(resolved, folder.path / "films")
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
            described = self.config.model_dump(mode="json")
            described["settings"] = [dataclasses.asdict(each) for each in self._settings]
            log_to = self.config.log_to if distributed.is_first() else []
            trackers = make_trackers(log_to, self.folder, described)
            for tracker in trackers:
                opened.callback(tracker.close)
            state, done, rows = self._first_state()
            if not done:
                self._warn_if_short(state)
            state, stopped = self._train(state, done, rows, trackers)
        steps = int(state.num_updates) * self.programs.steps_per_update
        total_s = time.perf_counter() - start
        return TrainingResults(
            self.programs.loop.of_first_device(state).agent,
            History([training_row(row) for row in rows]),
            History([evaluation_row(row) for row in rows]),
            self.config,
            Timings.of(self._monitor, self.programs.compile_s, steps, total_s),
            self.folder.path,
            stopped,
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
        is_news = others and done != self.programs.num_updates
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
        if self.config.compile_mode == "aot":
            self._progress.say(f"{what}: compiling ...")
        compile_within_memory(
            self.programs,
            saves=True,
            resumes=self._checkpoints.latest() is not None,
            meanwhile=import_orbax,
        )
        how = f"3 programs ready in {self.programs.compile_s:.1f} s"
        if self.config.compile_mode != "aot":
            how = (
                "nothing is compiled"
                if self.config.compile_mode == "off"
                else "compiles as it goes"
            )
        num_envs = self.programs.resolved.num_envs
        size = f"{num_envs:,} environments"
        if self.programs.loop.num_devices > 1:
            size += f" in {self.programs.loop.num_devices} shares on {self._devices[-1]}"
        self._progress.say(f"{what}, {size}: {how}")
        if self._settings:
            self._progress.say(in_short(self._settings))

    def _first_state(self) -> tuple[TrainState, int, list[dict[str, Any]]]:
        done = self._checkpoints.latest()
        if done is None:
            self.folder.go_back_to([])
            return self.programs.first_state(), 0, []
        self.has_trained = True
        loop = self.programs.loop
        # A single process reads the whole state. Of several, each reads the part that it will hold.
        placement = loop.placement if distributed.count() > 1 else None
        state = self._checkpoints.restore(done, self.programs.state_shapes, placement)
        release_freed_memory()
        rows = rows_of(distributed.broadcast(distributed.on_first(lambda: self._rows_until(done))))
        return (loop.everywhere(state) if placement is None else state), done, rows

    def _rows_until(self, done: int) -> str:
        """Return the lines up to a checkpoint, and cut the run's `metrics.jsonl` back to them."""
        lines = self._checkpoints.rows(done)
        if lines is None:
            lines = lines_of(self.folder.rows_until(done))
        if self.folder.go_back_to(rows_of(lines)):
            self._progress.say(f"{self.folder.metrics} is made again from checkpoint {done}")
        return lines

    def _save(self, done: int, state: TrainState, rows: list[dict[str, Any]]) -> None:
        with self._monitor.timed("save"):
            self.folder.flush()
            state = self.programs.loop.on_one_device(state)
            self._checkpoints.save(done, state, lines_of(rows), self._devices)
            # Each save leaves a freed copy of the whole compressed state in the allocator.
            release_freed_memory()

    def _train(
        self, state: TrainState, done: int, rows: list[dict[str, Any]], trackers: list[Tracker]
    ) -> tuple[TrainState, str]:
        """Train window by window, save when it is time to, and stop at the end of the run."""
        saved = self._checkpoints.latest()
        saved_at = time.monotonic()
        score = None
        self._monitor.restart(done * self.programs.steps_per_update)
        self._progress.begin(done * self.programs.steps_per_update)
        self._profile.start()
        with interrupt_noted() as interrupted:
            while done < self.programs.num_updates and not self._reached(rows):
                boundary = self.programs.next_boundary(done)
                state, done = self._run_window(state, done, boundary, score, interrupted)
                if done == boundary:
                    with self._monitor.timed("evaluate"):
                        rows.append(self._row(state, done))
                    score = f"{rows[-1]['eval_return']:.1f}"
                    self._log(rows, state, trackers)
                due = distributed.broadcast(
                    time.monotonic() - saved_at >= self.config.checkpoint_every_s
                )
                if done != saved and (interrupted.is_set() or due):
                    self._save(done, state, rows)
                    saved = done
                    saved_at = time.monotonic()
                if interrupted.is_set():
                    self._progress.close()
                    steps = self.programs.steps_per_update
                    total = self.programs.num_updates * steps
                    interrupted.end(how_to_go_on(done * steps, total, self.folder.path))
            if done != saved:
                self._save(done, state, rows)
        return state, "target" if self._reached(rows) else "end"

    def _log(self, rows: list[dict[str, Any]], state: TrainState, trackers: list[Tracker]) -> None:
        """Write the newest row to the run's folder and the trackers, and do what else is due."""
        done = rows[-1]["update"]
        steps = rows[-1]["steps"]
        with self._monitor.timed("log"):
            self.folder.append(rows[-1])
            for tracker in trackers:
                tracker.log(rows[-1], steps)
            if _is_due(len(rows), self.config.film_every):
                self._films.record(self.programs.loop.of_first_device(state).agent, done)
        if not _is_due(len(rows), self.config.monitor_every):
            return
        of_machine = self._monitor.row(steps)
        with self._monitor.timed("log"):
            self.folder.append_monitor({"update": done, "steps": steps} | of_machine)
            self._progress.monitor(summary(of_machine))
            known = {f"monitor/{k}": v for k, v in of_machine.items() if v is not None}
            for tracker in trackers:
                tracker.log(known, steps)

    def _run_window(
        self,
        state: TrainState,
        done: int,
        boundary: int,
        score: str | None,
        interrupted: Flag,
    ) -> tuple[TrainState, int]:
        """Run up to the next evaluation or an interrupt, and check every report."""
        start = time.perf_counter()
        first = done
        steps = self.programs.steps_per_update

        def watch(report: Report, done: int) -> None:
            self.has_trained = True
            self._report = self._watch(report, done)
            with self._monitor.timed("log"):
                self._profile.count()
            rate = (done - first) * steps / (time.perf_counter() - start)
            self._progress.update(done * steps, rate, score)

        with self._monitor.timed("train"):
            return self.programs.run_window(state, done, boundary, watch, interrupted)

    def _watch(self, report: Report, done: int) -> Report:
        """Return the report, or stop the run if it contains a NaN or an infinity."""
        if (what := bad_parts(report)) is not None:
            kept = newest_kept(self._checkpoints)
            raise DivergedError(f"{what} by update {done}; {kept} in {self.folder.path}.")
        return report

    def _row(self, state: TrainState, done: int) -> dict[str, Any]:
        """Evaluate, and return the figures of the window and the evaluation as one row."""
        returns, ended, _ = self._evaluate(state)
        row = row_of_window(self.programs, done, self._report, returns, ended)
        rate = self._monitor.rate(row["steps"])
        self._progress.update(row["steps"], rate, f"{row['eval_return']:.1f}")
        return row

    def _evaluate(self, state: TrainState) -> Any:
        state = self.programs.loop.of_first_device(state)
        return jax.device_get(self.programs.evaluate(state.agent, state.key, state.num_updates))

    def _warn_if_short(self, state: TrainState) -> None:
        """Warn that a training can't be expected to learn, before it begins."""
        resolved = self.programs.resolved
        if not resolved.learner.metric_names:
            return  # A fixed policy learns nothing anyway.
        reason = too_few_updates(resolved)
        steps = resolved.steps_per_env
        if (
            reason is None
            and steps <= _FEW_STEPS
            and (shortest := self._evaluate(state)[2].min()) > steps
        ):
            reason = (
                f"may end no episode, since the shortest of {self.config.agent} before it learns "
                f"takes {shortest:,}"
            )
        if reason is not None and distributed.is_first():
            warn_of_short(resolved, reason, stacklevel=5)

    def _reached(self, rows: list[dict[str, Any]]) -> bool:
        target = self.config.target_return
        if target is None:
            return False
        # Process 0 decides for all, since another host may round the mean differently.
        return distributed.broadcast(bool(rows) and bool(rows[-1]["eval_return"] >= target))


def environment_record(
    config: TrainingConfig, settings: Sequence[ActiveSetting] = ()
) -> dict[str, Any]:
    """Return what a resolved configuration leaves out: hardware, versions and settings.

    The record also names the preset that was given, if it set anything.

    Args:
        config: the training.
        settings: the active settings.
    """
    return {
        "preset": config.preset if config.from_preset() else None,
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
