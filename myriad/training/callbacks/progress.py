"""The progress of a training: a live line on a terminal, else lines.

A line comes after the first call, and then every half minute.
"""

import math
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from myriad.files import say
from myriad.timing import mean_interval
from myriad.training.callbacks import Callback, Run
from myriad.training.run_folder import significant, training_of

# Seconds between two lines if there is no terminal.
_EVERY_S = 30.0
# Columns of a terminal that hold everything in one line, and in two.
_WIDTHS = (150, 80)


class Progress(Callback):
    """Shows steps, steps/s, return, time elapsed and time left on standard error."""

    def __init__(self):
        self._bar: Any = None
        self._task: Any = None
        # The newest return of each training, by its seed.
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

        terminal = console.Console(stderr=True)
        fits_all, fits_most = (terminal.width >= width for width in _WIDTHS)
        said = "{task.fields[steps]} steps  {task.fields[rate]}"
        said += "  " if fits_all else "\n"
        said += "return {task.fields[score]}" + "{task.fields[monitored]}" * fits_most
        wrapped = table.Column(overflow="fold", no_wrap=False)
        columns = [
            *[progress.TextColumn("training"), progress.BarColumn()] * fits_all,
            progress.TextColumn(said, table_column=wrapped),
            *[progress.TimeElapsedColumn()] * fits_most,
            progress.TimeRemainingColumn(),
        ]
        self._bar = progress.Progress(*columns, console=terminal)
        fields = {"steps": "0", "rate": "", "score": "-", "monitored": ""}
        total, done = run.total_steps, run.steps
        self._task = self._bar.add_task("training", total=total, completed=done, **fields)
        self._bar.start()

    def on_update(self, run: Run) -> None:
        """Show the steps, the speed and what the newest evaluation said."""
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
        """Remember the mean of the newest returns, of several with its interval."""
        self._monitored = summary(run.monitor) if run.monitor else ""
        self._returns |= {training_of(row): row["eval_return"] for row in rows}
        returns = list(self._returns.values())
        if not returns:
            return
        low, high = mean_interval(returns)
        self._score = significant(statistics.fmean(returns))
        if not math.isnan(low):
            self._score += f" ({significant(low)} to {significant(high)})"
        if len(returns) > 1 and run.stopped:
            what = "seeds" if run.config.grid is None else "trainings"
            self._score += f", {len(run.stopped)} of {len(returns)} {what} at the target"


def summary(row: dict[str, Any]) -> str:
    """Return a row as the progress line shows it: "train 93%, evaluate 4%, device 87%"."""
    shares = [f"{name} {row[f'{name}_share']:.0%}" for name in ("train", "evaluate")]
    used = row["device_utilisation"]
    shares.append("device unavailable" if used is None else f"device {used:.0%}")
    held = row["device_memory_bytes"]
    shares.append("memory unavailable" if held is None else f"{held / 2**20:,.0f} MiB")
    return ", ".join(shares)
