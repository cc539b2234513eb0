"""A learner of your own needs only what learning needs: other members have defaults."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import create_config, make_env, make_key, train_and_evaluate
from myriad.agents import AGENTS, Learner, list_agents, make_learner
from myriad.training.loop import LearningLoop
from tests.learners import env_of
from tests.training.small import Counting


@pytest.mark.slow
def test_it_trains(tmp_path, monkeypatch):
    monkeypatch.setattr(AGENTS, "_targets", AGENTS._targets | {"counting": Counting})
    sizes = {"steps_per_env": 20, "eval_frequency": 10, "eval_rollouts": 2, "eval_max_steps": 40}
    results = train_and_evaluate(create_config("cartpole", "counting", **sizes), tmp_path / "run")
    assert int(results.agent_state["updates"]) == 10
    assert [row["loss"] for row in results.training] == [2.0, 2.0]
    # Evaluations are greedy, and the collected episodes were not.
    assert [row["return"] for row in results.evaluations] == [40.0, 40.0]
    assert results.training[-1]["return"] < 20


@pytest.mark.parametrize("agent", list_agents())
def test_every_agent_stands_where_the_trainer_expects_a_learner(agent):
    learner = make_learner(agent, make_env(env_of(agent)))
    assert isinstance(learner, Learner)
    learner.require_num_envs(learner.num_envs_multiple)
    learner.require_num_envs(2 * learner.num_envs_multiple)
    assert learner.first_learning_update(8) >= 1
    assert learner.scheduled(7).scheduled(9) == learner.scheduled(7)


@pytest.mark.parametrize(("episodes", "is_exact"), [(2**22 - 1, True), (2**22, False)])
def test_a_sum_of_more_returns_than_float32_adds_up_is_nan(episodes, is_exact):
    learner = make_learner("random", make_env("cartpole-control", max_steps=1), 2)
    loop = LearningLoop(learner.env, learner, 2)
    state = jax.jit(loop.init)(make_key(0))
    batch_state = dataclasses.replace(state.batch_state, num_episodes=jnp.array([0, episodes]))
    state = dataclasses.replace(state, batch_state=batch_state)
    _, report = jax.jit(loop.run)(state, np.int32(1), np.bool_(0))
    assert bool(jnp.isfinite(report.return_sum)) == is_exact
    assert not report.is_bad.any()
