"""The results of a training, as `train_and_evaluate` and `resume` return them."""

import dataclasses
import math
import statistics
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from myriad.errors import InvalidArgumentError, shown
from myriad.files import user_path
from myriad.timing import mean_interval
from myriad.training.config import TrainingConfig
from myriad.training.run_folder import Row, significant

__all__ = ["History", "Timings", "TrainingResults"]


class History(list[Row]):
    """The rows of a training in order, each a mapping from column to number."""

    def __repr__(self) -> str:
        """Return a table of the rows. Of more than ten, the first and the last five."""
        rows = self if len(self) <= 10 else [*self[:5], {}, *self[-5:]]
        cells = [
            [_cell(row.get(name, "" if row else "...")) for name in self.columns] for row in rows
        ]
        table = [self.columns, *cells]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ("  ".join(map(str.rjust, row, widths)) for row in table)
        return "\n".join(lines) if self.columns else "no rows yet"

    @property
    def columns(self) -> list[str]:
        """Every column, in the order of first appearance."""
        return list(dict.fromkeys(name for row in self for name in row))

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame, which writes CSV, Parquet and other files."""
        import pandas as pd

        return pd.DataFrame([*self], columns=pd.Index(self.columns))


@dataclasses.dataclass(frozen=True)
class Timings:
    """Where the time of a run went.

    Attributes:
        compile_s: seconds of tracing and compiling, or of loading what was compiled before.
        train_s: seconds of training, without evaluations.
        evaluate_s: seconds of evaluations.
        total_s: seconds of the whole run.
        steps_per_s: steps/s of all environments together while training; NaN if nothing was left
            to train.
    """

    compile_s: float
    train_s: float
    evaluate_s: float
    total_s: float
    steps_per_s: float


@dataclasses.dataclass(frozen=True, repr=False)
class TrainingResults:
    """The results of a training. Printed, they are a summary of some lines.

    Attributes:
        agent_state: the learner's state with its parameters. With `seeds` in the configuration it
            holds NumPy arrays with the axis of seeds first, `[M, ...]`.
        training: a row per window between evaluations: update, steps, episodes, mean return and
            the means of the metrics.
        evaluations: a row per evaluation: update, steps, mean return and its standard deviation
            over the episodes. With `seeds` in the configuration, both tables have a row for each
            seed and a column `seed`, and with a `grid` one for each of its fields.
        config: the configuration with every default filled in.
        timings: how long the training took. The rate is that of all seeds together.
        run_folder: the run's folder, which holds all of this.
        stopped: `end`, `target` if every seed reached the target return, or `callback` if one
            ended it.
        seeds: the seed of each training, in the order of everything that is listed by seed. A grid
            lists all seeds of its first point, then those of the next.
        final_returns: the mean return of each seed's last evaluation.
        reached_target: whether each seed stopped at the target return.
    """

    agent_state: Any
    training: History
    evaluations: History
    config: TrainingConfig
    timings: Timings
    run_folder: Path
    stopped: str
    seeds: tuple[int, ...]
    final_returns: tuple[float, ...]
    reached_target: tuple[bool, ...]

    def __repr__(self) -> str:
        config, timings = self.config, self.timings
        rate = "nothing was left to train"
        if not math.isnan(timings.steps_per_s):
            rate = f"{timings.steps_per_s:,.0f}"
        steps = config.num_envs * self.training[-1]["update"] * config.learner.steps_per_update
        best = significant(max(row["return"] for row in self.evaluations))
        many = "seeds" if config.grid is None else "trainings"
        lines = {
            "stopped at": self.stopped,
            "final return": self._final_return(),
            "evaluations": f"{len(self.evaluations)}, the best with a return of {best}",
            "steps/s": rate,
            "seconds": f"{timings.total_s:.2f}: compiling {timings.compile_s:.2f}, training "
            f"{timings.train_s:.2f}, evaluating {timings.evaluate_s:.2f}",
            "run folder": str(self.run_folder),
        }
        title = (
            f"{config.agent} on {config.env}, {config.num_envs:,} environments, "
            f"{steps:,} steps{f' of each of {len(self.seeds)} {many}' if config.seeds else ''}"
        )
        return "\n".join([title, *(f"{name:<15}{value}" for name, value in lines.items())])

    def plot(self, output: str | Path | None = None) -> Any:
        """Draw the returns of the evaluations over the steps, of many seeds with their interval.

        Args:
            output: a file to write, which ends in .png or .svg.

        Returns:
            matplotlib's `Figure`.

        Raises:
            InvalidArgumentError: `output` has another ending or can't be written.
            NotInstalledError: matplotlib is not installed.
        """
        from myriad.training.curves import learning_curves, save

        figure = learning_curves([(tomllib.loads(self.config.to_toml()), self.evaluations)])
        if output is not None:
            save(figure, user_path(output))
        return figure

    def _final_return(self) -> str:
        if self.config.seeds is None:
            last = self.evaluations[-1]
            episodes = f"{self.config.eval_rollouts} episodes"
            score, deviation = significant(last["return"]), significant(last["return_std"])
            return f"{score} +- {deviation} over {episodes}"
        of_points = self.returns_by_point()
        point, returns = max(of_points, key=lambda each: statistics.fmean(each[1]))
        mean, low, high = map(significant, (statistics.fmean(returns), *mean_interval(returns)))
        best = "" if self.config.grid is None else f", the best of {len(of_points)} points: "
        best += ", ".join(f"{name} = {value}" for name, value in point.items())
        return f"{mean}, of seeds {low} to {high} (95%){best}"

    def returns_by_point(self) -> list[tuple[dict[str, float], tuple[float, ...]]]:
        """Return each point of the grid with the final returns of its seeds."""
        points = self.config.points
        count = len(self.seeds) // len(points)
        return [
            (point, self.final_returns[place * count : (place + 1) * count])
            for place, point in enumerate(points)
        ]

    @property
    def mean_return(self) -> float:
        """The mean of the final returns, in a grid over all of its points."""
        return statistics.fmean(self.final_returns)

    @property
    def return_interval(self) -> tuple[float, float]:
        """Student's 95% interval of that mean, or NaNs for a single training."""
        return mean_interval(self.final_returns)

    def agent_state_of(self, seed: int, point: Mapping[str, float] | None = None) -> Any:
        """Return the state of one agent, as `evaluate` takes it.

        Args:
            seed: its seed.
            point: its values of the grid, if there is one.

        Raises:
            InvalidArgumentError: no training had this seed or point.
        """
        slot = slot_of(self.config, seed, point)
        if self.config.seeds is None:
            return self.agent_state
        return jax.tree.map(lambda leaf: leaf[slot], self.agent_state)


def slot_of(
    config: TrainingConfig, seed: int | None, point: Mapping[str, float] | None = None
) -> int:
    """Return the position of a training among those of a run.

    Args:
        config: the run.
        seed: the seed of the training. None if the run has a single one.
        point: its values of the grid. None if the grid has a single point.

    Raises:
        InvalidArgumentError: the run has no such training.
    """
    seeds, points = config.seeds or [config.seed], config.points
    for name, wanted, among in (("point", point, points), ("seed", seed, seeds)):
        one_of = f"must be one of the run's {name}s {shown(among)}"
        if wanted is None and len(among) > 1:
            raise InvalidArgumentError(name, f"{one_of}, since it trained each of them.")
        if wanted is not None and wanted not in among:
            raise InvalidArgumentError(name, one_of, wanted)
    place = 0 if point is None else points.index(dict(point))
    return place * len(seeds) + (0 if seed is None else seeds.index(seed))


def _cell(value: Any) -> str:
    """Return a number as people read it: whole numbers with commas."""
    if isinstance(value, int):
        return f"{value:,}"
    return significant(value) if isinstance(value, float) else str(value)
