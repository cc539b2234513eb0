"""The progress of a campaign as a live line, and its results as lines at the end."""

import math
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Self

from optuna.trial import FrozenTrial

from myriad.files import say
from myriad.tuning.campaign import ENDINGS, Event
from myriad.tuning.objective import Score
from myriad.tuning.report import best_config, command_to_go_on, train_command
from myriad.tuning.session import TuneResult
from myriad.tuning.settings import GROWS, TuneSettings
from myriad.tuning.study import FAILURE, retried

# Seconds between two lines if there is no terminal.
_EVERY_S = 30.0


class CampaignProgress:
    """Shows trials done, pruned and failed, the best, the rate and the time left on standard error.

    Args:
        settings: the campaign.
    """

    def __init__(self, settings: TuneSettings):
        self.counts = dict.fromkeys(ENDINGS, 0)
        self.best = -math.inf
        self.compile_s = 0.0
        self._settings = settings
        self._start = self._said_at = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Self:
        if not self._settings.quiet and sys.stderr is not None and sys.stderr.isatty():
            from rich import console, progress

            self._bar = progress.Progress(
                progress.BarColumn(),
                progress.TextColumn("{task.description}", markup=False),
                console=console.Console(stderr=True),
            )
            self._task = self._bar.add_task(str(self), total=self._settings.n_trials)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def ended(self) -> int:
        """The number of trials that were completed, pruned or failed."""
        return sum(self.counts.values())

    def hear(self, event: Event) -> None:
        """Count an event, and show the progress."""
        self.compile_s += event.seconds
        if event.kind in self.counts:
            self.counts[event.kind] += 1
        if event.kind in ("resumed", "completed") and event.value > self.best:
            self.best = event.value
        trial = event.trial
        sentence = {
            "resumed": f"study {self._settings.study_name} is resumed: {event.reason}",
            "compiling": f"compiling the programs of trial {trial} ...",
            "compiled": f"the programs of trial {trial} are ready after {event.seconds:.1f} s",
            "confirming": "the best trials train again beside the default, on fresh seeds",
            "failed": f"trial {trial} failed: {event.reason}",
            "lost": f"trial {trial} is run again: {event.reason}",
        }.get(event.kind)
        if sentence is not None and not self._settings.quiet:
            self._say(sentence)
        if self._bar is not None:
            self._bar.update(self._task, completed=self.ended, description=str(self))
        elif not self._settings.quiet and time.monotonic() - self._said_at >= _EVERY_S:
            self._said_at = time.monotonic()
            say(str(self))

    def __str__(self) -> str:
        """Return the progress in one line."""
        elapsed_s = time.monotonic() - self._start
        completed, pruned, failed = self.counts.values()
        best = "-" if self.best == -math.inf else f"{self.best:.4g}"
        rate = self.ended / elapsed_s
        left_s = (self._settings.n_trials - self.ended) / rate if rate else math.inf
        left_s = min(left_s, (self._settings.timeout or math.inf) - elapsed_s)
        left = "-" if left_s == math.inf else f"{max(0.0, left_s):.0f} s"
        return (
            f"{completed} of {self._settings.n_trials} trials done, {pruned} pruned, "
            f"{failed} failed, best return {best}, {3600 * rate:.0f} trials/hour, "
            f"compiling {self.compile_s:.0f} s, {left} left"
        )

    def _say(self, sentence: str) -> None:
        if self._bar is not None:
            self._bar.console.print(sentence, highlight=False, markup=False)
        else:
            say(sentence)


def summary(result: TuneResult, files: list[Path]) -> str:
    """Return the results of a campaign: the best next to the default, and how to train it."""
    settings = result.settings
    trials = result.study.get_trials(deepcopy=False)
    again = retried(trials)
    states = [trial.state.name for trial in trials if trial.number not in again]
    shown = ", ".join(
        f"{states.count(state)} {word}"
        for state, word in (
            ("COMPLETE", "completed"),
            ("PRUNED", "pruned"),
            ("FAIL", "failed"),
            ("WAITING", "waiting"),
        )
        if state in states
    )
    took = f"{result.total_s:.1f} s, compiling {result.compile_s:.1f} s"
    lines = [f"study {settings.study_name}: {shown or 'no trials'}; {took}"]
    lines += _best_lines(result)
    if result.is_interrupted:
        lines.append(_how_to_go_on(result))
    lines += [str(path) for path in files]
    return "\n".join(lines)


