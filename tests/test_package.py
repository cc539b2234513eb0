"""The face of the package: what is public, what a name answers, what an import costs."""

import subprocess
import sys

import pytest

import myriad
from myriad import create_config, list_envs, make_agent, make_env
from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.registry import Registry
from myriad.tuning import TuneSettings, tune

FAST = ("cartpole-control", "pendulum-control")  # the others compile for longer


def run_python(code):
    """Return what a process of its own prints."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_all_names_what_is_public():
    assert all(getattr(myriad, name) is not None for name in myriad.__all__)
    assert set(myriad._HOMES) == set(myriad.__all__)


def test_an_import_pulls_in_nothing_heavy():
    heavy = {
        "jax",
        "numpy",
        "pandas",
        "matplotlib",
        "asv",
        "gymnax",
        "gymnasium",
        "optuna",
        "flax",
        "optax",
    }
    script = "import sys, myriad; print(*sys.modules)"
    loaded = run_python(script).split()
    assert heavy.isdisjoint(loaded)


@pytest.mark.parametrize("alias", ["cartpole", "CartPole-v1", "cartpole-control"])
def test_an_alias_makes_the_same_environment(alias):
    assert make_env(alias) == make_env("cartpole-control")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in list_envs()],
)
def test_every_environment_rolls_out_under_the_random_agent(name):
    env = make_env(name)
    rollout = myriad.Rollout(env, make_agent("random", env), num_envs=8, scan_chunk_size=4)
    state, trajectory = rollout.record_chunk(rollout.init(seed=0))
    space = env.observation_space(env.default_params)
    assert trajectory.obs.shape == (4, 8, *space.shape)
    assert trajectory.obs.dtype == space.dtype
    assert trajectory.reward.dtype == "float32"
    assert rollout.summary(rollout.run_chunk(state)).num_steps == 64


def test_an_unknown_environment_answers_with_the_closest_name():
    with pytest.raises(
        ValueError, match="unknown environment 'cartpol'; did you mean 'cartpole'\\? Known: "
    ):
        make_env("cartpol")


def test_an_unknown_agent_answers_with_those_that_exist():
    with pytest.raises(UnknownNameError, match="unknown agent 'rnadom'; did you mean 'random'"):
        make_agent("rnadom", make_env("cartpole"))


def test_an_unknown_field_answers_with_the_closest_one():
    with pytest.raises(
        UnknownNameError, match="unknown field 'gravty' of cartpole-control; did you mean 'gravity'"
    ):
        make_env("cartpole", gravty=1.0)


def test_an_override_reaches_the_parameters():
    assert make_env("cartpole", max_steps=7).default_params.max_steps == 7


def test_a_scenario_brings_its_own_figures_and_an_override_wins_over_them():
    hard = make_env("bucket-brigade", scenario="hard", kappa=0.9).default_params
    assert (hard.beta, hard.kappa) == (pytest.approx(0.4), 0.9)


@pytest.mark.slow
def test_the_lists_are_sorted_and_complete():
    # In a process of its own: another test may have registered an environment in this one.
    code = "from myriad import list_agents, list_envs; print(*list_envs()); print(*list_agents())"
    envs, agents = run_python(code).splitlines()
    control = ["cartpole-control", "gene-circuit-control", "pendulum-control"]
    games = ["bucket-brigade", "snake"]
    assert envs.split() == sorted([*control, *games, "cartpole-sysid", "gene-circuit-sysid"])
    assert agents.split() == ["bangbang", "dqn", "pid", "ppo", "pqn", "random"]


def test_a_registry_refuses_a_name_twice_and_takes_an_object():
    registry = Registry("thing", {"one": "math:pi"}, aliases={"ein": "one"})
    registry.add("two", 1)
    registry.add("two", 2)
    assert registry.load("two") == 2
    with pytest.raises(InvalidArgumentError, match="thing 'one' is already registered"):
        registry.add("one", 2)


@pytest.mark.parametrize("name", ["os:system", "os:path", "myriad.envs.cartpole:CartPole"])
def test_what_is_not_an_agent_is_refused_by_its_name(name):
    with pytest.raises(InvalidArgumentError, match=f"agent '{name}' must be a dataclass with"):
        create_config("cartpole", name)


@pytest.mark.parametrize(
    ("name", "field", "needs"),
    [("dqn", "priority_beta", {"priority_alpha": 0.6}), ("pid", "limit", {"integral": 0.1})],
)
def test_a_hyperparameter_without_effect_is_refused(name, field, needs):
    env = make_env("cartpole")
    with pytest.raises(InvalidArgumentError, match=f"{field} must be .* it has no effect, but got"):
        make_agent(name, env, **{field: 0.9})
    assert getattr(make_agent(name, env, **{field: 0.9}, **needs), field) == 0.9


def test_a_campaign_takes_its_settings():
    with pytest.raises(InvalidArgumentError, match="settings must be a TuneSettings, but got 1"):
        tune(1)
    for fields, says in (
        ({"env": None}, "env must be a string"),
        ({"env": "cartpole", "study_name": 0}, "study_name must be a string"),
        ({"env": "cartpole", "objectives": 1}, "objectives must be a tuple or a list"),
        ({"env": "cartpole", "sampler": "TPE"}, "unknown sampler 'TPE'; did you mean 'tpe'"),
        ({"env": "cartpole", "pruner": 0}, "unknown pruner 0"),
        ({"env": "cartpole", "output": 3}, "output must be a path, but got 3"),
    ):
        with pytest.raises(InvalidArgumentError, match=says):
            TuneSettings(**fields)
