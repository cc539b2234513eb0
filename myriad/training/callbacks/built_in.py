"""The callbacks of every training: rows, the target, progress, and what its configuration asks."""

import contextlib
import dataclasses
import math
import os
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax

from myriad.agents.controller import ControllerLearner
from myriad.files import say, write_errors_explained
from myriad.host import resident_bytes, usable_cores
from myriad.training.active_settings import ActiveSetting
from myriad.training.callbacks import PHASES, Callback, Run
from myriad.training.callbacks.trackers import Trackers
from myriad.training.config import TrainingConfig
from myriad.training.run_folder import RunFolder, significant, training_of

# The most frames of a film. Of a longer episode it shows the beginning.
_NUM_STEPS = 200
# Seconds between two lines of progress if there is no terminal.
_EVERY_S = 30.0


def built_in_callbacks(
    config: TrainingConfig,
    *,
    quiet: bool = False,
    profile_chunks: int = 0,
    settings: Sequence[ActiveSetting] = (),
) -> list[Callback]:
    """Return the callbacks of a training, in the order in which they are called.

    With `quiet` no progress is shown. The trackers show the active settings.
    """
    callbacks: list[Callback] = [Metrics()]
    if config.target_return is not None:
        callbacks.append(Target())
    if config.film_every:
        callbacks.append(Films())
    # The trackers and the progress also show what the monitor says.
    if config.monitor_every:
        callbacks.append(Monitor())
    if config.log_to:
        callbacks.append(Trackers(settings))
    if not quiet:
        callbacks.append(Progress())
    if profile_chunks:
        callbacks.append(Profile(profile_chunks))
    return callbacks


class Metrics(Callback):
    """Writes `metrics.jsonl`."""

    def on_evaluation(self, run: Run) -> None:
        for row in run.new_rows:
            RunFolder(run.folder).append(row)


class Target(Callback):
    """Stops each training whose evaluation reaches the target return."""

    def on_start(self, run: Run) -> None:
        self.on_evaluation(run)

    def on_evaluation(self, run: Run) -> None:
        for row in run.new_rows:
            if row["eval_return"] >= run.config.target_return:
                run.stopped[training_of(row)] = row["steps"]


class Films(Callback):
    """Records an episode of the greedy agent as a GIF after every few evaluations."""

    def on_evaluation(self, run: Run) -> None:
        """Record an episode if it is time to.

        Raises:
            InvalidArgumentError: the film can't be written.
        """
        from myriad.rendering.video import record

        if run.evaluations % run.config.film_every:
            return
        learner = run.config.learner
        controller: Any = _Remembered(learner, run.agent_state)
        if isinstance(learner, ControllerLearner):
            controller = learner.controller
        folder = run.folder / "films"
        with write_errors_explained(folder):
            folder.mkdir(exist_ok=True)
        path = folder / f"{run.update}.gif"
        env, seed = run.config.environment, run.config.seed
        record(env, controller, path, num_steps=_NUM_STEPS, seed=seed)


@dataclasses.dataclass(frozen=True)
class _Remembered:
    """The greedy agent as a controller whose memory holds the agent's state.

    So the state is an argument of the compiled program and not a constant in it. The program is
    then the same for every film, and the compilation cache holds it.
    """

    learner: Any
    state: Any

    def first_memory(self) -> Any:
        return self.state, self.learner.first_memory(1)

    def control(self, memory: Any, key: jax.Array, obs: jax.Array) -> tuple[jax.Array, Any]:
        state, memory = memory
        action, memory = self.learner.control(state, memory, key, obs[None], greedy=True)
        return action[0], (state, memory)


class Progress(Callback):
    """Shows steps, steps/s, return, time elapsed and time left on standard error.

    On a terminal it is a live line, else a line after the first call and then every half minute.
    """

    def __init__(self):
        self._bar: Any = None
        self._task: Any = None
        # The newest return of each training, by its seed. One that has ended keeps its last.
        self._returns: dict[int | None, float] = {}
        self._score = "-"
        self._monitored = ""

    def on_start(self, run: Run) -> None:
        """Count the time from now, after the steps of an earlier process."""
        self._note(run, run.rows)
        self._first_steps = run.steps
        self._begun_at, self._said_at = time.monotonic(), -math.inf
        if sys.stderr is None or not sys.stderr.isatty():
            return
        from rich import console, progress, table

        said = "{task.fields[steps]} steps  {task.fields[rate]}\nreturn {task.fields[score]}"
        said += "{task.fields[monitored]}"
        wrapped = table.Column(overflow="fold", no_wrap=False)
        self._bar = progress.Progress(
            progress.TextColumn(said, table_column=wrapped),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=console.Console(stderr=True),
        )
        fields = {"steps": "0", "rate": "", "score": "-", "monitored": ""}
        total, done = run.total_steps, run.steps
        self._task = self._bar.add_task("training", total=total, completed=done, **fields)
        self._bar.start()

    def on_update(self, run: Run) -> None:
        if self._bar is not None:
            self._bar.update(
                self._task,
                total=run.total_steps,
                completed=run.steps,
                steps=f"{run.steps:,}",
                rate=f"{run.steps_per_s:,.0f}/s",
                score=self._score,
                monitored=self._monitored and f"  {self._monitored}",
            )
        elif (now := time.monotonic()) - self._said_at >= _EVERY_S:
            self._said_at = now
            # Evaluations and saves take time as well, so the rate of training would promise less.
            done = run.steps - self._first_steps
            spent_s = now - self._begun_at
            left_s = (run.total_steps - run.steps) * spent_s / done if done else math.inf
            say(
                f"{run.steps:,} of {run.total_steps:,} steps, {run.steps_per_s:,.0f}/s, "
                f"return {self._score}, {left_s:,.0f} s left"
                f"{self._monitored and f' ({self._monitored})'}"
            )

    def on_evaluation(self, run: Run) -> None:
        self._note(run, run.new_rows)
        self.on_update(run)

    def on_end(self, run: Run) -> None:
        """Stop updating, and leave the line, which tells no time left any more."""
        if self._bar is not None:
            self._bar.columns = self._bar.columns[:-1]
            self._bar.stop()

    def _note(self, run: Run, rows: Sequence[dict[str, Any]]) -> None:
        """Remember the mean of the newest returns, and what the monitor says."""
        if row := run.monitor:
            shown = [f"{name} {row[f'{name}_share']:.0%}" for name in ("train", "evaluate")]
            if (used := row["device_utilisation"]) is not None:
                shown.append(f"device {used:.0%}")
            if (held := row["device_memory_bytes"]) is not None:
                shown.append(f"{held / 2**20:,.0f} MiB")
            self._monitored = ", ".join(shown)
        self._returns |= {training_of(row): row["eval_return"] for row in rows}
        if self._returns:
            self._score = significant(statistics.fmean(self._returns.values()))


