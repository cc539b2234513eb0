"""The scripted players act as their scripts do, and a contest knows the better score."""

import jax.numpy as jnp
import pytest

from benchmarks.opponents.scripted import (
    Preview,
    Score,
    best_of,
    config_of,
    contests,
    returns,
    snake_players,
    villagers,
)
from myriad import make_agent, make_env, make_key
from myriad.envs.bucket_brigade import POLICIES
from myriad.presets import load_preset


@pytest.mark.parametrize("name", ["firefighter", "free-rider", "hero"])
def test_a_villager_does_from_what_it_sees_what_its_script_does_from_the_state(name):
    env = make_env("bucket-brigade")
    params = env.default_params
    player = dict(villagers(env))[name]
    obs, state = env.reset(make_key(3), params)
    for night in range(12):
        action = player.act(make_key(0), obs)
        expected = POLICIES[name]([], 0, state)
        assert action.tolist() == [int(part) for part in expected]
        obs, state, *_ = env.step(make_key(night), state, action, params)


@pytest.mark.long
def test_a_snake_that_looks_grows_longer_and_neither_snake_dies_before_it_has_eaten():
    env = make_env("snake")
    blind, looking = (returns(env, player) for _, player in snake_players(env))
    assert looking.mean() > blind.mean() > 5
    assert float(looking.min()) >= 0


@pytest.mark.long
def test_the_best_of_a_sweep_is_no_worse_than_the_controller_as_it_comes():
    env = make_env("gene-circuit-control")
    plain = make_agent("bangbang", env)
    grid = {"offset": (-0.2, 0.0, 0.1), "hysteresis": (0.0, 0.02), "preview": (0,)}
    _, best = best_of("bang-bang", env, plain, grid)
    assert float(returns(env, best).mean()) >= float(returns(env, plain).mean()) - 30


def test_a_controller_with_preview_steers_to_the_later_target():
    env = make_env("gene-circuit-control", target="sine", n_horizon=3)
    obs = jnp.array([0.5, 0.4, 0.45, 0.55, 0.6])  # F, then the target now and in 1, 2, 3 intervals
    plain = make_agent("bangbang", env)
    lights = [
        int(Preview(plain, preview).control(plain.first_memory(), make_key(0), obs)[0])
        for preview in range(4)
    ]
    assert lights == [0, 0, 1, 1]


def test_a_lower_error_is_the_better_score_and_intervals_must_not_touch():
    circuit = next(each for each in contests() if each.env == "gene-circuit-control")
    snake = next(each for each in contests() if each.env == "snake")
    low, high, near = Score("low", 3.0, 0.2), Score("high", 4.0, 0.2), Score("near", 3.3, 0.2)
    assert circuit.is_better(low, high)
    assert not circuit.is_better(high, low)
    assert not circuit.is_better(low, near)
    assert snake.is_better(high, low)
    assert not snake.is_better(low, high)


def test_an_agent_with_a_preset_has_its_values():
    contest = contests()[-1]
    config = config_of(contest, "ppo", 5_000, "ultra_fast")
    assert config.num_envs == load_preset("ultra_fast", "ppo", contest.env).fields["num_envs"]
