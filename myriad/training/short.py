"""Warn of trainings that are too short to learn, before they begin."""

import warnings

from myriad.errors import ShortTrainingWarning
from myriad.training.config import TrainingConfig

# With fewer updates than this, no agent learns much.
_FEW_UPDATES = 10


def warn_if_short(config: TrainingConfig, *, stacklevel: int) -> None:
    """Warn if a training has too few updates to learn much.

    Args:
        config: the training.
        stacklevel: the caller's `stacklevel` for the warning.
    """
    first = config.learner.first_learning_update(config.num_envs)
    learning = max(0, config.num_updates - first + 1)
    if learning >= _FEW_UPDATES or not config.learner.metric_names:
        return  # A fixed policy, without metrics, learns nothing anyway.
    learn = "" if first == 1 else f", of which {learning} learn"
    warnings.warn(
        f"{config.steps_per_env:,} steps of each of {config.num_envs:,} environments are "
        f"{config.num_updates} updates of {config.agent}{learn}, too few to learn much: "
        "raise steps_per_env or total_steps.",
        ShortTrainingWarning,
        stacklevel=stacklevel + 1,
    )
