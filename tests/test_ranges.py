"""Every number that can be set has a range, which is held to before anything is done with it."""

import dataclasses
import inspect
import math
import re
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import myriad
from myriad import autotune as autotuner
from myriad import create_config, jit, list_agents, list_envs, make_env
from myriad.agents import AGENTS
from myriad.cli.arguments import COMMANDS, load_command
from myriad.cli.flags import NAMES
from myriad.envs import ENVIRONMENTS
from myriad.errors import InvalidArgumentError, MyriadError
from myriad.ranges import INT64, Integer, Number, range_in, ranges_of
from myriad.training.config import TOTAL_STEPS, TrainingConfig
from myriad.tuning import TuneSettings, tune

ROOT = Path(__file__).parents[1]
FUNCTIONS = [getattr(myriad, name) for name in myriad.__all__ if name != "MyriadError"]
FUNCTIONS += [autotuner.autotune, autotuner.suggest_scan_chunk_size]
TINY = 1e-50
NEGATIVE = -1.5
NUMBERS = [math.nan, math.inf, -math.inf, NEGATIVE, -1, 0, TINY, 1e39, 10**400, 2**130, True, "1"]


def numbers_in(annotation):
    """Return whether an annotation is a number, or holds one."""
    return annotation in (int, float) or any(map(numbers_in, get_args(annotation)))


def test_every_field_and_argument_that_holds_a_number_declares_its_range():
    environments = [ENVIRONMENTS.load(name) for name in list_envs()]
    params = [type(make_env(name).default_params) for name in list_envs()]
    agents = [AGENTS.load(name) for name in list_agents()]
    kinds = [*environments, *params, *agents, *dict.fromkeys(map(load_command, COMMANDS))]
    for kind in (*kinds, TrainingConfig):
        # Flags of the configuration are held to the ranges of its fields.
        of_config = [] if kind is TrainingConfig else [*NAMES, "total_steps"]
        for field in dataclasses.fields(kind):
            # Another test may have registered an example's.
            if numbers_in(field.type) and field.name not in of_config and "myriad." in str(kind):
                assert range_in(field.type) is not None, (kind, field.name)
    # What `create_config` takes is held to the ranges of the configuration's fields, and JAX checks
    # what `jit` takes.
    for function in set(FUNCTIONS) - {create_config, jit}:
        for parameter in inspect.signature(function).parameters.values():
            if numbers_in(parameter.annotation):
                assert range_in(parameter.annotation) is not None, (function, parameter)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
def test_whatever_a_public_function_is_given_it_answers_or_raises_our_error(function):
    parameters = inspect.signature(function).parameters.values()
    required = [each for each in parameters if each.default is each.empty]
    for value in (object(), b"abc", "\x00", [None], 10**400, jnp.zeros(2)):
        positional = [value for each in required if each.kind is each.POSITIONAL_ONLY]
        named = {each.name: value for each in required if each.kind is each.POSITIONAL_OR_KEYWORD}
        with suppress(MyriadError):
            function(*positional, **named)


def test_the_reference_lists_the_ranges_of_a_training():
    page = (ROOT / "docs/reference/training.md").read_text(encoding="utf-8")
    listed = dict(
        re.findall(r"^\| `(\w+)` \| (an? .*(?:integer|number).*) \|$", page, re.MULTILINE)
    )
    declared = ranges_of(TrainingConfig) | {"total_steps": TOTAL_STEPS}
    assert listed == {name: str(each) for name, each in declared.items()}


@pytest.mark.parametrize(
    ("declared", "held"),
    [
        (Integer(1), []),
        (Integer(0, INT64), [0]),
        (Number(), [NEGATIVE, -1, 0, TINY]),
        (Number(0), [0, TINY]),
        (Number(positive=True), []),
        (Number(positive=True, infinity=True), [math.inf]),
        (Number(0, 1), [0, TINY]),
    ],
    ids=str,
)
def test_a_range_holds_what_it_says_and_nothing_else(declared, held):
    for value in NUMBERS:
        is_held = any(value is each for each in held)
        says = re.escape(f"x must be {declared}")
        with nullcontext() if is_held else pytest.raises(InvalidArgumentError, match=says):
            declared.require("x", value)


def test_numbers_of_a_device_and_of_arrays_are_held_to_the_range_and_traced_ones_pass():
    share = Number(0, 1, arrays=True)
    for array in (np.asarray, jnp.asarray):
        share.require("x", array([0.0, 1.0], np.float32))
        for wrong in ([0.5, np.nan], [0.5, 1.5], []):
            with pytest.raises(InvalidArgumentError, match="x must be a number from 0 to 1"):
                share.require("x", array(wrong, np.float32))
    for declared, value in ((Number(0, 1), np.ones(2)), (Number(positive=True), TINY)):
        with pytest.raises(InvalidArgumentError, match="x must be a"):
            declared.require("x", value)
    assert create_config("cartpole", "pid", target_return=10**10).target_return == 1e10
    returns = jax.jit(lambda gravity: make_env("cartpole", gravity=gravity).default_params.gravity)
    assert returns(3.5) == 3.5


@pytest.mark.parametrize(
    ("call", "field", "value"),
    [
        (lambda: create_config("cartpole", "ppo", num_envs=0), "num_envs", 0),
        (lambda: create_config("cartpole", "ppo", compile_mode="jot"), "compile_mode", "jot"),
        (lambda: create_config("cartpole", "pppo"), "agent", "pppo"),
        (lambda: create_config("cartpole", "ppo", auto_tune=1), "auto_tune", 1),
        (lambda: make_env("gene-circuit", target="sinus"), "target", "sinus"),
        (lambda: myriad.evaluate(5, None), "config", 5),
        (lambda: myriad.configure(distributed="yes"), "distributed", "yes"),
        (lambda: myriad.configure(cpu_devices=0), "cpu_devices", 0),
        (lambda: myriad.Rollout(5, None, 1), "env", 5),
        (lambda: tune(1), "settings", 1),
        (lambda: TuneSettings(env="cartpole", sampler="TPE"), "sampler", "TPE"),
    ],
)
def test_an_error_has_the_field_and_the_value(call, field, value):
    with pytest.raises(ValueError, match=re.escape(repr(value))) as caught:
        call()
    assert (caught.value.field, caught.value.value) == (field, value)
