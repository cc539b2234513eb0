"""Where episodes never end, evaluations take at most a tenth of a default training's steps."""

import dataclasses

import jax.numpy as jnp
import pytest

from myriad import create_config
from myriad.envs.cartpole import CartPole
from myriad.envs.checker import never_ends
from myriad.envs.pendulum import Pendulum
from myriad.envs.wrappers import FrameStackObservation
from tests.learners import SMALL, env_of


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


def endless(agent):
    return EndlessPendulum() if env_of(agent) == "pendulum" else EndlessPole()


@pytest.mark.parametrize("num_envs", [1, 16, 1024])
@pytest.mark.parametrize("agent", SMALL)
def test_all_evaluations_take_at_most_a_tenth_of_the_steps(agent, num_envs):
    config = create_config(endless(agent), agent, num_envs)
    evaluations = -(-config.num_updates // config.updates_per_eval)
    evaluated = evaluations * config.eval_rollouts * config.eval_max_steps
    assert 0.05 < evaluated / (config.steps_per_env * num_envs) <= 0.1
    assert create_config(endless(agent), agent, num_envs, eval_max_steps=9).eval_max_steps == 9
    assert create_config(env_of(agent), agent, num_envs).eval_max_steps == 2_500


def test_only_an_environment_whose_steps_return_a_constant_ends_no_episode():
    assert never_ends(EndlessPole())
    assert never_ends(FrameStackObservation(EndlessPole(), num_frames=2))
    assert not any(map(never_ends, (CartPole(), Timed())))


def test_a_short_training_evaluates_episodes_of_some_length_and_a_long_one_none_too_long():
    for total_steps, expected in ((1_000, 50), (10**9, 2_500)):
        config = create_config(EndlessPole(), "ppo", total_steps=total_steps)
        assert config.eval_max_steps == expected
    stacked = FrameStackObservation(EndlessPole(), num_frames=2)
    assert create_config(stacked, "ppo").eval_max_steps < 100
