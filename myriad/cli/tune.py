"""`myriad tune`, whose flags are the fields of `TuneSettings`."""

import dataclasses
import logging
import math
import sys
import time
from collections import Counter
from typing import Any, Self

import tyro

from myriad.cli.flags import XlaFlags
from myriad.cli.training_flags import fields_of, name_attention
from myriad.errors import InvalidArgumentError, MyriadError
from myriad.files import say, unwritable
from myriad.settings import Settings
from myriad.tuning.settings import GROWS, TuneSettings

# The exit code if all trials failed, and the number that a shell adds to a fatal signal's.
_FAILED = 1
_BY_SIGNAL = 128
# Seconds between two lines of progress if there is no terminal.
_EVERY_S = 30.0


@dataclasses.dataclass(frozen=True)
class Tune(TuneSettings, XlaFlags):
    """Search for hyperparameters in trials, then train the best few and the default again.

    Set what all trials share by dotted name, such as --env.gravity 3.7 or --agent.max-grad-norm 1.
    """

    options: tyro.conf.Suppress[dict[str, Any]] = dataclasses.field(default_factory=dict)
    """The options given by dotted name."""

    def __post_init__(self):
        """Leave the checks to `settings`, since tyro would wrap an error raised here."""

    def settings(self) -> TuneSettings:
        """Return the settings of the study, without the flags of the command itself.

        Its trainings use the settings of variables and `.env`, as `myriad train` does.
        """
        names = [field.name for field in dataclasses.fields(TuneSettings)]
        given = TuneSettings(**{name: getattr(self, name) for name in names})
        return dataclasses.replace(given, options=switched_options(given) | {**given.options})

    def run(self) -> int:
        """Tune, write the report and print a summary.

        Returns:
            0, or 1 if no trial was completed, 130 after an interrupt, or 143 after SIGTERM.

        Raises:
            MyriadError: see `myriad.tuning.tune`. No study is made if the settings can't be used
                or if the output folder can't be written to.
        """
        from myriad.tuning import tune
        from myriad.tuning.report import summary, write_report

        settings = self.settings().completed()
        if (problem := unwritable(settings.output)) is not None:
            raise InvalidArgumentError(
                "output",
                f"must be a folder that can be written to, but {settings.output} {problem}.",
            )
        with TuneProgress(settings) as progress:
            result = tune(settings, [progress.count])
        with result:
            try:
                files = write_report(result)
            except MyriadError:
                print(summary(result, []))
                raise
            print(summary(result, files))
        if result.is_interrupted:
            return _BY_SIGNAL + result.ended_by
        return _FAILED if result.best is None and settings.n_trials else 0


class TuneProgress(logging.Handler):
    """Shows what a campaign does, the trials that ended and the time left on standard error.

    Args:
        settings: the campaign.
    """

    def __init__(self, settings: TuneSettings):
        super().__init__()
        self._settings = settings
        self._start = self._said_at = time.monotonic()
        self._ended: list[Any] = []
        self._bar: Any = None
        self._logger = logging.getLogger("myriad.tuning")

    def __enter__(self) -> Self:
        if self._settings.quiet:
            return self
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)
        if sys.stderr is not None and sys.stderr.isatty():
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
        self._logger.removeHandler(self)
        if self._bar is not None:
            self._bar.stop()

    def emit(self, record: logging.LogRecord) -> None:
        """Show a sentence, above the bar if there is one."""
        if self._bar is not None:
            self._bar.console.print(record.getMessage(), highlight=False, markup=False)
        else:
            say(record.getMessage())

    def count(self, study: Any, trial: Any) -> None:
        """Count a trial that has ended, as a callback of the study."""
        self._ended.append(trial)
        if trial.state.name == "FAIL":
            self._logger.info("trial %d failed: %s", trial.number, trial.user_attrs["failure"])
        if self._bar is not None:
            self._bar.update(self._task, completed=len(self._ended), description=str(self))
        elif not self._settings.quiet and time.monotonic() - self._said_at >= _EVERY_S:
            self._said_at = time.monotonic()
            say(str(self))

    def __str__(self) -> str:
        """Return the progress in one line."""
        elapsed_s = time.monotonic() - self._start
        states = Counter(trial.state.name for trial in self._ended)
        objective = self._settings.objectives[0]
        values = [trial.values[0] for trial in self._ended if trial.state.name == "COMPLETE"]
        best = (max if GROWS[objective] else min)(values, default=None)
        rate = len(self._ended) / elapsed_s
        left_s = (self._settings.n_trials - len(self._ended)) / rate if rate else math.inf
        left_s = max(0.0, min(left_s, (self._settings.timeout or math.inf) - elapsed_s))
        left = "-" if left_s == math.inf else f"{left_s:.0f} s"
        return (
            f"{states['COMPLETE']} of {self._settings.n_trials} trials done, "
            f"{states['PRUNED']} pruned, {states['FAIL']} failed, "
            f"best {objective} {'-' if best is None else f'{best:.4g}'}, "
            f"{3600 * rate:.0f} trials/hour, {left} left"
        )


def switched_options(settings: TuneSettings) -> dict[str, Any]:
    """Return the options of the agent that variables and `.env` set, by dotted name.

    Options that the search space sets in every trial are left out.
    """
    from myriad.agents import AGENTS
    from myriad.tuning.space import SearchSpace

    agent = AGENTS.resolve(settings.agent)
    space = SearchSpace.load(agent, file=settings.space)
    network = settings.options.get("agent.network", space.fixed.get("agent.network", "mlp"))
    switched = fields_of(Settings.read().switches(), agent, network)
    dtype = (switched | {**settings.options}).get("agent.compute_dtype", "float32")
    name_attention(switched, dtype)
    return {
        name: value
        for name, value in switched.items()
        if name.startswith("agent.") and name not in space.names
    }
