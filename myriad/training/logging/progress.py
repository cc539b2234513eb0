"""The progress of a training: a live line on a terminal, else a line every half minute."""

import math
import sys
import time

from myriad.files import say

# Seconds between two lines if there is no terminal.
_EVERY_S = 30.0


class Progress:
    """Shows steps, steps/s, return, time elapsed and time left on standard error.

    Args:
        total_steps: steps of all environments together in the whole training.
        quiet: show nothing.
    """

    def __init__(self, total_steps: int, *, quiet: bool):
        self._bar = None
        self._task = None
        self._quiet = quiet
        self._total_steps = total_steps
        self._first_steps = 0
        self._begun_at = self._said_at = time.monotonic()
        self._monitored = ""
        if quiet or sys.stderr is None or not sys.stderr.isatty():
            return
        from rich import console, progress

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn(
                "{task.fields[steps]} steps  {task.fields[rate]}  return {task.fields[score]}"
                "{task.fields[monitored]}"
            ),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=console.Console(stderr=True),
        )
        self._task = self._bar.add_task(
            "compiling", total=total_steps, steps="0", rate="", score="-", monitored=""
        )
        self._bar.start()

    def say(self, sentence: str) -> None:
        """Print a line above the live line, or by itself if there is no terminal."""
        if self._bar is not None:
            self._bar.console.print(sentence, highlight=False, markup=False)
        elif not self._quiet:
            say(sentence)

    def begin(self, steps: int) -> None:
        """Show that it trains, and count the time from now, after `steps` of an earlier process."""
        self._first_steps = steps
        self._begun_at = self._said_at = time.monotonic()
        if self._bar is not None and self._task is not None:
            self._bar.reset(self._task, completed=steps, description="training")

    def monitor(self, summary: str) -> None:
        """From now on also show where the time goes."""
        self._monitored = f"  {summary}"

    def shorten(self, total_steps: int) -> None:
        """Expect fewer steps in the whole training, since a part of it stopped early."""
        self._total_steps = total_steps
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=total_steps)

    def update(self, steps: int, rate: float, score: str | None) -> None:
        """Show the progress.

        Args:
            steps: steps of all environments together so far.
            rate: speed in steps/s.
            score: the last evaluation's mean return, None before the first.
        """
        shown = "-" if score is None else score
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                completed=steps,
                steps=f"{steps:,}",
                rate=f"{rate:,.0f}/s",
                score=shown,
                monitored=self._monitored,
            )
        elif not self._quiet and (now := time.monotonic()) - self._said_at >= _EVERY_S:
            self._said_at = now
            # Evaluations and saves take time as well, so the rate of training would promise less.
            done = steps - self._first_steps
            spent_s = now - self._begun_at
            left_s = (self._total_steps - steps) * spent_s / done if done else math.inf
            say(
                f"{steps:,} of {self._total_steps:,} steps, {rate:,.0f}/s, return {shown}, "
                f"{left_s:,.0f} s left{self._monitored and f' ({self._monitored.strip()})'}"
            )

    def close(self) -> None:
        """Stop updating, and leave the line as it is."""
        if self._bar is not None:
            self._bar.stop()
