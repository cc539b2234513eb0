"""`myriad tune`, whose flags are the fields of `TuneSettings`."""

import dataclasses
from typing import Any

import tyro

from myriad.cli.flags import XlaFlags
from myriad.tuning.settings import TuneSettings

# What a shell reports of a process that SIGINT ended.
_INTERRUPTED = 130


@dataclasses.dataclass(frozen=True)
class Tune(TuneSettings, XlaFlags):
    """Find hyperparameters: run trials, and train the best again beside the default.

    Give what all trials share by dotted name, such as --env.gravity 3.7 or --agent.gamma 0.9.
    """

    options: tyro.conf.Suppress[dict[str, Any]] = dataclasses.field(default_factory=dict)
    """What was given by dotted name."""

    def __post_init__(self):
        """Leave the checks to `settings`: tyro would put words around an error of here."""

    def settings(self) -> TuneSettings:
        """Return the campaign without what belongs to the command alone."""
        names = [field.name for field in dataclasses.fields(TuneSettings)]
        return TuneSettings(**{name: getattr(self, name) for name in names})

    def run(self) -> int:
        """Tune, write the report, and print what came of it.

        Returns:
            0, or 130 if you interrupted it.

        Raises:
            MyriadError: see `myriad.tuning.tune`. No study is made if the settings can't be used.
        """
        from myriad.tuning import tune
        from myriad.tuning.progress import Progress, summary
        from myriad.tuning.report import write_report

        settings = self.settings().completed()
        with Progress(settings) as progress:
            result = tune(settings, progress.hear)
        with result:
            print(summary(result, write_report(result)))
        return _INTERRUPTED if result.is_interrupted else 0
