"""The live line that a training shows on a terminal."""

import sys


class Progress:
    """Steps, steps/s, return and time left on standard error, if that is a terminal.

    Args:
        total_steps: steps of all environments together in the whole training.
        quiet: show nothing, also on a terminal.
    """

    def __init__(self, total_steps: int, *, quiet: bool):
        self._bar = None
        self._task = None
        if quiet or not sys.stderr.isatty():
            return
        from rich import console, progress

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn(
                "{task.fields[steps]} steps  {task.fields[rate]}  return {task.fields[score]}"
            ),
            progress.TimeRemainingColumn(),
            console=console.Console(stderr=True),
        )
        self._task = self._bar.add_task(
            "training", total=total_steps, steps="0", rate="", score="-"
        )
        self._bar.start()

    def say(self, sentence: str) -> None:
        """Print a line above the bar."""
        if self._bar is not None:
            self._bar.console.print(sentence, highlight=False)

    def update(self, steps: int, rate: float, score: float | None) -> None:
        """Show how far the training is.

        Args:
            steps: steps of all environments together so far.
            rate: in steps/s.
            score: the last evaluation's mean return, None before the first.
        """
        if self._bar is not None and self._task is not None:
            shown = "-" if score is None else f"{score:.1f}"
            self._bar.update(
                self._task, completed=steps, steps=f"{steps:,}", rate=f"{rate:,.0f}/s", score=shown
            )

    def close(self) -> None:
        """Leave the line as it stands."""
        if self._bar is not None:
            self._bar.stop()
