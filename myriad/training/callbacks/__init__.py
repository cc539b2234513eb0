"""Callbacks: what a training tells while it runs, and how you end it early.

The trainer calls those of `built_in.py` and then yours.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from myriad.errors import InvalidArgumentError
from myriad.ranges import Number, ranges_of
from myriad.training.config import TrainingConfig

__all__ = ["Callback", "Run"]

Row = dict[str, Any]
# The trainer's phases, one after another. All other time is the host's.
PHASES = ("train", "evaluate", "log", "save")


@dataclasses.dataclass
class Run:
    """What a callback may read of a training. The trainer keeps it up to date.

    With `M` seeds, `M` trainings run side by side, else a single one. In a grid, each of its points
    has all seeds.

    Attributes:
        config: the configuration with every default filled in.
        folder: the run's folder.
        seeds: the seed of each training, `[M]`, or None for the only one.
        num_updates: updates in the whole training.
        steps_per_update: steps of all environments of one training in an update.
        agent_of: returns the learner's state of a training's `state`.
        state: the whole state, which holds the environments and the replay buffer, too. It is None
            while a chunk has its memory.
        update: updates that each training has done.
        evaluations: evaluations so far.
        rows: the lines of `metrics.jsonl` so far. With many seeds, each has a `seed`, and in a grid
            its values.
        new_rows: the newest row of each training; at an evaluation only of those that still train.
        monitor: the newest line of `monitor.jsonl`; empty before the first.
        seconds: the seconds that each of `PHASES` took so far.
        steps_per_s: steps/s of all environments together while training; NaN at first.
        stopped: the steps of each training that has stopped at the target, by its seed; in a grid
            by a tuple of its values and its seed.
        is_ending: whether a callback has called `stop`.
        env_params: the parameters that `set_env` can change, with the values that train now.
        can_set_env: whether `set_env` can be called.
    """

    config: TrainingConfig
    folder: Path
    seeds: Sequence[int | None]
    num_updates: int
    steps_per_update: int
    agent_of: Callable[[Any], Any]
    state: Any = dataclasses.field(default=None, repr=False)
    update: int = 0
    evaluations: int = 0
    rows: list[Row] = dataclasses.field(default_factory=list)
    new_rows: list[Row] = dataclasses.field(default_factory=list)
    monitor: Row = dataclasses.field(default_factory=dict)
    seconds: dict[str, float] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(PHASES, 0.0)
    )
    steps_per_s: float = math.nan
    stopped: dict[int | None, int] = dataclasses.field(default_factory=dict)
    is_ending: bool = False
    env_params: dict[str, float] = dataclasses.field(default_factory=dict)
    can_set_env: bool = False

    @property
    def steps(self) -> int:
        """Steps of all environments of all trainings together so far."""
        return self._steps_at(self.update)

    @property
    def total_steps(self) -> int:
        """The steps at the end of the run: fewer once a training has stopped at the target."""
        return self._steps_at(self.num_updates)

    @property
    def agent_state(self) -> Any:
        """The learner's state with its parameters; with many seeds `[M, ...]`, as NumPy arrays.

        Raises:
            InvalidArgumentError: you read it in `on_update`, or once the run has ended.
        """
        if self.state is None:
            raise InvalidArgumentError("agent_state: read it in on_evaluation, not in on_update.")
        return self.agent_of(self.state)

    def stop(self) -> None:
        """End the run after the next evaluation, or after this one if you call it there.

        A run that is resumed ends at once if you call this in `on_start`.
        """
        self.is_ending = True

    def set_env(self, **values: float) -> None:
        """Change parameters of the environments that train, without compiling.

        Call it in `on_start` or `on_evaluation`. It acts from the next update on, also for running
        episodes, and for all seeds. Evaluations go on with the values of the configuration.

        Raises:
            InvalidArgumentError: you call it elsewhere, a value is out of its range, or a parameter
                is not a float or is part of the program.
            UnknownNameError: there is no such parameter.
        """
        if not self.can_set_env:
            raise InvalidArgumentError("set_env can be called in on_start and on_evaluation only.")
        from myriad.envs.vector import as_float32, require_changeable

        env = self.config.environment
        ranges = ranges_of(env.default_params)
        for name, value in values.items():
            if name not in self.env_params:
                require_changeable(env, name)
            ranges.get(name, Number()).require(name, value)
        new = {name: as_float32(value) for name, value in values.items()}
        self.env_params = self.env_params | new

    def _steps_at(self, update: int) -> int:
        running = len(self.seeds) - len(self.stopped)
        return running * update * self.steps_per_update + sum(self.stopped.values())


class Callback:
    """The base of all callbacks: override what you need. By default nothing happens.

    No method may raise, or the run ends with that error.

    Example:
        >>> class StopAt(Callback):
        ...     def on_evaluation(self, run):
        ...         if run.new_rows[0]["eval_return"] >= 400:
        ...             run.stop()
    """

    def on_start(self, run: Run) -> None:
        """Do something before the first update of this process. A resumed run has its rows."""

    def on_update(self, run: Run) -> None:
        """Do something after a chunk, which is one update or several."""

    def on_evaluation(self, run: Run) -> None:
        """Do something after an evaluation."""

    def on_checkpoint(self, run: Run) -> None:
        """Do something after a checkpoint was saved."""

    def on_end(self, run: Run) -> None:
        """Do something at the end of the run, an interrupt and an error included."""
