"""The callbacks of every training: rows, the target, and what its configuration asks for."""

from collections.abc import Sequence

from myriad.training.active_settings import ActiveSetting
from myriad.training.callbacks import Callback, Run
from myriad.training.callbacks.films import Films
from myriad.training.callbacks.monitor import Monitor
from myriad.training.callbacks.profile import Profile
from myriad.training.callbacks.progress import Progress
from myriad.training.callbacks.trackers import Trackers
from myriad.training.config import TrainingConfig
from myriad.training.metrics import training_of
from myriad.training.run_folder import RunFolder


class Metrics(Callback):
    """Writes `metrics.jsonl`."""

    def __init__(self, folder: RunFolder):
        self._folder = folder

    def on_evaluation(self, run: Run) -> None:
        for row in run.new_rows:
            self._folder.append(row)


class Target(Callback):
    """Stops each training whose evaluation reaches the target return."""

    def __init__(self, target: float):
        self._target = target

    def on_start(self, run: Run) -> None:
        self.on_evaluation(run)

    def on_evaluation(self, run: Run) -> None:
        for row in run.new_rows:
            if row["eval_return"] >= self._target:
                run.stopped[training_of(row)] = row["steps"]


def built_in_callbacks(
    config: TrainingConfig,
    folder: RunFolder,
    *,
    quiet: bool = False,
    profile_chunks: int = 0,
    settings: Sequence[ActiveSetting] = (),
) -> list[Callback]:
    """Return the callbacks of a training, in the order in which they are called.

    Args:
        config: the training.
        folder: the run's folder.
        quiet: show no progress.
        profile_chunks: chunks to trace into the folder.
        settings: the active settings, for the trackers.
    """
    callbacks: list[Callback] = [Metrics(folder)]
    if config.target_return is not None:
        callbacks.append(Target(config.target_return))
    if config.film_every:
        callbacks.append(Films(config, folder.path / "films"))
    # The trackers and the progress also show what the monitor says.
    if config.monitor_every:
        callbacks.append(Monitor(folder, config.monitor_every))
    if config.log_to:
        callbacks.append(Trackers(folder, settings))
    if not quiet:
        callbacks.append(Progress())
    if profile_chunks:
        callbacks.append(Profile(folder, profile_chunks))
    return callbacks
