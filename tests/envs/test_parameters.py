"""Parameters that are arguments of programs or that resets draw, and pools of first states."""

import dataclasses
import warnings
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import Rollout, check_env, create_config, evaluate, make_agent, make_env, make_key
from myriad.adapters.adapter import Adapter, Built, results
from myriad.agents import make_learner
from myriad.envs.cartpole import CartPole, CartPoleParams
from myriad.envs.vector import float_parameters, require_changeable
from myriad.envs.wrappers import FlattenObservation, RandomisedParams, Uniform
from myriad.errors import EnvironmentWarning, InvalidArgumentError
from myriad.spaces import Box, Discrete
from myriad.training.compiled import CompiledTraining
from myriad.training.config import TrainingConfig
from myriad.training.population import Population
from tests.adapters.rollouts import assert_rolls_out_and_compiles_once
from tests.bits import assert_close
from tests.compilations import count_compilations
from tests.learners import SMALL, trained


class Branching(CartPole):
    def step(self, key, state, action, params):
        if params.gravity > 0:
            return super().step(key, state, action, params)
        raise NotImplementedError


class Half(CartPole):
    """Its observation would turn into float32."""

    def reset(self, key, params):
        obs, state = super().reset(key, params)
        return obs.astype(jnp.bfloat16), state

    def step(self, key, state, action, params):
        obs, *others = super().step(key, state, action, params)
        return obs.astype(jnp.bfloat16) * params.mass_cart, *others

    def observation_space(self, params):
        return dataclasses.replace(super().observation_space(params), dtype=jnp.bfloat16)


CARTPOLE = ("gravity", "mass_cart", "mass_pole", "half_length", "force", "tau")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Kept(CartPoleParams):
    gravity: float = dataclasses.field(default=9.8, metadata={"constant": True})


@pytest.mark.parametrize(
    ("env", "names"),
    [
        (CartPole(), CARTPOLE),
        (CartPole(CartPoleParams(gravity=12)), CARTPOLE),  # an integer of a float's field
        (CartPole(CartPoleParams(gravity=np.float32(3))), CARTPOLE),
        (CartPole(CartPoleParams(gravity=jnp.float32(3))), CARTPOLE),  # it has no hash
        (make_env("pendulum"), ("gravity", "mass", "length", "tau")),
        (make_env("snake"), ("step_penalty",)),
        (CartPole(Kept()), CARTPOLE[1:]),
        (Branching(), ()),
        (Half(), ()),
    ],
    ids=str,
)
def test_the_arguments_are_floats_that_change_no_space(env, names):
    assert float_parameters(env) == names


@pytest.mark.parametrize("kind", [Branching, Half])
def test_an_environment_without_float_arguments_is_told(kind):
    with pytest.warns(EnvironmentWarning, match="parameters") as told:
        check_env(kind(), skip=["keys", "purity", "behaviour"])
    assert "value of gravity, mass_cart" in str(told[-1].message)


def test_another_value_compiles_nothing_in_a_rollout_and_counts():
    env = make_env("pendulum")
    rollout = Rollout(env, make_agent("random", env), 8, 16)

    def angles(params=None):
        state = rollout.run_chunk(rollout.init(0, params))
        return np.asarray(rollout.batch_state(state).env_state.theta)

    first = angles()
    with count_compilations() as compilations:
        moon = angles(dataclasses.replace(env.default_params, gravity=1.6, mass=2))
        np.testing.assert_array_equal(angles(), first)
    assert "jit(_chunk)" not in compilations
    assert "jit(_first_state)" not in compilations
    other = make_env("pendulum", gravity=1.6, mass=2)
    anew = Rollout(other, make_agent("random", other), 8, 16)
    state = anew.run_chunk(anew.init(0))
    np.testing.assert_array_equal(moon, anew.batch_state(state).env_state.theta)
    assert not np.array_equal(moon, first)
    refused = dataclasses.replace(env.default_params, max_steps=7)
    with pytest.raises(InvalidArgumentError, match=r"params\.max_steps is a constant of"):
        rollout.init(0, refused)


