"""make_env, register_env and check_env: what a user of one's own environment meets."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import (
    Rollout,
    check_env,
    create_config,
    list_envs,
    make_agent,
    make_env,
    make_key,
    timing,
)
from myriad.envs import ENVIRONMENTS, checker
from myriad.envs.cartpole import CartPole, CartPoleState
from myriad.envs.wrappers import FrameStackObservation
from myriad.errors import EnvironmentWarning, FaultyEnvironmentError, InvalidArgumentError
from myriad.spaces import Box
from myriad.xla import count_compilations

ROOT = Path(__file__).parents[2]
FAST = ("cartpole-control", "gene-circuit-control")  # the others compile for longer


@pytest.fixture(autouse=True)
def _own_registrations_end_with_the_test(monkeypatch):
    monkeypatch.setattr(ENVIRONMENTS, "_targets", dict(ENVIRONMENTS._targets))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST)) for name in list_envs()],
)
def test_myriads_own_environments_have_no_fault(name):
    check_env(make_env(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", list_envs())
def test_random_play_compiles_once_and_has_the_same_bits_for_any_chunk_and_tile(name):
    env = make_env(name)
    agent = make_agent("random", env)
    whole = Rollout(env, agent, 128, 24, num_devices=1)
    parts = Rollout(env, agent, 128, 7, tile_size=32, num_devices=2)
    state = parts.run_chunk(parts.init(seed=0))
    with count_compilations() as compilations:
        state = parts.run(state, 17)
    assert compilations.count == 0
    assert parts.summary(state).num_steps == 128 * 24
    expected = whole.batch_state(whole.run(whole.init(seed=0), 24))
    jax.tree.map(np.testing.assert_array_equal, parts.batch_state(state), expected)


@pytest.mark.slow
def test_the_documented_environment_is_made_from_its_module_and_has_no_fault(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    env = make_env("my_environment:HillCar", max_steps=10)
    assert env.default_params.max_steps == 10
    check_env(env)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no_such_module:Thing", "No module named 'no_such_module'; .* set PYTHONPATH=."),
        ("math:Thing", "AttributeError: module 'math' has no attribute 'Thing'$"),
        ("json.absent:Thing", "No module named 'json.absent'$"),
        ("two-tanks", "Known: .*, your_module:YourClass"),
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
        ("bucket-brigade", {"scenario": "chain_reacton"}, "did you mean 'chain_reaction'"),
        (
            "bucket-brigade",
            {"mode": "bernouli"},
            "'bernouli'; did you mean 'bernoulli'",
        ),
        ("bucket-brigade", {"opponents": "firefigther"}, "did you mean 'firefighter'"),
        ("bucket-brigade", {"opponents": ("hero",)}, "opponents must be one name or 2 names"),
        ("bucket-brigade", {"num_houses": 2}, "must be an integer from 3 to 100, but got 2"),
        ("gene-circuit", {"target": "sinus"}, "unknown target 'sinus'; did you mean 'sine'"),
        ("pendulum", {"discrete_torques": "5"}, "must be an integer from 2 to 1,000,000"),
        ("snake", {"width": 2}, "must be .*, but got "),
        ("snake", {"height": 1, "width": 3}, "must be .*, but got "),
        ("snake", {"height": 256, "width": 256}, "must be .*, but got "),
        ("snake", {"width": 10.5}, "must be .*, but got "),
        ("snake", {"height": True}, "must be .*, but got "),
    ],
    ids=str,
)
def test_a_value_that_makes_no_sense_is_refused(name, fields, sentence):
    with pytest.raises(InvalidArgumentError, match=sentence):
        make_env(name, **fields)


@dataclasses.dataclass(frozen=True)
class Changed(CartPole):
    """A cart and pole whose step is passed through `change` with the state before it."""

    change: object = None

    def step(self, key, state, action, params):
        result = super().step(key, state, action, params)
        return result if self.change is None else self.change(key, state, *result)


TABLE = np.ones(500, np.float32)
KEPT: list[jax.Array] = []


def kept(state):
    """Return an array that the first call keeps for all others."""
    if not KEPT:
        KEPT.append(jnp.ones(()) * state.x)
    return KEPT[0]


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
    "step raises TracerBoolConversionError in": (
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
    "obs leaves observation_space after step 1 of random actions: obs[0] is 9": (
        lambda key, old, obs, *rest: (obs + 99.0, *rest)
    ),
    "Use jnp.asarray(table)[index] in place of a list": (
        lambda key, old, obs, state, reward, *rest: (obs, state, reward * [1, 2][old.time], *rest)
    ),
    "jnp.asarray(TABLE)[index] for a NumPy array": (
        lambda key, old, obs, state, reward, *rest: (obs, state, reward * TABLE[old.time], *rest)
    ),
    "An array that was made while JAX traced was kept": (
        lambda key, old, obs, state, reward, *rest: (obs, state, reward * kept(old), *rest)
    ),
    "step raises AttributeError in " + __file__: (
        lambda key, old, obs, state, reward, *rest: (obs, state, reward.no_such, *rest)
    ),
    "step raises NotImplementedError in " + __file__: (
        lambda key, old, obs, state, reward, *rest: (
            obs, state, reward + jax.random.poisson(key, 1.0), *rest,
        )
    ),
    "step returns something else when it is called again": (
        lambda key, old, obs, state, reward, *rest: (
            obs, state, reward * jnp.float32(np.random.default_rng().random()), *rest,
        )
    ),
    "step returns something else when it is compiled": (
        lambda key, old, obs, state, reward, *rest: (
            obs, state, reward + isinstance(reward, jax.core.Tracer), *rest,
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


class FarCartPole(CartPole):
    def reset(self, key, params):
        obs, state = super().reset(key, params)
        return obs.at[0].set(99.0), state


class WideCartPole(CartPole):
    def observation_space(self, params):
        return Box(-1.0, 1.0, (5,))


class MaskedCartPole(CartPole):
    def action_mask(self, state):
        return jnp.ones(3, bool)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (UnhashableCartPole, "the environment must be hashable"),
        (EqualCartPole, "64 resets with different keys are all equal"),
        (TwinCartPole, "reset uses one random key for several draws"),
        (FarCartPole, "obs leaves observation_space after reset: obs[0] is 99"),
        (WideCartPole, "shape of observation_space, (5,), but has (4,)"),
        (MaskedCartPole, "action_mask must return a boolean for each action of a Discrete"),
        (object, "default_params is missing"),
    ],
)
def test_a_fault_of_reset_or_of_the_class_is_said(kind, sentence):
    with pytest.raises(FaultyEnvironmentError) as caught:
        check_env(kind())
    assert sentence in " ".join(caught.value.faults)


def test_what_trains_all_the_same_is_a_warning():
    with pytest.warns(EnvironmentWarning, match="state.x of reset is of a weak type"):
        check_env(WeakCartPole(), skip=["behaviour"])
    never = jnp.zeros((), bool)
    late = Changed(change=lambda key, old, *x: (*x[:3], x[3] | x[4], never, x[5]))
    with pytest.warns(EnvironmentWarning, match="reports a time limit as terminated"):
        check_env(late, skip=["purity", "batches"])
    with pytest.raises(InvalidArgumentError, match=r"skip must name some of .*, but got 'key'"):
        check_env(late, skip=["key"])


class SlowCartPole(CartPole):
    """Its reset takes far longer than its step."""

    def reset(self, key, params):
        own, other = jax.random.split(key)
        obs, state = super().reset(own, params)
        shift = jnp.linalg.matrix_power(jax.random.normal(other, (64, 64)) / 64, 16).sum()
        return obs, dataclasses.replace(state, x=state.x + 1e-9 * shift)


@pytest.mark.slow
def test_a_reset_that_costs_more_than_half_a_step_is_a_warning(monkeypatch):
    says = (
        r"resets takes [\d.e+]+ to [\d.e+]+ times as long .*: draw what takes long when you build"
    )
    with pytest.warns(EnvironmentWarning, match=says):
        check_env(SlowCartPole(), skip=["keys", "purity", "batches"])
    # Counts alone are no claim: the body of a step's loop is counted once.
    compared = []

    def compare(step, reset, **options):
        compared.append(options)
        return dataclasses.replace(timing.compare(step, step, num_pairs=6), b_over_a_low=0.4)

    monkeypatch.setattr(checker, "compare", compare)
    check_env(SlowCartPole(), skip=["keys", "purity", "batches"])
    check_env(make_env("cartpole"), skip=["keys", "purity", "batches"])
    assert len(compared) == 1


def test_an_error_in_your_code_is_the_cause():
    with pytest.raises(FaultyEnvironmentError) as caught:
        check_env(Changed(change=STEP_FAULTS["step raises AttributeError in " + __file__]))
    assert isinstance(caught.value.__cause__, AttributeError)


def test_a_training_refuses_a_faulty_environment_before_it_compiles():
    five = Changed(change=lambda key, old, *results: (*results[:4], results[5]))
    for env in (five, FrameStackObservation(five, 2)):
        with pytest.raises(FaultyEnvironmentError, match="but returns a tuple of 5"):
            create_config(env, "dqn")


@pytest.mark.parametrize(
    ("name", "action", "named"),
    [
        ("cartpole-control", 0.5, "an integer of 0 to 1, but got float32"),
        ("cartpole-control", 2, "but got 2"),
        ("gene-circuit-control", True, "an integer of 0 to 1, but got bool"),
        ("pendulum-control", np.full(1, np.nan, np.float32), r"but got \[nan\]"),
        ("snake", np.zeros(2, int), r"but got int32 of shape \(2,\)"),
        ("bucket-brigade", [10, 0, 0], r"but got \[10, 0, 0\]"),
    ],
)
def test_a_wrong_action_is_refused(name, action, named):
    env = make_env(name)
    _, shapes = jax.eval_shape(env.reset, make_key(0), env.default_params)
    state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    with pytest.raises(InvalidArgumentError, match=f"action must be .*{named}"):
        env.step(make_key(1), state, action, env.default_params)
