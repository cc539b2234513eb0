"""Warn of trainings that are too short to learn, before they begin."""

import warnings

from myriad.errors import ShortTrainingWarning
from myriad.training.config import ResolvedConfig

# With fewer updates than this, no agent learns much.
_FEW_UPDATES = 10


def warn_if_short(resolved: ResolvedConfig, *, stacklevel: int) -> None:
    """Warn if a training has too few updates to learn much.

    Args:
        resolved: the training.
        stacklevel: the caller's `stacklevel` for the warning.
    """
    first = resolved.learner.first_learning_update(resolved.num_envs)
    learning = max(0, resolved.num_updates - first + 1)
    if learning >= _FEW_UPDATES or not resolved.learner.metric_names:
        return  # A fixed policy, without metrics, learns nothing anyway.
    learn = "" if first == 1 else f", of which {learning} learn"
    warnings.warn(
        f"{resolved.steps_per_env:,} steps of each of {resolved.num_envs:,} environments are "
        f"{resolved.num_updates} updates of {resolved.config.agent}{learn}, too few to learn much: "
        "raise steps_per_env or total_steps.",
        ShortTrainingWarning,
        stacklevel=stacklevel + 1,
    )
