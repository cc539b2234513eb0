"""What learners do alike with their hyperparameters: hold them to ranges, let rates fall."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.counters import Counter
from myriad.errors import InvalidArgumentError
from myriad.registry import is_integer, require_integer

# The value of `anneal_updates` that stands for the length of the training.
WHOLE_TRAINING = "training"


def validate_hyperparameters(
    learner: Any,
    *,
    integers: tuple[str, ...],
    positive: tuple[str, ...],
    fractions: tuple[str, ...],
    weights: tuple[str, ...] = (),
) -> None:
    """Refuse hyperparameters out of range; None passes, where a field allows it.

    Raises:
        InvalidArgumentError: naming the field, its value and the range.
    """
    for name in integers:
        value = getattr(learner, name)
        if value is not None:
            require_integer(name, value, 1)
    checks = (
        (positive, "a number above 0", lambda value: _is_number(value) and value > 0),
        (
            fractions,
            "a number between 0 and 1",
            lambda value: _is_number(value) and 0 <= value <= 1,
        ),
        (weights, "a number of at least 0", lambda value: _is_number(value) and value >= 0),
    )
    for names, rule, holds in checks:
        for name in names:
            value = getattr(learner, name)
            if value is not None and not holds(value):
                raise InvalidArgumentError(f"{name} must be {rule}, but got {value!r}.")


def validate_anneal_updates(anneal_updates: Any) -> None:
    """Raise InvalidArgumentError unless it is a number of updates, "training" or None."""
    if anneal_updates is None or anneal_updates == WHOLE_TRAINING:
        return
    if not is_integer(anneal_updates) or anneal_updates < 1:
        raise InvalidArgumentError(
            f"anneal_updates must be an integer of at least 1, {WHOLE_TRAINING!r} or None, "
            f"but got {anneal_updates!r}."
        )


def annealed_over(learner: Any, num_updates: int) -> Any:
    """Return the learner with `anneal_updates` set, or as it is if you chose the field."""
    if learner.anneal_updates != WHOLE_TRAINING:
        return learner
    return dataclasses.replace(learner, anneal_updates=num_updates)


def annealed(
    rate: float, num_updates: Counter, anneal_updates: int | str | None
) -> jax.Array | float:
    """Return a rate that falls linearly to 0 over `anneal_updates`; otherwise it is constant."""
    if anneal_updates is None or isinstance(anneal_updates, str):
        return rate
    return rate * jnp.maximum(1 - num_updates.as_float() / float(anneal_updates), 0)


def _is_number(value: Any) -> bool:
    scalar = isinstance(value, int | float | np.number | jax.Array) and np.ndim(value) == 0
    return scalar and not isinstance(value, bool)
