"""Compiled programs: they run as often as they are called, and say what the compiler knows."""

import numpy as np
import pytest

from myriad import create_config, evaluate, make_agent, make_env
from myriad.programs import LearningProgram, TrainingProgram, episode_returns, functions

SMALL = {"rollout_steps": 4, "agent.num_minibatches": 2, "agent.hidden_sizes": (8,)}


@pytest.fixture(scope="module")
def program():
    # The random agent compiles the quickest.
    return TrainingProgram(create_config("cartpole-control", "random", 8, 16, 4, eval_frequency=8))


def test_a_training_runs_whole_updates_and_states_its_bytes(program):
    program.start()
    program.run(10)
    assert int(program.state.num_updates) * program.steps_per_update == 80
    assert (program.updates_per_call, program.scan_chunk_size) == (4, 4)
    assert program.stated_bytes > program.reports[0].argument_bytes > 0


@pytest.mark.slow
def test_gradient_steps_run_alone_as_often_as_they_are_called():
    config = create_config("cartpole-control", "ppo", 8, 64, **SMALL)
    learning = LearningProgram(config)
    for _ in range(2):
        learning.run()
    assert learning.compiled.memory_analysis().argument_size_in_bytes > 0
    assert functions(config, rollout_steps=1).learner.steps_per_update == 1


def test_the_episodes_are_those_of_evaluate():
    env = make_env("cartpole-control")
    config = create_config("cartpole-control", "random", 4, 8)
    returns = episode_returns(env, make_agent("random", env), 16, seed=3)
    np.testing.assert_array_equal(returns, evaluate(config, None, 16, seed=3))
