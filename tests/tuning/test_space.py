"""Search spaces: the shipped ones, your own, and what is wrong with a file."""

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myriad import create_config
from myriad.errors import InvalidArgumentError
from myriad.tuning.space import SearchSpace
from tests.learners import SMALL, env_of

BASE = {"env": "bucket-brigade", "total_steps": 50_000, "env.scenario": "easy"}


def space_of(tmp_path, text, agent="ppo", env=None):
    """Read a space from text."""
    file = tmp_path / "space.toml"
    file.write_text(text)
    return SearchSpace.load(agent, env, file)


@pytest.mark.parametrize("agent", SMALL)
def test_every_learner_has_a_space_whose_shapes_can_be_trained(agent):
    SearchSpace.load(agent).require_usable({"env": env_of(agent), "agent": agent})


def test_a_learner_without_a_space_of_its_own_has_the_default_one():
    space = SearchSpace.load("myriad.agents.pqn:PQN")
    assert list(space.parameters) == ["agent.learning_rate"]
    space.require_usable({"env": "cartpole", "agent": space.agent})


def test_the_space_of_ppo_is_the_documented_one():
    space = SearchSpace.load("ppo")
    ranges = {name: (each.low, each.high, each.log) for name, each in space.parameters.items()}
    choices = {name: each.choices for name, each in space.parameters.items() if each.choices}
    batches = [space.fixed["num_envs"] * steps for steps in choices["rollout_steps"]]
    assert batches == [512, 1024, 2048, 4096]
    assert choices["agent.hidden_sizes"] == [[64, 64], [128, 128], [256, 256], [512, 512]]
    assert {name: ends for name, ends in ranges.items() if name not in choices} == {
        "agent.learning_rate": (1e-5, 1e-3, True),
        "agent.num_epochs": (3, 10, False),
        "agent.clip_epsilon": (0.1, 0.3, False),
        "agent.entropy_coef": (0.001, 0.05, True),
        "agent.value_coef": (0.3, 0.7, False),
        "agent.gamma": (0.95, 0.999, False),
        "agent.gae_lambda": (0.9, 0.99, False),
    }


@pytest.mark.slow
@settings(max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_what_a_trial_draws_is_a_configuration_and_is_found_again(seed):
    space = SearchSpace.load("ppo")
    trial = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed)).ask()
    fields = space.suggest(trial)
    config = create_config(**BASE, agent="ppo", **fields)
    assert config.num_envs == 16
    assert space.fields(trial.params) == fields
    assert space.params(fields) == trial.params


def test_known_values_may_be_those_of_one_environment(tmp_path):
    text = GAMMA + "{ low = 0.9, high = 0.999 }\n[[known]]\n'agent.gamma' = 0.95\n"
    text += "[[known]]\nenv = 'snake'\n'agent.gamma' = 0.99\n"
    assert space_of(tmp_path, text).known == ({"agent.gamma": 0.95},)
    assert space_of(tmp_path, text, env="snake").known[1] == {"agent.gamma": 0.99}


def test_the_fingerprint_follows_the_space_and_not_what_is_known(tmp_path):
    text = GAMMA + "{ low = 0.9, high = 0.999 }\n"
    plain = space_of(tmp_path, text).fingerprint
    assert space_of(tmp_path, f"{text}[[known]]\n'agent.gamma' = 0.95\n").fingerprint == plain
    for other in (text.replace("0.9,", "0.8,"), f"{text}[fixed]\nnum_envs = 4\n"):
        assert space_of(tmp_path, other).fingerprint != plain


GAMMA = '[parameters]\n"agent.gamma" = '


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[parameters]\ngamma = {", "key"),
        ('[parameters]\n"agent.gama" = {choices = [1]}', "did you mean 'agent.gamma'?"),
        (GAMMA + "{low = 0.9}", "must have either choices, or low and high"),
        (GAMMA + "{choices = [1, 1]}", "must differ"),
        (GAMMA + "{choices = [1.0], when = {num_envs = 4}}", "must name parameters above it"),
        (GAMMA + "{choices = [1.0]}\n[fixed]\n'agent.gamma' = 1.0", "not in both"),
        (GAMMA + "{choices = [1.0]}\n[[known]]\n'agent.gamma' = 2.0", "must be a value of the"),
        ("[parameters]\nseed = {choices = [1]}", "unknown parameter 'seed'"),
        ("[parameters]\nrollout_steps = {low = 1, high = 40}", "at most 16 combinations"),
        ("[parameters]\nnum_envs = {low = 1.0, high = 9.0}", "must have choices"),
        # What no training can have.
        ("[fixed]\nnum_envs = 3\n[parameters]\nrollout_steps = {choices=[7]}", "num_minibatches"),
        (GAMMA + "{low = 0.5, high = 1.5}", "gamma must be a number from 0 to 1, but got 1.5"),
    ],
)
def test_a_mistake_in_a_file_is_said_with_its_path_before_any_trial(tmp_path, text, says):
    with pytest.raises(InvalidArgumentError) as raised:
        space_of(tmp_path, text).require_usable({"env": "cartpole-control", "agent": "ppo"})
    assert says in str(raised.value)
    assert str(raised.value).startswith(f"{tmp_path / 'space.toml'}: ")


def test_an_agent_without_a_space_needs_a_file(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"unknown parameter 'agent.learning_rate'"):
        SearchSpace.load("pid")
    with pytest.raises(InvalidArgumentError, match=r"nowhere.toml can't be read"):
        SearchSpace.load("pid", file=tmp_path / "nowhere.toml")
    assert space_of(tmp_path, "[parameters]\nnum_envs = {choices = [4, 8]}", "pid").static
