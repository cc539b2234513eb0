"""What a training returns."""

import dataclasses
from pathlib import Path
from typing import Any

from myriad.training.config import TrainingConfig
from myriad.training.logging.history import History


@dataclasses.dataclass(frozen=True)
class Timings:
    """Where the time of a run went.

    Attributes:
        compile_s: seconds of tracing and compiling.
        train_s: seconds of training, evaluations left out.
        evaluate_s: seconds of evaluations.
        total_s: seconds of the whole run.
        steps_per_s: steps/s of all environments together while training.
        from_cache: whether every program came from the persistent cache.
    """

    compile_s: float
    train_s: float
    evaluate_s: float
    total_s: float
    steps_per_s: float
    from_cache: bool


@dataclasses.dataclass(frozen=True)
class TrainingResults:
    """What a training came to.

    Attributes:
        agent_state: the learner's state with its parameters.
        training: a row per window between evaluations: update, steps, episodes, mean return and
            the means of the metrics.
        evaluations: a row per evaluation: update, steps, mean return and its standard deviation
            over the episodes.
        config: the configuration with every default filled in.
        timings: how long it took.
        run_folder: the folder that all of it is written to.
        stopped: `end`, or `target` if the target return was reached.
    """

    agent_state: Any
    training: History
    evaluations: History
    config: TrainingConfig
    timings: Timings
    run_folder: Path
    stopped: str
