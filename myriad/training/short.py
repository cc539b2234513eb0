"""Trainings that are too short to learn are warned of before they begin."""

import warnings

from myriad.errors import ShortTrainingWarning
from myriad.training.config import ResolvedConfig

# Fewer updates than this don't train, whatever the agent.
_FEW_UPDATES = 10


def too_few_updates(resolved: ResolvedConfig) -> str | None:
    """Return why a training has too few updates to learn much, or None."""
    first = resolved.learner.first_learning_update(resolved.num_envs)
    learning = max(0, resolved.num_updates - first + 1)
    if learning >= _FEW_UPDATES:
        return None
    learn = "" if first == 1 else f", of which {learning} learn"
    agent = resolved.config.agent
    return f"are {resolved.num_updates} updates of {agent}{learn}, too few to learn much"


def warn_of_short(resolved: ResolvedConfig, reason: str, *, stacklevel: int) -> None:
    """Say that a training can't be expected to learn.

    Args:
        resolved: the training.
        reason: what follows on the number of its steps.
        stacklevel: of the caller, for the warning.
    """
    warnings.warn(
        f"{resolved.steps_per_env:,} steps of each of {resolved.num_envs:,} environments {reason}: "
        "raise steps_per_env or total_steps.",
        ShortTrainingWarning,
        stacklevel=stacklevel + 1,
    )
