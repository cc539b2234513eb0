"""What every learner asks of its hyperparameters."""

from typing import Any

from myriad.errors import InvalidArgumentError


def refuse_values(
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
        (positive, "above 0", lambda value: value > 0),
        (fractions, "between 0 and 1", lambda value: 0 <= value <= 1),
        (weights, "at least 0", lambda value: value >= 0),
    )
    for names, rule, holds in checks:
        for name in names:
            value = getattr(learner, name)
            if value is not None and not holds(value):
                raise InvalidArgumentError(f"{name} must be {rule}, but got {value!r}.")