@pytest.mark.slow
def test_an_argument_does_what_a_constant_does_in_a_training_and_in_an_evaluation():
    def outcome(kind):
        env = kind(CartPoleParams(gravity=3, half_length=0.8))
        state, _ = trained(make_learner("ppo", env, **SMALL["ppo"]), 8, 1)
        config = create_config(env, "pid", eval_max_steps=200)
        return state.batch_state.obs, evaluate(config, None, 4)

    assert_close(outcome(CartPole), outcome(Branching), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("agent", ["ppo", pytest.param("sac", marks=pytest.mark.slow)])
@pytest.mark.parametrize("training_of", [CompiledTraining, partial(Population, num_slots=2)])
def test_the_programs_of_a_training_are_the_same_for_every_value(agent, training_of):
    options = {f"agent.{name}": value for name, value in SMALL[agent].items()}

    def programs(**env):
        training = training_of(create_config("pendulum", agent, 4, **options, **env))
        return {name: traced.lower().as_text() for name, (traced, _) in training._traced()}

    assert programs() == programs(**{"env.gravity": 12, "env.length": 0.5})
    assert programs() != programs(**{"env.max_torque": 3.0})


def test_each_episode_draws_anew_and_keeps_what_it_drew():
    env = make_env("cartpole", gravity="uniform(5, 15)", force=Uniform(5, 12), max_steps=12)
    rollout = Rollout(env, make_agent("random", env), 64, 48)
    starts, episodes, drawn = rollout.init(0), [], []
    for _ in range(4):
        starts = rollout.run_chunk(starts, 12)
        batch = rollout.batch_state(starts)
        episodes.append(np.asarray(batch.num_episodes))
        drawn.append(np.stack(batch.env_state.drawn))
    gravity, force = np.stack(drawn, 1)
    assert env.drawn == ("gravity", "force")
    for values, low, high in ((gravity, 5, 15), (force, 5, 12)):
        assert low <= values.min() < low + 1
        assert high - 1 < values.max() <= high
        ended = np.diff(episodes, axis=0) > 0
        assert ((np.diff(values, axis=0) != 0) == ended).all()
    assert ended.any()


def test_what_is_drawn_is_what_steps():
    def lighter(key, params):
        mass = params.mass_pole * jax.random.uniform(key)
        return dataclasses.replace(params, mass_pole=mass)

    env = RandomisedParams(CartPole(), lighter, observes=True)
    obs, state = env.reset(jax.random.key(1), env.default_params)
    params = dataclasses.replace(env.default_params, mass_pole=state.drawn[0])
    assert 0 < obs[4] == state.drawn[0] < 0.1
    expected = CartPole().step(jax.random.key(2), state.env_state, 1, params)
    found = env.step(jax.random.key(2), state, 1, env.default_params)
    np.testing.assert_array_equal(found[0], np.append(expected[0], state.drawn[0]))
    assert env.observation_space(env.default_params).shape == (5,)


def test_a_configuration_keeps_what_is_drawn():
    config = create_config("cartpole", "ppo", **{"env.gravity": Uniform(5, 15)})
    assert 'gravity = "uniform(5, 15)"' in config.to_toml()
    assert TrainingConfig.from_toml(config.to_toml()) == config
    assert create_config(**config.fields()) == config
    drawing = make_env("cartpole", gravity=Uniform(5, 15))
    assert create_config(drawing, "ppo").env == "cartpole-control"
    assert config.changed(**{"env.gravity": 9.8}) == create_config("cartpole", "ppo")
    both = make_env("cartpole", gravity=Uniform(5, 15), force=Uniform(5, 12))
    assert make_env(both, gravity=9.8) == make_env("cartpole", force=Uniform(5, 12))
    assert make_env(FlattenObservation(both), gravity=1, force=2).randomised == ()
    assert config.eval_max_steps == TrainingConfig.eval_max_steps


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"gravity": "uniform(15, 5)"}, r"env\.gravity must be a range .* low first, but got 'uni"),
        ({"gravity": "uniform(5)"}, r"env\.gravity must be a finite .* but got 'uniform\(5\)'"),
        ({"mass_pole": Uniform(-1, 1)}, r"env\.mass_pole must be a finite number above 0"),
        ({"max_steps": "uniform(1, 9)"}, r"env\.max_steps is no float"),
        ({"x_threshold": "uniform(1, 9)"}, r"env\.x_threshold is no float or changes a space"),
        ({"gravty": "uniform(1, 9)"}, "did you mean 'gravity'"),
    ],
    ids=str,
)
def test_what_cannot_be_drawn_is_refused(options, says):
    with pytest.raises(ValueError, match=says):
        create_config("cartpole", "ppo", **{f"env.{k}": value for k, value in options.items()})


class Pooled(CartPole):
    reset_pool = 8


def test_a_pool_of_first_states_and_a_draw_of_something_else_are_refused():
    with pytest.raises(InvalidArgumentError, match="reset_pool must be 0 where resets draw"):
        make_env(Pooled(), gravity=Uniform(1, 2))
    with pytest.raises(InvalidArgumentError, match="draw must return a CartPoleParams"):
        RandomisedParams(CartPole(), lambda key, params: params.gravity)


