"""make_env, register_env and check_env: what a user of one's own environment meets."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import check_env, create_config, list_envs, make_env, make_key
from myriad.envs.cartpole import CartPole
from myriad.envs.wrappers import FrameStackObservation
from myriad.errors import EnvironmentWarning, FaultyEnvironmentError, InvalidArgumentError

FAST = ("cartpole-control", "gene-circuit-control")  # the others compile for longer


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST)) for name in list_envs()],
)
def test_myriads_own_environments_have_no_fault(name):
    check_env(make_env(name))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "bounds", "shown"),
    [
        ("cartpole", [0.05] * 4, lambda *state: state),
        ("pendulum", [np.pi, 1], lambda theta, speed: (np.cos(theta), np.sin(theta), speed)),
    ],
)
def test_a_start_is_uniform_in_its_box(name, bounds, shown):
    env = make_env(name)
    keys = jax.random.split(make_key(1), 20_000)
    obs, state = jax.vmap(env.reset, (0, None))(keys, env.default_params)
    numbers = np.array([leaf for leaf in jax.tree.leaves(state) if leaf.dtype == np.float32])
    for values, bound in zip(numbers, bounds, strict=True):
        assert np.abs(values).max() <= bound
        np.testing.assert_allclose(np.std(values), bound / np.sqrt(3), rtol=0.02)
        assert abs(np.mean(values)) < 0.03 * bound
        assert len(np.unique(values)) > 19_000
    assert np.abs(np.corrcoef(numbers) - np.eye(len(bounds))).max() < 0.03
    np.testing.assert_allclose(obs, np.stack(shown(*numbers), axis=1), atol=1e-6)


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
        ("no_such_module:Thing", {}, "No module named 'no_such_module'; .* set PYTHONPATH=."),
        ("math:Thing", {}, "module 'math' has no attribute 'Thing'$"),
        ("json.absent:Thing", {}, "No module named 'json.absent'$"),
        ("two-tanks", {}, "Known: .*, your_module:YourClass"),
        ("math:pi", {}, "must be a dataclass with default_params"),
        (":", {}, "can't be imported"),
        ("cartpole", {"gravity": jax.random.key(0)}, "gravity must be a finite number"),
        ("gymnax:CartPole-v1", {"max_steps_in_episode": None}, "is refused: .*, but got None"),
        ("bucket-brigade", {"scenario": "chain_reacton"}, "did you mean 'chain_reaction'"),
        ("bucket-brigade", {"mode": "bernouli"}, "did you mean 'bernoulli'"),
        ("bucket-brigade", {"opponents": "firefigther"}, "did you mean 'firefighter'"),
        ("bucket-brigade", {"opponents": ("hero",)}, "opponents must be one name or 2 names"),
        ("gene-circuit", {"target": "sinus"}, "target is refused: .* 'sine', but got 'sinus'"),
        ("snake", {"height": 1, "width": 3}, "must be .*, but got "),
        ("snake", {"height": 256, "width": 256}, "must be .*, but got "),
    ],
    ids=str,
)
def test_what_cannot_be_made_is_refused_in_a_sentence(name, fields, sentence):
    with pytest.raises(InvalidArgumentError, match=sentence):
        make_env(name, **fields)


@dataclasses.dataclass(frozen=True)
class Changed(CartPole):
    """A cart and pole with another start or with other results of a step.

    `start` maps the key, an observation and a state to what `reset` returns. `change` maps the key,
    the state before and the results by name to those that it replaces, or to all that are returned.
    """

    start: object = None
    change: object = None

    def reset(self, key, params):
        obs, state = super().reset(key, params)
        return (obs, state) if self.start is None else self.start(key, obs, state)

    def step(self, key, state, action, params):
        names = ("obs", "state", "reward", "terminated", "truncated", "info")
        results = dict(zip(names, super().step(key, state, action, params), strict=True))
        if self.change is not None:
            changes = self.change(key=key, old=state, **results)
            if isinstance(changes, tuple):
                return changes
            results |= changes
        return tuple(results.values())


TABLE = np.ones(500, np.float32)
KEPT: list[jax.Array] = []


def kept(state):
    """Return an array that the first call keeps for all others."""
    if not KEPT:
        KEPT.append(jnp.ones(()) * state.x)
    return KEPT[0]


def five_of_six(obs, state, reward, terminated, info, **_):
    return obs, state, reward, terminated, info


STEP_FAULTS = {
    "step must return (obs, state, reward, terminated, truncated, info), but returns": five_of_six,
    "obs of step must have the shape of observation_space, (4,), but has (2,)": (
        lambda obs, **_: {"obs": obs[:2]}
    ),
    "obs of step must have the dtype of observation_space, float32, but has int32": (
        lambda obs, **_: {"obs": obs.astype(jnp.int32)}
    ),
    "reward must be a scalar of float32, but is float32 of shape (1,)": (
        lambda reward, **_: {"reward": reward[None]}
    ),
    "terminated must be a scalar of bool, but is float32 of shape ()": (
        lambda terminated, **_: {"terminated": terminated.astype(jnp.float32)}
    ),
    "info must be a dict, but is NoneType": lambda **_: {"info": None},
    "state.time is int32 of shape () after reset, but float32 of shape () after step": (
        lambda state, **_: {"state": dataclasses.replace(state, time=state.time * 1.0)}
    ),
    "step raises TracerBoolConversionError in": (
        lambda state, reward, **_: {"reward": reward if state.x > 0 else -reward}
    ),
    "step raises KeyReuseError: ": (
        lambda key, **_: {"reward": jax.random.normal(key) + jax.random.uniform(key)}
    ),
    "reward is not finite after step": lambda state, **_: {"reward": jnp.log(state.theta)},
    "obs leaves observation_space after step 1 of random actions: obs[0] is 9": (
        lambda obs, **_: {"obs": obs + 99.0}
    ),
    "Use jnp.asarray(table)[index] in place of a list": (
        lambda reward, old, **_: {"reward": reward * [1, 2][old.time]}
    ),
    "jnp.asarray(TABLE)[index] for a NumPy array": (
        lambda reward, old, **_: {"reward": reward * TABLE[old.time]}
    ),
    "An array that was made while JAX traced was kept": (
        lambda reward, old, **_: {"reward": reward * kept(old)}
    ),
    "step raises AttributeError in " + __file__: lambda reward, **_: {"reward": reward.no_such},
    "step returns something else when it is called again": (
        lambda reward, **_: {"reward": reward * jnp.float32(np.random.default_rng().random())}
    ),
}


class Unhashable(CartPole):
    __hash__ = None


class Masked(CartPole):
    def action_mask(self, state):
        return jnp.ones(3, bool)


OTHER_FAULTS = {
    "64 resets with different keys are all equal": Changed(
        start=lambda *_: CartPole().reset(jax.random.key(3), CartPole().default_params)
    ),
    "reset raises KeyReuseError: ": Changed(
        start=lambda key, obs, state: (obs + jax.random.uniform(key, (4,)), state)
    ),
    "obs leaves observation_space after reset: obs[0] is 99": Changed(
        start=lambda key, obs, state: (obs.at[0].set(99.0), state)
    ),
    "the environment must be hashable": Unhashable(),
    "action_mask must return a boolean for each action of a Discrete": Masked(),
    "default_params is missing": object(),
}
FAULTS = {sentence: Changed(change=change) for sentence, change in STEP_FAULTS.items()}
FAULTS |= OTHER_FAULTS


@pytest.mark.parametrize("sentence", FAULTS)
def test_a_fault_is_said(sentence):
    env = FAULTS[sentence]
    with pytest.raises(FaultyEnvironmentError) as caught:
        check_env(env)
    assert str(caught.value).startswith(f"{type(env).__name__} has ")
    assert sentence in " ".join(caught.value.faults)
    if "AttributeError" in sentence:
        assert isinstance(caught.value.__cause__, AttributeError)  # the error in your code


def test_what_trains_all_the_same_is_a_warning():
    weak = Changed(
        start=lambda key, obs, state: (obs, dataclasses.replace(state, x=jnp.asarray(0.0)))
    )
    with pytest.warns(EnvironmentWarning, match="state.x of reset is of a weak type"):
        check_env(weak, skip=["behaviour"])
    with pytest.raises(InvalidArgumentError, match=r"skip is refused: .*'keys', .*, but got"):
        check_env(weak, skip=["key"])


def shuffled(key, obs, state):
    """Sort, which XLA counts as no operation."""
    first = jax.random.permutation(key, 52)[0]
    return obs, dataclasses.replace(state, time=jnp.minimum(first, 0))


@pytest.mark.slow
def test_a_reset_that_costs_more_than_half_a_step_is_a_warning():
    says = r"resets takes [\d.e+]+ to [\d.e+]+ times as long .*: reset_pool=64 draws 64 first"
    with pytest.warns(EnvironmentWarning, match=says):
        check_env(Changed(start=shuffled), skip=["keys", "purity", "batches"])


def test_a_training_refuses_a_faulty_environment_before_it_compiles():
    five = Changed(change=five_of_six)
    for env in (five, FrameStackObservation(five, 2)):
        with pytest.raises(FaultyEnvironmentError, match="but returns a tuple of 5"):
            create_config(env, "dqn")


@pytest.mark.parametrize("name", list_envs())
def test_a_wrong_action_is_refused(name):
    env = make_env(name)
    _, shapes = jax.eval_shape(env.reset, make_key(0), env.default_params)
    state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    shape = env.action_space(env.default_params).shape
    for action in (True, "left", 2**40, np.zeros(9, int), np.full(shape, np.nan, np.float32)):
        with pytest.raises(InvalidArgumentError, match=r"action must be .*, but got "):
            env.step(make_key(1), state, action, env.default_params)
