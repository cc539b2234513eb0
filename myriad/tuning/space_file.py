"""Read the file of a search space. pydantic checks its tables, and Optuna the ranges."""

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from myriad.errors import InvalidArgumentError, UnknownNameError, shown
from myriad.files import parse_toml, read_text
from myriad.tuning.parameter import Parameter, Value

# Fields of the configuration that a space may set. The study sets the others, or only runs use
# them.
_FIELDS = (
    "num_envs",
    "rollout_steps",
    "buffer_size",
    "batch_size",
    "scan_chunk_size",
)
# A field that defines evaluations, so it must be the same in all trials.
_FIXED_ALONE = "eval_max_steps"
# The most steps of a range. Optuna counts them in decimals of 28 digits.
_MOST_STEPS = 10**9
_Number = (
    Annotated[int, Field(gt=-(2**62), lt=2**62)] | Annotated[float, Field(allow_inf_nan=False)]
)
_STRICT = ConfigDict(extra="forbid", strict=True, title="the search space")


class _Entry(BaseModel):
    """A parameter as a file gives it: choices, or numbers from `low` to `high`."""

    model_config = _STRICT

    choices: Annotated[list[Any], Field(min_length=1)] | None = None
    low: _Number | None = None
    high: _Number | None = None
    log: bool = False
    step: Annotated[_Number, Field(gt=0)] | None = None
    when: dict[str, Any] = {}


class _File(BaseModel):
    """A file: the fixed fields, the parameters and tables of known values."""

    model_config = _STRICT

    fixed: dict[str, Any] = {}
    parameters: Annotated[dict[str, _Entry], Field(min_length=1)]
    known: list[dict[str, Any]] = []


def read_space(
    path: Path, agent: str, env: str | None
) -> tuple[dict[str, Value], tuple[Parameter, ...], tuple[Mapping[str, Value], ...]]:
    """Return the fixed fields, the parameters and the known values for an environment.

    Raises:
        InvalidArgumentError: the file is missing or has a mistake. The message names the file.
    """
    text = read_text(path)
    try:
        file = _File.model_validate(parse_toml(text))
        parameters: list[Parameter] = []
        for name, entry in file.parameters.items():
            _require_tunable(agent, name)
            if name in file.fixed:
                raise InvalidArgumentError(name, "must be in fixed or parameters, not in both.")
            parameters.append(_parameter(name, entry, parameters))
        for name in file.fixed:
            if name != _FIXED_ALONE:
                _require_tunable(agent, name)
        return file.fixed, tuple(parameters), _known(file.known, parameters, env)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{path}: {error}") from None


def _require_tunable(agent: str, name: str) -> None:
    from myriad.agents import AGENTS, options_of
    from myriad.training.config import FIELDS, canonical

    options = [f"agent.{each.name}" for each in options_of(AGENTS.load(agent))]
    known = [*_FIELDS, *(each for each in options if canonical(each) == each)]
    if name.startswith("env.") or (name in FIELDS and name not in known):
        raise InvalidArgumentError(name, "must be left to the study, which sets it.")
    if name not in known:
        raise UnknownNameError("parameter", name, known)


def _parameter(name: str, entry: _Entry, before: Sequence[Parameter]) -> Parameter:
    when = _when(name, entry.when, before)
    given = entry.model_fields_set - {"when"}
    if given != {"choices"} and not {"low", "high"} <= given <= {"low", "high", "log", "step"}:
        raise InvalidArgumentError(name, "must have either choices, or low and high.")
    if entry.choices is not None:
        if len({json.dumps(each, default=str) for each in entry.choices}) < len(entry.choices):
            raise InvalidArgumentError(
                f"choices of {name} must differ, but are {shown(entry.choices)}."
            )
        return Parameter(name, choices=tuple(entry.choices), when=when)
    return _range(name, entry, when)


def _range(name: str, entry: _Entry, when: Mapping[str, tuple[Value, ...]]) -> Parameter:
    from optuna.distributions import FloatDistribution, IntDistribution

    assert entry.low is not None
    assert entry.high is not None
    low, high, step = entry.low, entry.high, entry.step
    if step is not None and not 1 <= round((high - low) / step, 6) <= _MOST_STEPS:
        raise InvalidArgumentError(
            f"step of {name} must fit 1 to {_MOST_STEPS:,} times between its low and its high, "
            f"but is {shown(step)}."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna says that it ends a range at its last step.
        if isinstance(low, int) and isinstance(high, int) and isinstance(step, int | None):
            drawn = IntDistribution(low, high, entry.log, 1 if step is None else step)
        else:
            drawn = FloatDistribution(low, high, entry.log, step)
    return Parameter(name, low=drawn.low, high=drawn.high, log=drawn.log, step=step, when=when)


def _when(
    name: str, entry: Mapping[str, Any], before: Sequence[Parameter]
) -> dict[str, tuple[Value, ...]]:
    earlier = {each.name: each for each in before}
    conditions = {}
    for other, among in entry.items():
        if other not in earlier:
            raise InvalidArgumentError(
                f"when of {name} must name parameters above it, but names {shown(other)}."
            )
        values = tuple(among) if isinstance(among, list) else (among,)
        if not all(map(earlier[other].holds, values)):
            raise InvalidArgumentError(
                f"when of {name} must hold values of {other}, but holds {shown(among)}."
            )
        conditions[other] = values
    return conditions


def _known(
    entries: Sequence[Mapping[str, Any]], parameters: Sequence[Parameter], env: str | None
) -> tuple[Mapping[str, Value], ...]:
    by_name = {each.name: each for each in parameters}
    found = []
    for entry in entries:
        values = {name: value for name, value in entry.items() if name != "env"}
        for name, value in values.items():
            if name not in by_name:
                raise UnknownNameError("parameter", name, by_name, owner="known")
            if not by_name[name].holds(value):
                raise InvalidArgumentError(
                    f"known {name} must be a value of the space, but is {shown(value)}."
                )
        if entry.get("env") in (None, env):
            found.append(values)
    return tuple(found)