def test_what_is_drawn_is_no_argument_and_no_fault():
    env = FlattenObservation(make_env("cartpole", gravity="uniform(5, 15)"))
    assert "gravity" not in float_parameters(env)
    assert "force" in float_parameters(env)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.env, skip=["behaviour"])
    assert env.env.control_error(np.ones(4)) == CartPole().control_error(np.ones(4))


def test_a_callback_sets_what_no_reset_draws():
    env = make_env("cartpole", gravity=Uniform(5, 15))
    require_changeable(env, "force")
    with pytest.raises(InvalidArgumentError, match="gravity can't be set, since each"):
        require_changeable(env, "gravity")


# --- pools of first states ------------------------------------------------------------------------


STARTS = []


@dataclasses.dataclass(frozen=True)
class Dice(Adapter):
    """An environment of a made-up library, whose state holds the key of all its draws."""

    library: ClassVar[str] = "dice"

    @classmethod
    def names(cls):
        return ["two"]

    def build(self):
        return Built(None, Box(0.0, 1.0, (2,)), Discrete(2))

    def reset(self, key, params):
        STARTS.append(self)
        key, drawn = jax.random.split(key)
        return jax.random.uniform(drawn, (2,)), key

    def step(self, key, state, action, params):
        state, drawn = jax.random.split(state)
        obs = jax.random.uniform(drawn, (2,))
        return results(obs, state, 0.0, obs[0] > 0.5, jnp.zeros((), bool), {})


class Placed(CartPole):
    """A cart that starts near `gravity`."""

    def reset(self, key, params):
        STARTS.append(self)
        obs, state = super().reset(key, params)
        x = obs[0] + params.gravity
        return obs.at[0].set(x), dataclasses.replace(state, x=x)


def resets(env):
    keys = jax.random.split(make_key(1), 64)
    return jax.vmap(env.reset, in_axes=(0, None))(keys, env.default_params)


@pytest.mark.parametrize("env", [Dice.adapt("two"), Placed()])
def test_a_reset_picks_any_of_a_pool_that_is_drawn_once(env):
    STARTS.clear()
    pooled = make_env(env, reset_pool=5)
    assert pooled.reset_pool == 5
    assert_rolls_out_and_compiles_once(pooled)
    assert len(np.unique(resets(pooled)[0], axis=0)) == 5
    assert len(STARTS) == 1  # one trace
    assert pooled == make_env(env, reset_pool=5) != env
    without = resets(make_env(pooled, reset_pool=0))[0]
    np.testing.assert_array_equal(without, resets(env)[0])
    assert len(np.unique(without, axis=0)) == 64
    for size in (-1, 2.5):
        with pytest.raises(InvalidArgumentError, match="reset_pool must be an integer from 0"):
            make_env(pooled, reset_pool=size)


def test_episodes_from_the_same_first_state_draw_other_numbers():
    check_env(Dice.adapt("two"))  # though its state is a key
    env = make_env(Dice.adapt("two"), reset_pool=1)
    obs, state = resets(env)
    assert len(np.unique(obs, axis=0)) == 1
    step = jax.vmap(env.step, in_axes=(None, 0, None, None))
    assert len(np.unique(step(make_key(0), state, 0, None)[0], axis=0)) == 64


def test_a_pool_is_drawn_with_the_environments_own_parameters_and_takes_no_others():
    env = make_env(Placed(), reset_pool=4, gravity=1.6)
    for gravity, changed in ((1.6, env), (3.7, make_env(env, gravity=3.7))):
        np.testing.assert_allclose(resets(changed)[0][:, 0], gravity, atol=0.05)
    assert float_parameters(env) == ()
    for gravity in (9.8, jnp.linspace(1, 2, 16)):
        params = dataclasses.replace(env.default_params, gravity=gravity)
        with pytest.raises(InvalidArgumentError, match=r"with which the reset_pool .* was drawn"):
            Rollout(env, make_agent("random", env), 16, params=params).init(0)
    for given in (None, 5, CartPole()):
        with pytest.raises(InvalidArgumentError, match="params must be those with which"):
            env.reset(make_key(0), given)
    with pytest.raises(InvalidArgumentError, match="no arguments of a compiled function"):
        jax.jit(env.reset)(make_key(0), env.default_params)
    with pytest.raises(InvalidArgumentError, match=r"2,000,000,000 states of the reset_pool need"):
        make_env("cartpole", reset_pool=2_000_000_000)


def test_a_configuration_names_a_pool():
    config = create_config("cartpole", "ppo", **{"env.reset_pool": 8})
    assert config.env_options["reset_pool"] == config.environment.reset_pool == 8
    same = create_config(make_env("cartpole", reset_pool=8), "ppo")
    assert (same.env, same.env_options) == ("cartpole-control", config.env_options)
    assert config.changed(**{"env.reset_pool": 0}).environment == make_env("cartpole")
