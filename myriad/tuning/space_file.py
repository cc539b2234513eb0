"""Read the file of a search space, and report a mistake in it in one sentence."""

import json
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

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
_TABLES = ("fixed", "parameters", "known")
_KEYS = ("choices", "low", "high", "log", "step", "when")
# The most steps of a range. Optuna counts them in decimals of 28 digits.
_MOST_STEPS = 10**9


def read_space(
    path: Path, agent: str, env: str | None
) -> tuple[dict[str, Value], tuple[Parameter, ...], tuple[Mapping[str, Value], ...]]:
    """Return the fixed fields, the parameters and the known values for an environment.

    Raises:
        InvalidArgumentError: the file is missing or has a mistake. The message names the file.
    """
    text = read_text(path)
    try:
        table = parse_toml(text)
    except ValueError as error:
        raise InvalidArgumentError(f"{path} is not TOML: {error}.") from None
    except RecursionError:
        raise InvalidArgumentError(f"{path} is nested too deeply.") from None
    try:
        return _read(table, agent, env)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{path}: {error}") from None


def _read(
    table: Mapping[str, Any], agent: str, env: str | None
) -> tuple[dict[str, Value], tuple[Parameter, ...], tuple[Mapping[str, Value], ...]]:
    for name in table:
        if name not in _TABLES:
            raise UnknownNameError("table", name, _TABLES)
    fixed = _table(table, "fixed")
    parameters: list[Parameter] = []
    for name, entry in _table(table, "parameters").items():
        _require_tunable(agent, name)
        if name in fixed:
            raise InvalidArgumentError(f"{name} must be in fixed or in parameters, not in both.")
        parameters.append(_parameter(name, entry, parameters))
    if not parameters:
        raise InvalidArgumentError("parameters must hold at least one parameter.")
    for name in fixed:
        if name != _FIXED_ALONE:
            _require_tunable(agent, name)
    return fixed, tuple(parameters), _known(table.get("known", []), parameters, env)


def _require_tunable(agent: str, name: str) -> None:
    from myriad.agents import AGENTS, options_of
    from myriad.training.config import TrainingConfig, canonical

    options = [f"agent.{each.name}" for each in options_of(AGENTS.load(agent))]
    known = [*_FIELDS, *(each for each in options if canonical(each) == each)]
    if name.startswith("env.") or (name in TrainingConfig.model_fields and name not in known):
        raise InvalidArgumentError(f"{name} must be left to the study, which sets it.")
    if name not in known:
        raise UnknownNameError("parameter", name, known)


def _table(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = table.get(name, {})
    if not isinstance(found, dict):
        raise InvalidArgumentError(f"{name} must be a table, but is {shown(found)}.")
    for key, value in found.items():
        if key == "agent" and isinstance(value, dict):
            raise InvalidArgumentError(
                f'{name} must have options in quotes, such as "agent.{next(iter(value), "name")}".'
            )
    return found


def _parameter(name: str, entry: Any, before: Sequence[Parameter]) -> Parameter:
    if not isinstance(entry, dict):
        raise InvalidArgumentError(
            f"{name} must be a table with choices, or with low and high, but is {shown(entry)}."
        )
    for key in entry:
        if key not in _KEYS:
            raise UnknownNameError("key", key, _KEYS, owner=name)
    when = _when(name, entry.get("when", {}), before)
    if "choices" in entry:
        if others := entry.keys() - {"choices", "when"}:
            raise InvalidArgumentError(f"{name} must have choices or {min(others)}, not both.")
        return Parameter(name, choices=_choices(name, entry["choices"]), when=when)
    return _range(name, entry, when)


def _choices(name: str, choices: Any) -> tuple[Value, ...]:
    if not isinstance(choices, list) or not choices:
        raise InvalidArgumentError(
            f"choices of {name} must be a list of values, but is {shown(choices)}."
        )
    if len({json.dumps(each, default=str) for each in choices}) < len(choices):
        raise InvalidArgumentError(f"choices of {name} must differ, but are {shown(choices)}.")
    return tuple(choices)


def _range(name: str, entry: Mapping[str, Any], when: Mapping[str, Any]) -> Parameter:
    ends = [entry.get(key) for key in ("low", "high")]
    low, high = (each if _is_number(each) else None for each in ends)
    if low is None or high is None:
        raise InvalidArgumentError(
            f"{name} must have choices, or numbers for low and high, but has {shown(dict(entry))}."
        )
    log = entry.get("log", False)
    step = entry.get("step")
    if not isinstance(log, bool):
        raise InvalidArgumentError(f"log of {name} must be true or false, but is {shown(log)}.")
    if low >= high or (log and low <= 0):
        least = "above 0 and " if log else ""
        raise InvalidArgumentError(
            f"low of {name} must be {least}below its high, {shown(high)}, but is {shown(low)}."
        )
    if step is not None and (not _is_number(step) or step <= 0 or log):
        why = "left out beside log" if log else "a number above 0"
        raise InvalidArgumentError(f"step of {name} must be {why}, but is {shown(step)}.")
    if not (isinstance(low, int) and isinstance(high, int)):
        low = float(low)
        high = float(high)
    elif step is not None and not isinstance(step, int):
        raise InvalidArgumentError(f"step of {name} must be an integer, but is {shown(step)}.")
    if step is not None:
        # In decimals, as they are written: 0.3 is no multiple of 0.1 in binary.
        first, last, apart = (Decimal(str(each)) for each in (low, high, step))
        fit = (last - first) / apart
        if not 1 <= fit <= _MOST_STEPS:
            raise InvalidArgumentError(
                f"step of {name} must fit 1 to {_MOST_STEPS:,} times between its low and its high, "
                f"but is {shown(step)}."
            )
        # Optuna would do so in each draw, and warn.
        high = type(high)(first + int(fit) * apart)
    return Parameter(name, low=low, high=high, log=log, step=step, when=when)


def _when(name: str, entry: Any, before: Sequence[Parameter]) -> dict[str, tuple[Value, ...]]:
    if not isinstance(entry, dict):
        raise InvalidArgumentError(
            f"when of {name} must be a table of parameters and values, but is {shown(entry)}."
        )
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
    entries: Any, parameters: Sequence[Parameter], env: str | None
) -> tuple[Mapping[str, Value], ...]:
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise InvalidArgumentError("known must be tables of values, each under [[known]].")
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


def _is_number(value: Any) -> bool:
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return is_one and abs(value) <= sys.float_info.max
