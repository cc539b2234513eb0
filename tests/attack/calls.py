"""Calls of the public functions, drawn from their signatures and the ranges in them."""

import functools
import inspect
from collections.abc import Callable
from random import Random
from typing import Any

import myriad
from myriad.ranges import range_in
from tests.attack import prelude
from tests.attack.cases import Case
from tests.attack.command_lines import dotted_option
from tests.attack.values import OBJECTS, WRONG_NUMBERS, number_inside, number_outside, source

# What belongs in an argument, by its name, in the words of `prelude`.
FITTING = {
    "env": "ENV",
    "agent": "AGENT",
    "config": "CONFIG",
    "agent_state": "STATE",
    "run_folder": "RUN",
    "name": "'cartpole'",
    "name_or_env": "'CartPole-v1'",
    "seed": "0",
    "num_envs": "2",
    "scan_chunk_size": "4",
    "path": "'out.gif'",
    "num_episodes": "2",
    "text": "CONFIG.to_toml()",
    "key": "KEY",
    "state": "ROLLOUT.init(0)",
    "num_steps": "3",
    "quiet": "True",
    "verbose": "False",
    "cpu_devices": "None",
    "buffer_size": "None",
    "total_steps": "64",
    "steps_per_env": "8",
    "seconds": "0.1",
}
# Where an environment or an agent goes by its name.
BY_NAME = {"env": "'cartpole'", "agent": "'pid'"}
SLOW = {"autotune", "suggest_config", "suggest_scan_chunk_size", "record"}
SLOW |= {"myriad.train_and_evaluate", "myriad.resume", "myriad.check_env"}
OVERRIDES = {"create_config": ("env", "agent"), "make_env": ("env",), "make_agent": ("agent",)}


@functools.cache
def targets() -> dict[str, Callable[..., Any]]:
    """Return every public function, by the expression that names it."""
    public = {f"myriad.{name}": getattr(myriad, name) for name in myriad.__all__}
    del public["myriad.MyriadError"]
    return public | {name: eval(name, vars(prelude)) for name in prelude.DOCUMENTED}  # noqa: S307


def call(seed: int, number: int) -> Case:
    """Return one call. Most have a wrong argument, some have none."""
    random = Random(f"{seed} call {number}")
    every = targets()
    # What runs for long comes less often.
    name = random.choice([each for each in every for _ in range(1 if each in SLOW else 6)])
    function = every[name]
    parameters = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]
    given = {each.name: _fitting(name, each) for each in parameters if each.default is each.empty}
    if name == "suggest_config":
        given["seconds"] = FITTING["seconds"]
    for each in random.sample(
        parameters, min(len(parameters), random.choice([0, *[1] * 12, 2, 2]))
    ):
        given[each.name] = _drawn(random, name, each)
    arguments = [f"{key}={value}" for key, value in given.items()]
    owners = OVERRIDES.get(name.removeprefix("myriad."), ())
    arguments += [_override(random, name, each) for each in owners if random.random() < 0.5]
    return Case("call", number, [f"{name}({', '.join(arguments)})"])


def _fitting(name: str, parameter: inspect.Parameter) -> str:
    if parameter.annotation is str and parameter.name in BY_NAME:
        return BY_NAME[parameter.name]
    if name == "myriad.register_env":
        return "'my-env'"
    if name.endswith("make_agent") and parameter.name == "name":
        return "'ppo'"
    return FITTING.get(parameter.name, "None")


def _drawn(random: Random, name: str, parameter: inspect.Parameter) -> str:
    declared = range_in(parameter.annotation)
    draw = random.random()
    if draw < 0.03:
        return _fitting(name, parameter)
    if declared is None:
        return random.choice(OBJECTS)
    if draw < 0.08:
        default = 2 if parameter.default in (parameter.empty, None) else parameter.default
        return source(number_inside(random, declared, default))
    if draw < 0.5:
        return source(number_outside(random, declared))
    return random.choice(WRONG_NUMBERS if draw < 0.8 else OBJECTS)


def _override(random: Random, name: str, owner: str) -> str:
    option, value = dotted_option(random, owner)
    dotted = f"{owner}.{option}" if name.endswith("create_config") else option
    text = random.choice([source(value), random.choice(OBJECTS)])
    return f"**{{{dotted!r}: {text}}}"
