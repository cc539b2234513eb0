"""Where a run's rows also go on request: TensorBoard, Weights & Biases."""

import importlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from myriad.errors import InvalidArgumentError, NotInstalledError, UnknownNameError
from myriad.tracking import Row, RunFolder, explained


class Tracker(Protocol):
    """A place beside the run's folder that a row of metrics also goes to."""

    def log(self, row: Row, step: int) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in the run's folder, for `tensorboard --logdir`."""

    def __init__(self, folder: RunFolder, config: Mapping[str, Any]):
        try:
            writers = importlib.import_module("tensorboardX.event_file_writer")
            self._event = importlib.import_module("tensorboardX.proto.event_pb2").Event
        except ImportError as error:
            raise NotInstalledError("log_to 'tensorboard' needs tensorboardX: pip install tensorboardX") from error
        # Its SummaryWriter hands rows to a thread, which loses two minutes at a kill and dies on a full disk.
        self._path = folder.path / "tensorboard"
        with explained(self._path):
            self._path.mkdir(exist_ok=True)
            self._writer = writers.EventsWriter(str(self._path / "events"))

    def log(self, row: Row, step: int) -> None:
        values = [{"tag": name, "simple_value": float(value)} for name, value in row.items()]
        with explained(self._path):
            self._writer.write_event(self._event(wall_time=time.time(), step=step, summary={"value": values}))
            self._writer.flush()

    def close(self) -> None:
        with explained(self._path):
            self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases; `WANDB_MODE=offline` keeps it on this machine."""

    def __init__(self, folder: RunFolder, config: Mapping[str, Any]):
        try:
            wandb = importlib.import_module("wandb")
        except ImportError as error:
            raise NotInstalledError("log_to 'wandb' needs wandb: pip install wandb") from error
        # A resumed run goes on under the id that its folder's name ends with, `run-<time>-<id>`.
        ids = [path.name.rpartition("-")[2] for path in sorted(folder.path.glob("wandb/*run-*"))]
        given = {"project": os.environ.get("WANDB_PROJECT", "myriad"), "name": folder.path.name, "config": dict(config)}
        try:
            self._run = wandb.init(**given, dir=str(folder.path), id=ids[-1] if ids else None, resume="allow")
        except wandb.errors.Error as error:
            what = " ".join(str(error).split()).rstrip(".")
            raise InvalidArgumentError(
                f"log_to 'wandb' can't start: {what}; WANDB_MODE=offline keeps the run on this machine."
            ) from error

    def log(self, row: Row, step: int) -> None:
        self._run.log(dict(row), step=step)

    def close(self) -> None:
        self._run.finish()


TRACKERS = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def make_trackers(names: Sequence[str], folder: RunFolder, config: Mapping[str, Any]) -> list[Tracker]:
    """Build the trackers called `names`; raises UnknownNameError or NotInstalledError."""
    for name in names:
        if name not in TRACKERS:
            raise UnknownNameError("tracker", name, TRACKERS)
    return [TRACKERS[name](folder, config) for name in names]
