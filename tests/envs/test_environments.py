"""make_env, register_env and check_env: what a user of one's own environment meets."""

import dataclasses
import importlib.util
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import Rollout, check_env, list_envs, make_agent, make_env, make_key, register_env
from myriad.envs import ENVIRONMENTS
from myriad.envs.cartpole import CartPole, CartPoleState
from myriad.errors import FaultyEnvironmentError, InvalidArgumentError, UnknownNameError
from myriad.spaces import Box
from myriad.xla import count_compilations

ROOT = Path(__file__).parents[2]
FAST = ("cartpole-control", "gene-circuit-control")  # the others compile for longer


def load_example(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _own_registrations_end_with_the_test(monkeypatch):
    monkeypatch.setattr(ENVIRONMENTS, "_targets", dict(ENVIRONMENTS._targets))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in list_envs()],
)
def test_myriads_own_environments_have_no_fault(name):
    check_env(make_env(name))


@pytest.mark.slow
def test_the_documented_environment_has_no_fault_and_rolls_out_compiled_once():
    load_example("my_environment")
    env = make_env("hill-car", power=0.002)
    assert env.default_params.power == 0.002
    check_env(env)
    rollout = Rollout(env, make_agent("random", env), 100, 50)
    state = rollout.run_chunk(rollout.init(seed=0))
    with count_compilations() as compilations:
        state = rollout.run(state, 170)
    assert compilations.count == 0
    assert rollout.summary(state).num_steps == 22_000


def test_a_class_is_made_from_its_module_and_name(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    env = make_env("my_environment:HillCar", max_steps=10)
    assert env.default_params.max_steps == 10


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no_such_module:Thing", "there is no module 'no_such_module'"),
        ("math:Thing", "AttributeError: module 'math' has no attribute 'Thing'"),
        ("math:pi", "must be a dataclass with default_params"),
        (":", "can't be imported"),
    ],
)
def test_a_class_that_cannot_be_made_is_refused_in_a_sentence(name, sentence):
    with pytest.raises(InvalidArgumentError, match=sentence):
        make_env(name)


@pytest.mark.parametrize(
    ("name", "fields", "field"),
    [
        ("gene-circuit", {"sine_period": 300.0}, "sine_period"),
        ("gene-circuit", {"target": "sine", "target_level": 30.0}, "target_level"),
        ("gene-circuit-sysid", {"sine_offset": 1.0}, "sine_offset"),
        ("bucket-brigade", {"suppression_per_worker": 0.9}, "suppression_per_worker"),
        ("bucket-brigade", {"num_opponents": 0, "opponents": "hero"}, "opponents"),
    ],
)
def test_a_value_without_effect_is_refused_unless_it_is_the_default(name, fields, field):
    with pytest.raises(InvalidArgumentError, match=f"{field} must be .* it has no effect, but got"):
        make_env(name, **fields)
    env = make_env(name, **{key: value for key, value in fields.items() if key != field})
    default = getattr(env, field, None) or getattr(env.default_params, field)
    assert make_env(name, **(fields | {field: default})) == env


@pytest.mark.parametrize(
    ("name", "fields", "sentence"),
    [
        ("bucket-brigade", {"scenario": ["easy"]}, "scenario must be a string"),
        ("gene-circuit", {"target": np.zeros(2)}, "target must be a string"),
        ("cartpole", {"gravity": jax.random.key(0)}, "gravity must be a finite number"),
        ("gymnax:CartPole-v1", {"max_steps_in_episode": None}, "must be a number, but got None"),
    ],
)
def test_a_value_of_another_type_is_refused(name, fields, sentence):
    with pytest.raises(InvalidArgumentError, match=sentence):
        make_env(name, **fields)


def test_an_unknown_field_is_refused_with_the_closest_one():
    with pytest.raises(UnknownNameError, match="did you mean 'gravity'"):
        make_env("cartpole", gravitas=1.0)


@pytest.mark.parametrize("name", ["cartpole-control", "CartPole-v1", "a:b", ""])
def test_a_taken_name_cannot_be_registered(name):
    with pytest.raises(InvalidArgumentError, match=r"already registered|no colon|must have a name"):
        register_env(name)(CartPole)


@dataclasses.dataclass(frozen=True)
class Changed(CartPole):
    """A cart and pole whose step is passed through `change` with the state before it."""

    change: object = None

    def step(self, key, state, action, params):
        result = super().step(key, state, action, params)
        return result if self.change is None else self.change(key, state, *result)


def step_fault(change) -> str:
    with pytest.raises(FaultyEnvironmentError) as caught:
        check_env(Changed(change=change))
    assert str(caught.value).startswith("Changed has ")
    return " ".join(caught.value.faults)


