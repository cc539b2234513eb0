"""The results of a training, as `train_and_evaluate` and `resume` return them."""

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from myriad.errors import InvalidArgumentError, shown
from myriad.timing.intervals import mean_interval
from myriad.training.config import TrainingConfig
from myriad.training.metrics import History


@dataclasses.dataclass(frozen=True)
class Timings:
    """Where the time of a run went.

    Attributes:
        compile_s: seconds of tracing and compiling, or of loading what was compiled before.
        train_s: seconds of training, without evaluations.
        evaluate_s: seconds of evaluations.
        total_s: seconds of the whole run.
        steps_per_s: steps/s of all environments together while training.
    """

    compile_s: float
    train_s: float
    evaluate_s: float
    total_s: float
    steps_per_s: float


@dataclasses.dataclass(frozen=True)
class TrainingResults:
    """The results of a training.

    Attributes:
        agent_state: the learner's state with its parameters.
        training: a row per window between evaluations: update, steps, episodes, mean return and
            the means of the metrics.
        evaluations: a row per evaluation: update, steps, mean return and its standard deviation
            over the episodes.
        config: the configuration with every default filled in.
        timings: how long the training took.
        run_folder: the run's folder, which holds all of this.
        stopped: `end`, `target` if the target return was reached, or `callback` if one ended it.
    """

    agent_state: Any
    training: History
    evaluations: History
    config: TrainingConfig
    timings: Timings
    run_folder: Path
    stopped: str


@dataclasses.dataclass(frozen=True)
class SeedResults(TrainingResults):
    """The results of many seeds of one training.

    `agent_state` holds NumPy arrays with the axis of seeds first, `[M, ...]`. `training` and
    `evaluations` have a row for each seed, with the column `seed`. `stopped` is `target` if every
    seed reached it. The rate in `timings` is that of all seeds together.

    Attributes:
        seeds: the seeds, in the order of everything that is listed by seed.
        final_returns: the mean return of each seed's last evaluation.
        reached_target: whether each seed stopped at the target return.
    """

    seeds: tuple[int, ...]
    final_returns: tuple[float, ...]
    reached_target: tuple[bool, ...]

    @property
    def mean_return(self) -> float:
        """The mean of the final returns."""
        return statistics.fmean(self.final_returns)

    @property
    def return_interval(self) -> tuple[float, float]:
        """Student's 95% interval of that mean over seeds, or NaNs for a single seed."""
        return mean_interval(self.final_returns)

    def agent_state_of(self, seed: int) -> Any:
        """Return the state of one agent, as `evaluate` takes it.

        Raises:
            InvalidArgumentError: no training had this seed.
        """
        slot = slot_of(self.seeds, seed)
        return jax.tree.map(lambda leaf: leaf[slot], self.agent_state)


def slot_of(seeds: Sequence[int], seed: int) -> int:
    """Return the position of a seed among the seeds of a run.

    Raises:
        InvalidArgumentError: the run has no such seed.
    """
    if seed not in seeds:
        raise InvalidArgumentError(
            "seed", f"must be one of the run's seeds {shown([*seeds])}, but got {seed}."
        )
    return seeds.index(seed)
