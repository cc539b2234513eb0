"""Loops for a GPU give what loops for a CPU do."""

import jax
import numpy as np
import pytest

from myriad import Rollout, create_config, make_agent, make_env, make_key
from myriad.engine import gpu_loops, kernel
from myriad.training.evaluation import Evaluation
from myriad.training.loop import LearningLoop
from tests.bits import assert_same_bits


def rolled_out(name, scan_chunk_size):
    env = make_env(name)
    rollout = Rollout(env, make_agent("random", env), 20, scan_chunk_size)
    state = rollout.run(rollout.init(3), 50)
    state, recorded = rollout.record_chunk(state, 5)
    return rollout.batch_state(state), jax.tree.map(lambda leaf: leaf[:5], recorded)


def learned():
    options = {"batch_size": 16, "agent.learning_starts": 40}
    config = create_config("cartpole-control", "dqn", 8, 400, **options)
    init, run = LearningLoop(config.environment, config.learner, 8).jitted()
    return run(init(make_key(0)), np.int32(12), np.bool_(0))[0].agent.params


def evaluated():
    config = create_config("cartpole-control", "ppo", 4)
    agent = config.learner.init(jax.random.key(0), 4)
    evaluation = Evaluation(config.environment, config.learner, 6, max_steps=10)
    return jax.jit(evaluation.episodes)(agent, jax.random.key(1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plain", "in_blocks"),
    [
        (lambda: rolled_out("cartpole-control", 16), lambda: rolled_out("cartpole-control", 7)),
        (lambda: rolled_out("gene-circuit", 16), lambda: rolled_out("gene-circuit", 7)),
        (learned, learned),
        (evaluated, evaluated),
    ],
    ids=["a rollout", "a rollout with a state of many parts", "a training", "an evaluation"],
)
def test_what_runs_in_blocks_comes_to_the_same_bits(plain, in_blocks, monkeypatch):
    expected = plain()
    monkeypatch.setattr(gpu_loops, "waits_for_host", lambda: True)
    monkeypatch.setattr("myriad.rollout._is_gpu", lambda: True)
    monkeypatch.setattr(kernel, "refusal", lambda *_: "its loop is under test")
    assert_same_bits(in_blocks(), expected)
