"""The ranges that every learner demands of its hyperparameters."""

from typing import Any

import jax
import numpy as np

from myriad.errors import InvalidArgumentError


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
    checks = (
        (integers, "an integer of at least 1", lambda value: type(value) is int and value >= 1),
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


def _is_number(value: Any) -> bool:
    scalar = isinstance(value, int | float | np.number | jax.Array) and np.ndim(value) == 0
    return scalar and not isinstance(value, bool)
