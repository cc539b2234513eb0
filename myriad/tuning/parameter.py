"""One dimension of a search space: its values, and when it is drawn."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

# The values that TOML can hold: a number, a string, a boolean or a list of them.
Value = Any


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One dimension of a space: choices, or numbers from `low` to `high`.

    Attributes:
        name: a field of the configuration or `agent.*`.
        choices: the values to choose among; empty for a range.
        low: the least number.
        high: the greatest number.
        log: draw from the logarithm.
        step: the distance between numbers; None for any number, and 1 for integers.
        when: earlier parameters, with those of their values for which this one is drawn.
    """

    name: str
    choices: tuple[Value, ...] = ()
    low: float = 0
    high: float = 0
    log: bool = False
    step: float | None = None
    when: Mapping[str, tuple[Value, ...]] = dataclasses.field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether it is a range of integers."""
        return not self.choices and isinstance(self.low, int) and isinstance(self.high, int)

    def applies(self, values: Mapping[str, Value]) -> bool:
        """Return whether it is drawn, given these values of earlier parameters."""
        return all(name in values and values[name] in among for name, among in self.when.items())

    def holds(self, value: Value) -> bool:
        """Return whether a value can be drawn."""
        if self.choices:
            return value in self.choices
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not self.low <= value <= self.high or (self.is_whole and value != int(value)):
            return False
        steps = (value - self.low) / self.step if self.step else 0
        # Within the rounding of decimals.
        return abs(steps - round(steps)) < 1e-6

    def suggest(self, trial: "BaseTrial") -> Value:
        """Let an Optuna trial draw a value."""
        if self.choices:
            drawn = trial.suggest_categorical(self.name, [written(each) for each in self.choices])
            return next(each for each in self.choices if written(each) == drawn)
        if self.is_whole:
            low = int(self.low)
            high = int(self.high)
            step = int(self.step or 1)
            return trial.suggest_int(self.name, low, high, step=step, log=self.log)
        return trial.suggest_float(self.name, self.low, self.high, step=self.step, log=self.log)

    def values(self) -> Sequence[Value]:
        """Return all that can be drawn, of choices or of a range of integers."""
        if self.choices:
            return self.choices
        # A lazy range, since there may be billions and callers take only a few.
        return range(int(self.low), int(self.high) + 1, int(self.step or 1))


def written(choice: Value) -> bool | int | float | str | None:
    """Return a choice as Optuna keeps it: a list as its text."""
    return json.dumps(choice) if isinstance(choice, list | tuple) else choice


def assignments(
    parameters: Sequence[Parameter], values: dict[str, Value]
) -> Iterator[dict[str, Value]]:
    """Yield every way to choose parameters.

    One that depends on a parameter outside of them may be there or not.
    """
    if not parameters:
        yield values
        return
    first = parameters[0]
    rest = parameters[1:]
    inside = {name: among for name, among in first.when.items() if name in values}
    if all(values[name] in among for name, among in inside.items()):
        for value in first.values():
            yield from assignments(rest, {**values, first.name: value})
        if len(inside) == len(first.when):
            return
    yield from assignments(rest, values)