class Profile(Callback):
    """Traces the first chunks of a training, at least one, into its run folder."""

    def __init__(self, num_chunks: int):
        self._left = num_chunks

    def on_start(self, run: Run) -> None:
        self._path = run.folder / "profile"
        with write_errors_explained(self._path):
            jax.profiler.start_trace(str(self._path), create_perfetto_trace=True)

    def on_update(self, run: Run) -> None:
        self._left -= 1
        if self._left == 0:
            self._end()

    def on_end(self, run: Run) -> None:
        if self._left > 0:
            self._end()

    def _end(self) -> None:
        with write_errors_explained(self._path):
            jax.profiler.stop_trace()
        # The folder may also hold traces from before the run was resumed.
        traces = self._path.glob("**/perfetto_trace.json.gz")
        trace = max(traces, key=lambda path: path.stat().st_mtime_ns)
        size = trace.stat().st_size / 2**20
        say(f"{trace}: {size:.1f} MiB; open it at ui.perfetto.dev")


class Monitor(Callback):
    """Writes `monitor.jsonl`: where time went since the line before, and how busy the machine was.

    It writes a line every few evaluations.
    """

    def __init__(self):
        self._cores = usable_cores()
        device = jax.local_devices()[0]
        self._gpu = None if device.platform == "cpu" else device

    def on_start(self, run: Run) -> None:
        self._last = _now(run)

    def on_evaluation(self, run: Run) -> None:
        """Write a line if it is time to.

        Raises:
            InvalidArgumentError: the line can't be written.
        """
        if run.evaluations % run.config.monitor_every == 0:
            run.monitor = {"update": run.update, "steps": run.steps} | self._row(run)
            RunFolder(run.folder).append(run.monitor, "monitor.jsonl")

    def _row(self, run: Run) -> dict[str, Any]:
        """Describe the time since the last row. A value is None if this machine can't tell it."""
        before, now = self._last, _now(run)
        self._last = now
        seconds = now["time"] - before["time"]
        phases = {name: now[name] - before[name] for name in PHASES}
        shares = {f"{name}_share": spent / seconds for name, spent in phases.items()}
        rate = (now["steps"] - before["steps"]) / phases["train"] if phases["train"] else None
        row = {"seconds": seconds, "steps_per_s": rate, **shares}
        row["host_share"] = max(0.0, 1 - sum(shares.values()))
        if self._gpu is None:
            used = now["processor"] - before["processor"]
            row["device_utilisation"] = min(1.0, used / seconds / self._cores)
            row["device_memory_bytes"] = resident_bytes()
        else:
            row["device_utilisation"] = _utilisation(self._gpu.local_hardware_id)
            # What JAX's arrays and programs hold.
            row["device_memory_bytes"] = (self._gpu.memory_stats() or {}).get("bytes_in_use")
        return row | {"process_memory_bytes": resident_bytes()}


def _now(run: Run) -> dict[str, float]:
    return run.seconds | {
        "time": time.perf_counter(),
        "steps": run.steps,
        "processor": time.process_time(),
    }


def _utilisation(index: int) -> float | None:
    """Return the share of the last moments in which a kernel ran on a GPU, if NVML says it.

    NVML sees all GPUs, while `CUDA_VISIBLE_DEVICES` may hide or reorder them by number or UUID.

    Args:
        index: the number of the GPU in this process.
    """
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    name = visible[index] if index < len(visible) else str(index)
    with contextlib.suppress(Exception):  # Absent, of another version, or without a driver.
        import pynvml as nvml  # pyright: ignore[reportMissingImports]

        nvml.nvmlInit()
        if name.isdecimal():
            handle = nvml.nvmlDeviceGetHandleByIndex(int(name))
        else:
            handle = nvml.nvmlDeviceGetHandleByUUID(name)
        return nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    return None
