"""Float parameters are arguments of compiled programs: another value compiles nothing."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import Rollout, check_env, create_config, evaluate, make_agent, make_env
from myriad.agents import make_learner
from myriad.envs.cartpole import CartPole, CartPoleParams
from myriad.envs.vector import float_parameters
from myriad.errors import EnvironmentWarning, InvalidArgumentError
from myriad.training.compiled import CompiledTraining
from myriad.training.population import Population
from myriad.xla import count_compilations
from tests.bits import assert_close
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
    with pytest.warns(EnvironmentWarning, match=r"value of gravity, .* compiles programs anew"):
        check_env(kind(), skip=["keys", "purity", "behaviour"])


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
    assert "jit(_chunk)" not in compilations.names
    assert "jit(_first_state)" not in compilations.names
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
