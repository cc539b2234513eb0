"""`myriad tune`, whose flags are the fields of `TuneSettings`."""

import contextlib
import dataclasses
import itertools
import logging
import math
import time
from collections.abc import Iterator
from typing import Any

import tyro

from myriad.cli.flags import XlaFlags
from myriad.cli.training_flags import fields_of
from myriad.errors import InvalidArgumentError
from myriad.files import say, unwritable
from myriad.settings import Settings
from myriad.tuning.settings import GROWS, TuneSettings

# The exit code if all trials failed, and the number that a shell adds to a fatal signal's.
_FAILED = 1
_BY_SIGNAL = 128


@dataclasses.dataclass(frozen=True)
class Tune(XlaFlags, TuneSettings):
    """Search for hyperparameters in trials, then train the best few and the default again.

    Set what all trials share by dotted name, such as --env.gravity 3.7 or --agent.max-grad-norm 1.
    """

    options: tyro.conf.Suppress[dict[str, Any]] = dataclasses.field(default_factory=dict)
    """The options given by dotted name."""

    def __post_init__(self):
        """Leave the checks to `settings`, since tyro would wrap an error raised here."""

    def settings(self) -> TuneSettings:
        """Return the settings of the study, without the flags of the command itself.

        Its trainings use the settings of variables and `.env`, as `myriad train` does. Options that
        the search space sets in every trial are left out.
        """
        from myriad.agents import AGENTS
        from myriad.tuning.space import SearchSpace

        names = [field.name for field in dataclasses.fields(TuneSettings)]
        given = TuneSettings(**{name: getattr(self, name) for name in names})
        agent = AGENTS.resolve(given.agent)
        space = SearchSpace.load(agent, file=given.space)
        network = given.options.get("agent.network", space.fixed.get("agent.network", "mlp"))
        switched, _ = fields_of(vars(Settings.read()), agent, network)
        options = {
            name: value
            for name, value in switched.items()
            if name.startswith("agent.") and name not in space.names
        }
        return dataclasses.replace(given, options=options | {**given.options})

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
            says = f"must be a folder that can be written to, but {settings.output} {problem}."
            raise InvalidArgumentError("output", says)
        with shown_progress(settings) as callbacks:
            result = tune(settings, callbacks)
        with result:
            print(summary(result))
            print(*write_report(result), sep="\n")
        if result.ended_by:
            return _BY_SIGNAL + result.ended_by
        return _FAILED if result.best is None and settings.n_trials else 0


@contextlib.contextmanager
def shown_progress(settings: TuneSettings) -> Iterator[list[Any]]:
    """Print what a campaign does, and a line for each trial that has ended.

    Yields:
        the callbacks of the study that do so.
    """
    if settings.quiet:
        yield []
        return
    logger, said = logging.getLogger("myriad.tuning"), logging.Handler()
    said.emit = lambda record: say(record.getMessage())
    words = {"COMPLETE": "done", "PRUNED": "pruned", "FAIL": "failed"}
    objective = settings.objectives[0]
    start, num_ended, values = time.monotonic(), itertools.count(1), []

    def count(_: Any, trial: Any) -> None:
        number = next(num_ended)
        left_s = (settings.n_trials - number) * (time.monotonic() - start) / number
        if trial.state.name == "COMPLETE":
            values.append(trial.values[0])
        best = (max if GROWS[objective] else min)(values, default=math.nan)
        logger.info(
            "trial %d %s%s; best %s %.4g, %d of %d trials, %.0f s left",
            trial.number,
            words[trial.state.name],
            f": {trial.user_attrs['failure']}" if trial.state.name == "FAIL" else "",
            *(objective, best, number, settings.n_trials, left_s),
        )

    logger.setLevel(logging.INFO)
    logger.addHandler(said)
    try:
        yield [count]
    finally:
        logger.removeHandler(said)
