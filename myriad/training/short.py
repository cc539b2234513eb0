"""Warn of trainings that are too short to learn, before they begin."""

import warnings

from myriad.errors import ShortTrainingWarning
from myriad.training.config import ResolvedConfig

# With fewer updates than this, no agent learns much.
_FEW_UPDATES = 10


def too_few_updates(resolved: ResolvedConfig) -> str | None:
    """Say why a training has too few updates to learn much, or return None."""
    first = resolved.learner.first_learning_update(resolved.num_envs)
    learning = max(0, resolved.num_updates - first + 1)
    if learning >= _FEW_UPDATES:
        return None
    learn = "" if first == 1 else f", of which {learning} learn"
    agent = resolved.config.agent
    return f"are {resolved.num_updates} updates of {agent}{learn}, too few to learn much"


def warn_of_short(resolved: ResolvedConfig, reason: str, *, stacklevel: int) -> None:
    """Warn that a training can't be expected to learn.

    Args:
        resolved: the training.
        reason: the rest of the sentence, after the number of steps.
        stacklevel: the caller's `stacklevel` for the warning.
    """
    warnings.warn(
        f"{resolved.steps_per_env:,} steps of each of {resolved.num_envs:,} environments {reason}: "
        "raise steps_per_env or total_steps.",
        ShortTrainingWarning,
        stacklevel=stacklevel + 1,
    )
