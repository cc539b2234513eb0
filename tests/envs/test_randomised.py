"""Parameters that each reset draws: `Uniform` in a configuration and `RandomisedParams`."""

import dataclasses
import warnings

import jax
import numpy as np
import pytest

from myriad import Rollout, check_env, create_config, make_agent, make_env, train_and_evaluate
from myriad.envs.cartpole import CartPole
from myriad.envs.vector import float_parameters
from myriad.envs.wrappers import FlattenObservation, RandomisedParams, Uniform
from myriad.errors import InvalidArgumentError
from myriad.training.callbacks import Callback
from myriad.training.config import TrainingConfig
from tests.training.small import PPO, SIZES


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


@pytest.mark.slow
def test_a_training_draws_and_a_callback_can_set_the_others(tmp_path):
    class Sets(Callback):
        def on_start(self, run):
            run.set_env(force=5.0)
            with pytest.raises(InvalidArgumentError, match="gravity can't be set, since each"):
                run.set_env(gravity=5.0)

    config = create_config("cartpole", "ppo", **SIZES, **PPO, **{"env.gravity": Uniform(5, 15)})
    results = train_and_evaluate(config, tmp_path, quiet=True, callbacks=[Sets()])
    assert results.training[-1]["env/force"] == 5
