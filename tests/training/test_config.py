"""What create_config takes, fills in and refuses, and that a configuration survives a file."""

import copy
import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myriad import create_config, list_agents
from myriad.envs.cartpole import CartPole
from myriad.envs.checker import never_ends
from myriad.envs.pendulum import Pendulum
from myriad.envs.wrappers import FrameStackObservation
from myriad.errors import InvalidArgumentError
from myriad.ranges import INT32, INT64
from myriad.training.config import TrainingConfig
from tests.learners import SMALL, env_of

RATE = "agent.learning_rate"


def test_what_you_left_open_follows_a_change_of_what_you_gave_and_else_stays():
    config = create_config("cartpole", "dqn")
    chosen = {"agent.gradient_steps": 8}
    follows = config.changed(num_envs=1000, **chosen)
    assert follows == create_config("cartpole", "dqn", 1000, **chosen)
    assert follows.learner.polyak != config.learner.polyak
    kept = create_config(**config.fields() | {"num_envs": 1000} | chosen)
    assert (kept.num_envs, kept.learner.gradient_steps) == (1000, 8)
    assert kept.learner.polyak == config.learner.polyak
    assert create_config(**config.fields()) == config  # in which all is given
    assert copy.deepcopy(config).changed(num_envs=1000) == config.changed(num_envs=1000)
    assert dataclasses.replace(config, num_envs=64).changed(seed=2).num_envs == 64
    assert str(config.given) in repr(config)


@settings(max_examples=20)
@given(
    agent=st.sampled_from(list_agents()),
    seed=st.integers(-(2**63), 2**63 - 1),
    num_envs=st.integers(1, 10**6),
    target=st.none() | st.floats(allow_nan=False, allow_infinity=False, width=32),
    max_speed=st.floats(0.1, 100) | st.just(math.inf),
)
def test_any_configuration_survives_toml(agent, seed, num_envs, target, max_speed):
    fields: dict[str, Any] = {"num_envs": num_envs, "seed": seed, "target_return": target}
    env = env_of(agent)
    fields["env.max_speed" if env == "pendulum" else "env.x_threshold"] = max_speed
    config = create_config(env, agent, **fields)
    read = TrainingConfig.from_toml(config.to_toml())
    assert read == config
    assert read.learner == config.learner
    assert read.given.keys() == config.fields().keys()


def test_steps_are_rounded_up_to_whole_updates_of_all_environments():
    options = {"steps_per_env": 100, "eval_frequency": 33, "scan_chunk_size": 1}
    config = create_config("cartpole", "ppo", rollout_steps=32, **options)
    found = config.steps_per_env, config.eval_frequency, config.scan_chunk_size
    assert found == (128, 64, 32)
    config = create_config("cartpole", "ppo", 100, rollout_steps=8, total_steps=10_001)
    assert config.steps_per_env == 104  # the next whole update after 10,001 / 100


@pytest.mark.parametrize("agent", SMALL)
@pytest.mark.parametrize(
    ("num_envs", "rollout_steps"),
    [(1, None), (1000, 1), (10**6, None)],
)
def test_defaults_fit_any_number_of_environments_and_what_you_chose_stays(
    agent, num_envs, rollout_steps
):
    chosen = {"learning_rate": 0.25}
    if rollout_steps and "rollout_steps" in SMALL[agent]:
        chosen["rollout_steps"] = rollout_steps
    options = {f"agent.{name}": value for name, value in chosen.items()}
    config = create_config(env_of(agent), agent, num_envs, **options)
    assert {name: getattr(config.learner, name) for name in chosen} == chosen
    assert config.num_updates >= 40 or rollout_steps
    assert config.num_updates // config.updates_per_eval <= 20


class Endless:
    """A task that nothing ends."""

    def step(self, key, state, action, params):
        obs, state, reward, *_, info = super().step(key, state, action, params)
        return obs, state, reward, jnp.zeros((), bool), jnp.bool_(0), info


@dataclasses.dataclass(frozen=True)
class EndlessPole(Endless, CartPole): ...


@dataclasses.dataclass(frozen=True)
class EndlessPendulum(Endless, Pendulum): ...


class Timed(CartPole):
    """The clock of the first state is a constant, but the one of later states is not."""

    def step(self, key, state, action, params):
        obs, state, reward, _, truncated, info = super().step(key, state, action, params)
        return obs, state, reward, jnp.bool_(0), truncated, info


