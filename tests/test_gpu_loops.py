"""Loops for a GPU give what loops for a CPU do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import Rollout, create_config, make_agent, make_env, make_key
from myriad.engine import gpu_loops, kernel
from myriad.training.evaluation import Evaluation
from myriad.training.loop import LearningLoop
from tests.bits import assert_same_bits


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(gpu_loops, "waits_for_host", lambda: True)


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize(("num_steps", "unroll"), [(0, 1), (99, 1), (5, 4), (100, 4)])
def test_steps_beyond_the_last_leave_the_state_alone(num_steps, unroll):
    def body(i, state, rows):
        return state * 3 + i.astype(jnp.uint32), rows.at[i].set(i, mode="drop")

    @jax.jit
    def run(n):
        rows = jnp.full(100, -1)
        return gpu_loops.repeat(n, body, jnp.uint32(1), rows, most=100, unroll=unroll)

    expected = 1
    for i in range(num_steps):
        expected = (expected * 3 + i) % 2**32
    state, rows = run(np.int32(num_steps))
    assert int(state) == expected
    np.testing.assert_array_equal(rows[:num_steps], np.arange(num_steps))


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("unroll", [1, 4])
def test_a_while_loop_in_blocks_ends_where_its_condition_does(unroll):
    def steps_to_one(number):
        def halve(carry):
            number, steps = carry
            return jnp.where(number % 2 == 0, number // 2, 3 * number + 1), steps + 1

        start = (number, jnp.zeros((), jnp.int32))
        return gpu_loops.while_loop(lambda carry: carry[0] != 1, halve, start, unroll=unroll)[1]

    assert jax.vmap(steps_to_one)(jnp.array([1, 2, 3, 27])).tolist() == [0, 1, 7, 111]


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
