"""Schedules of float hyperparameters over a training, which you write as "linear(0.2, 0)".

`make_learner` checks them and builds the learner of numbers. The training's program has a row of
numbers for each hyperparameter, and `myriad.training.loop` looks its value up in every update.
"""

import contextlib
import dataclasses
import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from myriad.agents.agent import Learner
from myriad.errors import InvalidArgumentError, shown
from myriad.ranges import ranges_of

# The values in a row. 32 is a power of two, so no share of the training is rounded on its way to an
# index.
_NUM_POINTS = 33
# The shape of a row: 33 values at equal distances over the training, and the number of its updates.
# A number in all places is a constant.
ROW = (_NUM_POINTS + 1,)
_FORM = re.compile(r"\s*(linear|cosine|points)\s*\((.*)\)\s*")


def is_schedule(value: Any) -> bool:
    """Return whether an option of an agent is written as schedules are."""
    return isinstance(value, str) and _FORM.fullmatch(value) is not None


def without_schedules(kind: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a class of agents with a number in place of each schedule: its maximum.

    A schedule may touch 0 where a range begins above it, as a learning rate does at its end. One of
    the learning rate takes the place of `anneal_updates`.

    Raises:
        InvalidArgumentError: a schedule can't be read, leaves the range of its field, or is of a
            field that can't change in a training, or `anneal_updates` is given beside it.
    """
    found, floats, names = dict(options), {}, {each.name for each in dataclasses.fields(kind)}
    if isinstance(kind, type) and issubclass(kind, Learner):
        ranges = ranges_of(kind).items()
        floats = {k: v for k, v in ranges if not v.whole and k not in kind.structural}
    for name, value in options.items():
        if name in floats and isinstance(value, str) and "(" in value:
            for point in _points(name, value)[1]:
                if point or not floats[name].positive:
                    floats[name].require(name, point)
            found[name] = float(row_of(value)[:-1].max())
        elif is_schedule(value) and name in names:
            raise InvalidArgumentError(
                name,
                f"must be constant over a training of {kind.__name__}, but got {shown(value)}.",
            )
    if is_schedule(options.get("learning_rate")) and hasattr(kind, "anneal_updates"):
        length = found.setdefault("anneal_updates", None)
        if length is not None:
            raise InvalidArgumentError(
                "anneal_updates",
                f"must be None if learning_rate has a schedule, but got {shown(length)}.",
            )
    return found


def row_of(value: Any, num_updates: int = 1) -> np.ndarray:
    """Return the row of a number, or of a schedule over so many updates, float32 `[34]`."""
    if not isinstance(value, str):
        return np.full(ROW, value, np.float32)
    shares, values = _points("schedule", value)
    at = np.linspace(0, 1, _NUM_POINTS)
    if "cosine" in value:
        at = (1 - np.cos(np.pi * at)) / 2
    return np.array([*np.interp(at, shares, values), num_updates], np.float32)


def _points(name: str, text: str) -> tuple[list[float], list[float]]:
    """Return the shares of the training at which a schedule is given, and its values there."""
    with contextlib.suppress(ValueError):
        ((form, inside),) = _FORM.findall(text)
        if form == "points":
            pairs = [map(float, point.split(":")) for point in inside.split(",")]
            shares, values = map(list, zip(*pairs, strict=True))
        else:
            shares, values = [0.0, 1.0], [*map(float, inside.split(","))]
        increase = all(a < b for a, b in itertools.pairwise(shares))
        fits = len(shares) == len(values) and increase and 0 <= shares[0] <= shares[-1] <= 1
        if fits and is_schedule(text) and all(map(math.isfinite, values)):
            return shares, values
    raise InvalidArgumentError(
        name,
        "must be a number, linear(start, end), cosine(start, end) or points(0: start, 0.5: half, "
        f"1: end) with increasing shares of the training, but got {shown(text)}.",
    )