@pytest.mark.parametrize("num_envs", [1, 1024])
@pytest.mark.parametrize("agent", SMALL)
def test_all_evaluations_take_at_most_a_tenth_of_the_steps(agent, num_envs):
    endless = EndlessPendulum() if env_of(agent) == "pendulum" else EndlessPole()
    config = create_config(endless, agent, num_envs)
    evaluations = -(-config.num_updates // config.updates_per_eval)
    evaluated = evaluations * config.eval_rollouts * config.eval_max_steps
    assert 0.05 < evaluated / (config.steps_per_env * num_envs) <= 0.1
    assert create_config(endless, agent, num_envs, eval_max_steps=9).eval_max_steps == 9
    assert create_config(env_of(agent), agent, num_envs).eval_max_steps == 2_500


def test_only_an_environment_whose_steps_return_a_constant_ends_no_episode():
    assert never_ends(EndlessPole())
    assert never_ends(FrameStackObservation(EndlessPole(), num_frames=2))
    assert not any(map(never_ends, (CartPole(), Timed())))
    for total_steps, expected in ((1_000, 50), (10**9, 2_500)):
        config = create_config(EndlessPole(), "ppo", total_steps=total_steps)
        assert config.eval_max_steps == expected


@pytest.mark.parametrize("agent", ["pqn", "dqn"])
@pytest.mark.parametrize(
    ("num_envs", "length"), [(None, {}), (16, {"total_steps": 50_000}), (1000, {"total_steps": 1})]
)
def test_epsilon_falls_within_a_fifth_of_a_training(agent, num_envs, length):
    config = create_config("cartpole", agent, num_envs, **length)
    total = config.steps_per_env * config.num_envs
    assert 0 < config.learner.exploration_steps <= max(1, total / 5)
    chosen = {"agent.exploration_steps": 77}
    learner = create_config("cartpole", agent, num_envs, **length, **chosen).learner
    assert learner.exploration_steps == 77


def test_64_bit_numbers_of_jax_are_refused_in_a_sentence():
    with (
        jax.enable_x64(True),  # noqa: FBT003 (its own signature)
        pytest.raises(InvalidArgumentError, match="jax_enable_x64 must be False"),
    ):
        create_config("cartpole", "ppo")


def test_numbers_and_arrays_of_numpy_and_jax_are_kept_as_pythons_own():
    options = {"env.gravity": np.float32(3.5), "env.max_steps": np.int64(7)}
    options |= {"agent.learning_rate": jnp.float32(0.25), "agent.hidden_sizes": jnp.arange(8, 9)}
    config = create_config("cartpole", "ppo", np.int32(4), seeds=np.arange(3), **options)
    assert (config.num_envs, config.seeds) == (4, [0, 1, 2])
    read = TrainingConfig.from_toml(config.to_toml())
    assert read == config
    params = read.environment.default_params
    assert (params.gravity, params.max_steps) == (3.5, 7)
    assert (read.learner.learning_rate, read.learner.hidden_sizes) == (0.25, (8,))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"env": "cartpol"}, "unknown environment 'cartpol'; did you mean 'cartpole'"),
        ({"env": None}, "the configuration has no env"),
        ({"env": dict}, "env is refused: .* string; .* an environment, .* but got <"),
        ({"env": "object:Walk"}, "env must be given again as an object, .* 'object:Walk'"),
        ({"agent": "os:system"}, "agent 'os:system' must be a dataclass with"),
        ({"env.gravty": 0.9}, "'gravty' of cartpole-control; did you mean 'gravity'"),
        ({"buffer_size": 10}, "unknown field 'buffer_size' of ppo"),
        ({"num_envs": 0}, "num_envs must be an integer from 1 to 2,147,483,647, but got 0"),
        ({"steps_per_env": 5, "total_steps": 6}, "say the same"),
        ({"num_envs": 10**400}, "num_envs must be .* but got 1000"),
        ({"num_envs": 16, "steps_per_env": INT64}, "steps_per_env x num_envs must be .* but got"),
        ({"num_envs": INT32, "rollout_steps": 2}, "num_envs x rollout_steps must be at most"),
        ({"env": "snake", "env.height": 100, "env.width": 100}, "height x width must be .* 10000"),
        ({"seed": jax.random.key(1)}, "seed must be an integer .*, but got Array"),
        ({"seeds": np.ones(100_001)}, "seeds must be a list of 1 to 100,000 items, .* got array"),
        ({"agent.compute_dtype": np.float32}, "agent.compute_dtype is refused: .*, but got"),
        ({"env.gravity": np.ones((3, 1))}, r"env.gravity must be .* but got \(\(1"),
        ({"env_options": 5}, "env_options must be a table of names and values, but got 5"),
        ({"auto_tune": True, "scan_chunk_size": 16}, "scan_chunk_size .*auto_tune.* 16"),
        ({"agent": "pid", "env": "snake"}, "pid needs a setpoint; Snake has no"),
        ({"agent": "dqn", "env": "pendulum"}, "Pendulum must have finitely many actions for DQN"),
        ({"grid": {"agent.num_epochs": [1, 2]}}, r"float .*, but got {'agent.num_epochs': \[1, 2"),
        ({"grid": {"agent.target_kl": [0.01]}}, r"but got {'agent.target_kl': \[0.01\]"),
        ({"grid": {RATE: [1e-3, -1.0]}}, "learning_rate must be .* above 0, but got -1.0"),
        ({"grid": {RATE: [1e-3, 1e-3]}}, rf"different values of {RATE}, but got \[0.001, 0.001"),
        ({"grid": {RATE: 1e-3}}, f"different values of {RATE}, but got 0.001"),
        ({"grid": {}}, "grid must be a table of hyperparameters"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_name(fields, says):
    with pytest.raises(InvalidArgumentError, match=says) as caught:
        create_config(**({"env": "cartpole", "agent": "ppo"} | fields))
    assert len(str(caught.value)) < 600
