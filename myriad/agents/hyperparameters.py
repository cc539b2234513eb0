"""Ranges of hyperparameters that learners share, and learning rates that fall."""

import dataclasses
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from myriad.counters import Counter
from myriad.ranges import INT64, Integer, Number, ranges_of

# The value of `anneal_updates` that means the length of the training.
WHOLE_TRAINING = "training"


# Types of hyperparameters with their ranges, which a learner's `create` checks.
Fraction = Annotated[float, Number(0, 1)]
Positive = Annotated[float, Number(positive=True)]
PositiveOrOff = Annotated[float | None, Number(positive=True, words=(None,))]
Limit = Annotated[float, Number(positive=True, infinity=True)]
Weight = Annotated[float, Number(0)]
Count = Annotated[int, Integer(1)]
ManyUpdates = Annotated[int | str | None, Integer(1, INT64, words=(WHOLE_TRAINING, None))]
ManySteps = Annotated[int, Integer(1, INT64)]
# How often an update repeats something. It is bounded, since an update can't be interrupted.
Repetitions = Annotated[int, Integer(1, 100_000)]
# The initial weights of a layer are orthogonal, and drawing wider ones takes minutes.
Widths = Annotated[tuple[int, ...], Integer(1, 16_384, items=(0, 64))]


def annealed_over(learner: Any, num_updates: int) -> Any:
    """Return the learner with `anneal_updates` set, or as it is if you chose the field."""
    if learner.anneal_updates != WHOLE_TRAINING:
        return learner
    return dataclasses.replace(learner, anneal_updates=num_updates)


def annealed(rate: float, num_updates: Counter, anneal_updates: Any) -> jax.Array | float:
    """Return a rate that falls linearly to 0 over `anneal_updates`, or is constant without them."""
    if anneal_updates is None or isinstance(anneal_updates, str):
        return rate
    return rate * jnp.maximum(1 - num_updates.as_float() / jnp.float32(anneal_updates), 0)


# Integers that are arguments of a compiled training, as all floats are. The others shape it.
_COUNTS = ("num_epochs", "anneal_updates", "exploration_steps")


def traced_fields(kind: type) -> list[str]:
    """Return the hyperparameters of a class of learners that a compiled training can take.

    These are all floats and some counts.
    """
    structural = getattr(kind, "structural", ())
    return [
        name
        for name, declared in ranges_of(kind).items()
        if (not declared.whole or name in _COUNTS) and name not in structural
    ]


def traced_names(learner: Any) -> list[str]:
    """Return the hyperparameters that are arguments of a compiled training and no constants.

    A field that switches a part of the program off, such as None, is none of them.
    """
    fields = traced_fields(type(learner))
    return [name for name in fields if isinstance(getattr(learner, name), int | float)]