STEP_FAULTS = {
    "step must return (obs, state, reward, terminated, truncated, info), but returns": (
        lambda key, old, *results: (*results[:4], results[5])
    ),
    "obs of step must have the shape of observation_space, (4,), but has (2,)": (
        lambda key, old, obs, *rest: (obs[:2], *rest)
    ),
    "obs of step must have the dtype of observation_space, float32, but has int32": (
        lambda key, old, obs, *rest: (obs.astype(jnp.int32), *rest)
    ),
    "reward must be a scalar of float32, but is float32 of shape (1,)": (
        lambda key, old, obs, state, reward, *rest: (obs, state, reward[None], *rest)
    ),
    "terminated must be a scalar of bool, but is float32 of shape ()": (
        lambda key, old, obs, state, reward, terminated, *rest: (
            obs, state, reward, terminated.astype(jnp.float32), *rest,
        )
    ),
    "info must be a dict, but is NoneType": lambda *all_but_info: (*all_but_info[2:-1], None),
    "state.time is int32 of shape () after reset, but float32 of shape () after step": (
        lambda key, old, obs, state, *rest: (
            obs, dataclasses.replace(state, time=state.time * 1.0), *rest,
        )
    ),
    "step can't be compiled": (
        lambda key, old, obs, state, reward, *rest: (
            obs, state, reward if state.x > 0 else -reward, *rest,
        )
    ),
    "step uses one random key for several draws": (
        lambda key, old, obs, state, reward, *rest: (
            obs, state, jax.random.normal(key) + jax.random.uniform(key), *rest,
        )
    ),
    "reward is not finite after step": (
        lambda key, old, obs, state, reward, *rest: (obs, state, jnp.log(state.theta), *rest)
    ),
    "obs leaves observation_space after step": lambda key, old, obs, *rest: (obs + 100.0, *rest),
    "step reports a time limit as terminated": (
        lambda key, old, obs, state, reward, terminated, truncated, info: (
            obs, state, reward, terminated | truncated, jnp.zeros((), bool), info,
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", STEP_FAULTS)
def test_a_fault_of_step_is_said(sentence):
    assert sentence in step_fault(STEP_FAULTS[sentence])


class UnhashableCartPole(CartPole):
    __hash__ = None


class WeakCartPole(CartPole):
    def reset(self, key, params):
        obs, state = super().reset(key, params)
        return obs, dataclasses.replace(state, x=jnp.asarray(0.0))


class EqualCartPole(CartPole):
    def reset(self, key, params):
        return super().reset(jax.random.key(3), params)


class TwinCartPole(CartPole):
    def reset(self, key, params):
        x, theta = jax.random.uniform(key, minval=-0.05), jax.random.uniform(key, minval=-0.05)
        zero = jnp.zeros((), jnp.float32)
        state = CartPoleState(x, zero, theta, zero, jnp.zeros((), jnp.int32))
        return jnp.stack([x, zero, theta, zero]), state


class PythonCartPole(CartPole):
    def step(self, key, state, action, params):
        return super().step(
            key, state, action, dataclasses.replace(params, gravity=float(params.gravity))
        )


class WideCartPole(CartPole):
    def observation_space(self, params):
        return Box(-1.0, 1.0, (5,))


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (UnhashableCartPole, "the environment must be hashable"),
        (WeakCartPole, "state.x of reset is of a weak type"),
        (EqualCartPole, "64 resets with different keys are all equal"),
        (TwinCartPole, "reset uses one random key for several draws"),
        (PythonCartPole, "step can't be compiled"),
        (
            WideCartPole,
            r"obs of reset must have the shape of observation_space, (5,), but has (4,)",
        ),
    ],
)
def test_a_fault_of_reset_or_of_the_class_is_said(kind, sentence):
    with pytest.raises(FaultyEnvironmentError) as caught:
        check_env(kind())
    assert sentence in " ".join(caught.value.faults)


def test_a_missing_member_is_named():
    with pytest.raises(FaultyEnvironmentError, match="default_params is missing"):
        check_env(object())


ACTIONS = {
    "cartpole-control": [
        (0.5, "an integer of 0 to 1, but got float32"),
        (np.zeros(2, int), "but got int32 of shape \\(2,\\)"),
        (2, "but got 2"),
    ],
    "pendulum-control": [
        (
            np.float32(1),
            "floats of shape \\(1,\\), none of them NaN, but got float32 of shape \\(\\)",
        ),
        (np.ones(1, int), "but got int32 of shape \\(1,\\)"),
        (np.full(1, np.nan, np.float32), "but got \\[nan\\]"),
    ],
    "gene-circuit-control": [(True, "an integer of 0 to 1, but got bool"), (-1, "but got -1")],
    "snake": [(4, "an integer of 0 to 3, but got 4"), (np.nan, "but got float32")],
    "bucket-brigade": [
        ([0, 1], r"3 integers, each of 0 and below \(10, 2, 2\), but got int32 of shape \(2,\)"),
        ([10, 0, 0], r"but got \[10, 0, 0\]"),
    ],
}


@pytest.mark.parametrize(
    ("name", "action", "sentence"),
    [(name, *case) for name, cases in ACTIONS.items() for case in cases],
)
def test_a_wrong_action_is_refused_in_one_sentence(name, action, sentence):
    env = make_env(name)
    _, shapes = jax.eval_shape(env.reset, make_key(0), env.default_params)
    state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    with pytest.raises(InvalidArgumentError, match=f"action must be .*{sentence}"):
        env.step(make_key(1), state, action, env.default_params)


@pytest.mark.parametrize("name", list_envs())
def test_a_wrong_shape_is_refused_while_tracing(name):
    env = make_env(name)
    _, state = jax.eval_shape(env.reset, make_key(0), env.default_params)
    with pytest.raises(InvalidArgumentError, match="action must be"):
        jax.jit(env.step).lower(make_key(1), state, jnp.zeros((7,)), env.default_params)


def test_parameters_may_be_traced():
    env = make_env("pendulum")
    _, state = jax.jit(env.reset)(make_key(0), env.default_params)
    step = jax.jit(env.step)(make_key(1), state, jnp.ones(1), env.default_params)
    assert bool(jnp.isfinite(step[2]))
