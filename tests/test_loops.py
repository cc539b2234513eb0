"""Loops for a GPU give what loops for a CPU do."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import Rollout, create_config, loops, make_agent, make_env, make_key
from myriad.training.evaluation import Evaluation
from myriad.training.loop import LearningLoop
from tests.bits import assert_same_bits


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "waits_for_host", lambda: True)


@pytest.mark.parametrize(("num_steps", "unroll"), [(0, 1), (99, 1), (5, 4), (100, 4)])
def test_steps_beyond_the_last_leave_the_state_alone(
    as_on_a_gpu: None, num_steps: int, unroll: int
) -> None:
    def body(i: jax.Array, state: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        return state * 3 + i.astype(jnp.uint32), rows.at[i].set(i, mode="drop")

    expected = np.uint32(1)
    with np.errstate(over="ignore"):
        for i in range(num_steps):
            expected = expected * np.uint32(3) + np.uint32(i)
    state, rows = jax.jit(
        lambda n: loops.repeat(n, body, jnp.uint32(1), jnp.full(100, -1), most=100, unroll=unroll)
    )(np.int32(num_steps))
    assert int(state) == expected
    np.testing.assert_array_equal(rows[:num_steps], np.arange(num_steps))


@pytest.mark.parametrize("unroll", [1, 4])
def test_a_while_loop_in_blocks_ends_where_its_condition_does(
    as_on_a_gpu: None, unroll: int
) -> None:
    def steps_to_one(number: jax.Array) -> jax.Array:
        def halve(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            number, steps = carry
            return jnp.where(number % 2 == 0, number // 2, 3 * number + 1), steps + 1

        start = (number, jnp.zeros((), jnp.int32))
        return loops.while_loop(lambda carry: carry[0] != 1, halve, start, unroll=unroll)[1]

    assert jax.vmap(steps_to_one)(jnp.array([1, 2, 3, 27])).tolist() == [0, 1, 7, 111]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cartpole-control", "gene-circuit"])
def test_a_rollout_in_blocks_is_the_same_rollout(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_env(name)

    def outcome(scan_chunk_size: int) -> tuple[Any, Any]:
        rollout = Rollout(env, make_agent("random", env), 20, scan_chunk_size)
        state = rollout.run(rollout.init(3), 50)
        state, recorded = rollout.record_chunk(state, 5)
        return rollout.batch_state(state), jax.tree.map(lambda leaf: leaf[:5], recorded)

    plain = outcome(16)
    monkeypatch.setattr(loops, "waits_for_host", lambda: True)
    assert_same_bits(outcome(7), plain)


@pytest.mark.slow
def test_dqn_learns_the_same_in_loops_of_either_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"batch_size": 16, "agent.learning_starts": 40}
    config = create_config("cartpole-control", "dqn", 8, 400, **options)

    def params() -> np.ndarray:
        init, run = LearningLoop(config.environment, config.learner, 8).jitted()
        state, _ = run(init(make_key(0)), np.int32(12), np.bool_(False))  # noqa: FBT003
        return np.asarray(state.agent.params)

    plain = params()
    monkeypatch.setattr(loops, "waits_for_host", lambda: True)
    np.testing.assert_array_equal(params(), plain)


@pytest.mark.slow
def test_an_evaluation_in_blocks_is_the_same_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    config = create_config("cartpole-control", "ppo", 4)
    agent = config.learner.init(jax.random.key(0), 4)

    def episodes() -> Any:
        evaluation = Evaluation(config.environment, config.learner, 6, max_steps=10)
        return jax.jit(evaluation.episodes)(agent, jax.random.key(1))

    plain = episodes()
    monkeypatch.setattr(loops, "waits_for_host", lambda: True)
    assert_same_bits(episodes(), plain)