def _best_lines(result: TuneResult) -> list[str]:
    if result.best is None:
        return ["no trial was completed, so there is no best", *_most_frequent_failure(result)]
    settings = result.settings
    lines = _confirmation_lines(result, result.best)
    if len(settings.objectives) > 1:
        lines += _front(result)
    if result.validation is not None:
        count = len(result.validation.by_seed)
        lines.append(f"validated: return {_interval(result.validation)} over {count} seeds")
    elif settings.validate and not result.is_interrupted:
        lines.append("not validated: it failed on one of the seeds")
    if result.ensemble is not None:
        together = result.ensemble
        lines.append(
            f"ensemble: return {_interval(together.score)} by {together.combined} of trials "
            f"{', '.join(map(str, together.trials))}; trial {together.trials[0]} alone "
            f"{together.alone[0].value:.5g}"
        )
    elif settings.ensemble and not result.is_interrupted:
        lines.append("no ensemble: fewer than two of the best could be trained again")
    width = max(map(len, result.fields), default=0)
    lines += [f"  {name.ljust(width)}  {value}" for name, value in result.fields.items()]
    return [*lines, train_command(best_config(result))]


def _confirmation_lines(result: TuneResult, best: FrozenTrial) -> list[str]:
    """Return lines with the score of the best on fresh seeds, or else in its trial."""
    confirmed = result.confirmation
    candidates = confirmed.candidates if confirmed is not None else ()
    chosen = next((each for each in candidates if each.number == best.number), None)
    lines = []
    if chosen is not None:
        lines.append(f"best: trial {best.number}, return {_interval(chosen.score)} on fresh seeds")
    else:
        named = zip(result.settings.objectives, best.values or (), strict=True)
        values = ", ".join(f"{name} {value:.5g}" for name, value in named)
        lines.append(f"best: trial {best.number}, {values}; not confirmed on fresh seeds")
    if confirmed is None:
        return lines
    if confirmed.default is not None:
        lines.append(f"default: return {_interval(confirmed.default.score)} on the same")
    for failure in confirmed.failures:
        who = "the default" if failure.number is None else f"trial {failure.number}"
        lines.append(f"{who} failed on fresh seeds: {failure.reason}")
    return [*lines, confirmed.verdict]


def _most_frequent_failure(result: TuneResult) -> list[str]:
    trials = result.study.get_trials(deepcopy=False)
    again = retried(trials)
    reasons = Counter(
        str(trial.user_attrs[FAILURE])
        for trial in trials
        if FAILURE in trial.user_attrs and trial.number not in again
    )
    return [f"{count} failed: {reason}" for reason, count in reasons.most_common(1)]


def _front(result: TuneResult) -> list[str]:
    """Return a line for each trial of the Pareto front, the best by the first objective first."""
    names = result.settings.objectives
    sign = -1 if GROWS[names[0]] else 1
    front = sorted(result.study.best_trials, key=lambda trial: sign * trial.values[0])
    return ["Pareto front:"] + [
        f"  trial {trial.number}: "
        + ", ".join(f"{name} {value:.5g}" for name, value in zip(names, trial.values, strict=True))
        for trial in front
    ]


def _interval(score: Score) -> str:
    low, high = score.interval()
    return f"{score.value:.5g} ({low:.5g} to {high:.5g})"


def _how_to_go_on(result: TuneResult) -> str:
    left = max(0, result.settings.n_trials - result.num_ended)
    command = command_to_go_on(result.settings, left)
    if command is None:
        return "interrupted; the study was in memory: name a --storage to be able to go on"
    return f"interrupted; go on with: {command}"
