"""Trackers that also get a run's rows if you ask for it: TensorBoard, Weights & Biases."""

import contextlib
import dataclasses
import importlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from myriad.errors import InvalidArgumentError, NotInstalledError, UnknownNameError
from myriad.files import write_errors_explained
from myriad.training.active_settings import ActiveSetting
from myriad.training.callbacks import Callback, Run
from myriad.training.run_folder import Row


class Trackers(Callback):
    """Gives the rows of a run, and what its monitor says, to the trackers in `log_to`.

    They show the active settings beside the configuration.
    """

    def __init__(self, settings: Sequence[ActiveSetting]):
        self._settings = settings
        self._trackers: list[Any] = []

    def on_start(self, run: Run) -> None:
        """Start the trackers. If one can't start, those before it are closed."""
        described = run.config.values()
        described["settings"] = [dataclasses.asdict(each) for each in self._settings]
        with contextlib.ExitStack() as opened:
            for name in run.config.log_to:
                self._trackers.append(TRACKERS[name](run.folder, described))
                opened.callback(self._trackers[-1].close)
            self._opened = opened.pop_all()

    def on_evaluation(self, run: Run) -> None:
        rows: list[Row] = [*run.new_rows]
        if run.monitor.get("update") == run.update:
            known = {name: value for name, value in run.monitor.items() if value is not None}
            del known["update"], known["steps"]  # They are the row's.
            rows.append({f"monitor/{name}": value for name, value in known.items()})
        for row in rows:
            for tracker in self._trackers:
                tracker.log(row, run.steps)

    def on_end(self, run: Run) -> None:
        self._opened.close()


class TensorBoard:
    """Event files in the run's folder, for `tensorboard --logdir`."""

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        writers, self._event = self.library()
        # Not through tensorboardX's SummaryWriter, which hands rows to a thread. The thread loses
        # two minutes of rows if the process is killed, and dies if the disk is full.
        self._path = folder / "tensorboard"
        with write_errors_explained(self._path):
            self._path.mkdir(exist_ok=True)
            self._writer = writers.EventsWriter(str(self._path / "events"))
        described = json.dumps(dict(config), indent=2, default=str)
        # TensorBoard shows Markdown under "Text", in which an indented block is code.
        text = "".join(f"    {line}\n" for line in described.splitlines())
        self._write(
            0,
            {
                "tag": "config",
                "tensor": {"dtype": "DT_STRING", "string_val": [text.encode()]},
                "metadata": {"plugin_data": {"plugin_name": "text"}},
            },
        )

    @staticmethod
    def library() -> tuple[Any, Any]:
        """Return the module of writers and the class of events."""
        try:
            events = importlib.import_module("tensorboardX.proto.event_pb2")
            return importlib.import_module("tensorboardX.event_file_writer"), events.Event
        except ImportError as error:
            raise NotInstalledError("log_to 'tensorboard'", "tensorboardX", "track") from error

    def log(self, row: Row, step: int) -> None:
        self._write(step, *({"tag": name, "simple_value": float(row[name])} for name in row))

    def _write(self, step: int, *values: dict[str, Any]) -> None:
        with write_errors_explained(self._path):
            self._writer.write_event(
                self._event(wall_time=time.time(), step=step, summary={"value": values})
            )
            self._writer.flush()

    def close(self) -> None:
        with write_errors_explained(self._path):
            self._writer.close()


class WeightsAndBiases:
    """A run in Weights & Biases. `WANDB_MODE=offline` keeps it on this machine."""

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        # A resumed run keeps its id, with which its wandb folder's name `run-<time>-<id>` ends.
        ids = [path.name.rpartition("-")[2] for path in sorted(folder.glob("wandb/*run-*"))]
        wandb = self.library()
        try:
            self._run = wandb.init(
                project=config.get("wandb_project") or "myriad",
                name=config.get("wandb_name") or folder.name,
                # An empty list and not None, for which wandb would take the tags of WANDB_TAGS.
                tags=config.get("wandb_tags") or [],
                config=dict(config),
                dir=str(folder),
                id=ids[-1] if ids else None,
                resume="allow",
            )
        except wandb.errors.Error as error:
            says = f"log_to 'wandb' can't start: {error}; WANDB_MODE=offline needs no server."
            raise InvalidArgumentError(says) from error

    @staticmethod
    def library() -> Any:
        """Return the module."""
        try:
            return importlib.import_module("wandb")
        except ImportError as error:
            raise NotInstalledError("log_to 'wandb'", "wandb") from error

    def log(self, row: Row, step: int) -> None:
        self._run.log(dict(row), step=step)

    def close(self) -> None:
        self._run.finish()


TRACKERS = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def require_trackers(names: Sequence[str]) -> None:
    """Raise unless every tracker is known and installed.

    Call this before the run's folder is made, so that a mistake leaves no folder behind.

    Raises:
        UnknownNameError: there is no such tracker.
        NotInstalledError: its library is not installed.
    """
    for name in names:
        if name not in TRACKERS:
            raise UnknownNameError("tracker", name, TRACKERS)
        TRACKERS[name].library()
