"""Prioritised replay against a NumPy reference, and DQN with and without it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myriad import make_env
from myriad.agents import make_learner, replay
from myriad.agents.priorities import Priorities, importance_weights
from tests.learners import SMALL, trained

COUNTS = np.bool_(1)


def leaves_after(num_envs, num_updates):
    """Return the priorities of all slots, and the largest, after a training with them."""
    learner = make_learner("dqn", make_env("cartpole"), **SMALL["dqn"] | {"priority_alpha": 0.6})
    priorities = trained(learner, num_envs, num_updates)[0].agent.priorities
    return np.asarray(priorities.sums)[128 : 128 + 96], priorities.largest


@pytest.mark.slow
@settings(max_examples=15)  # each shape compiles anew
@given(st.sampled_from([1, 5, 32]), st.data())
def test_every_node_is_the_sum_of_its_leaves(num_slots, data):
    slots = data.draw(st.lists(st.integers(0, num_slots - 1), min_size=8, max_size=8))
    errors = np.float32(data.draw(st.lists(st.floats(0, 10), min_size=8, max_size=8)))
    priorities = Priorities.create(num_slots).added(jnp.arange(num_slots, dtype=jnp.int32))
    priorities = priorities.updated(jnp.array(slots), jnp.array(errors), 0.5, COUNTS)
    leaves = np.ones(num_slots)
    for slot in set(slots):
        same = [error for at, error in zip(slots, errors, strict=True) if at == slot]
        leaves[slot] = (max(same) + 1e-6) ** 0.5
    sums = np.asarray(priorities.sums)
    half = len(sums) // 2
    np.testing.assert_allclose(sums[half : half + num_slots], leaves, rtol=1e-5)
    assert not sums[half + num_slots :].any()
    for node in range(1, half):
        np.testing.assert_allclose(sums[node], sums[2 * node] + sums[2 * node + 1], rtol=1e-6)


@pytest.mark.slow
def test_slots_are_drawn_in_proportion_and_empty_ones_never():
    errors = jnp.array([1.0, 0.0, 3.0, 4.0])
    priorities = Priorities.create(6).updated(jnp.arange(4, dtype=jnp.int32), errors, 1.0, COUNTS)
    slots, probability = priorities.sample(jax.random.key(0), 5, 1_600)
    # Every batch by itself: one gradient step sees the whole buffer.
    for of_batch in np.asarray(slots):
        counts = np.bincount(of_batch, minlength=6) / 1_600
        np.testing.assert_allclose(counts, [0.125, 0, 0.375, 0.5, 0, 0], atol=0.002)
    np.testing.assert_allclose(probability, np.array([0.125, 0, 0.375, 0.5])[slots], rtol=1e-4)
    # What does not count changes nothing.
    same = priorities.updated(jnp.array([1, 2]), jnp.array([7.0, 8.0]), 0.6, ~COUNTS)
    np.testing.assert_array_equal(same.sums, priorities.sums)
    assert float(same.largest) == float(priorities.largest)


@pytest.mark.parametrize(
    ("probability", "beta", "counts", "expected"),
    [
        ([[0.5, 0.25], [0.1, 0.1]], 1.0, None, [[0.5, 1.0], [1.0, 1.0]]),
        ([0.5, 0.1], 0.0, None, [1.0, 1.0]),
        # What is not learned from gives no batch its largest weight.
        ([[0.5, 0.25, 1e-6], [0.5] * 3], 1.0, [[1, 1, 0], [0] * 3], [[0.5, 1.0, 0.0], [0.0] * 3]),
    ],
)
def test_weights_correct_for_the_probability(probability, beta, counts, expected):
    counts = () if counts is None else (jnp.array(counts, bool),)
    weights = importance_weights(jnp.array(probability), jnp.int32(4), beta, *counts)
    np.testing.assert_allclose(weights, expected)


@pytest.mark.slow
@pytest.mark.parametrize(("num_envs", "num_updates", "written"), [(4, 5, 12), (200, 2, 96)])
def test_new_transitions_begin_with_the_largest_priority(num_envs, num_updates, written):
    leaves, _ = leaves_after(num_envs, num_updates)  # none of them learns
    np.testing.assert_array_equal(leaves[:written], 1)
    assert not leaves[written:].any()


@pytest.mark.slow
@pytest.mark.parametrize("num_updates", [6, 9, 40])  # 96 slots are 12 rows of 8 environments
def test_a_transition_has_a_priority_once_its_next_observation_is_there(num_updates, monkeypatch):
    monkeypatch.setattr(replay, "_KEPT_ONCE", 0)
    leaves, _ = leaves_after(8, num_updates)
    num_writes = num_updates - 2  # the first has three steps, as each of the rows
    newest = [row % 12 for row in range(num_writes - 3, num_writes)]
    has_priority = (leaves > 0).reshape(12, 8).all(1)
    expected = [row not in newest and row < num_writes for row in range(12)]
    np.testing.assert_array_equal(has_priority, expected)
    assert (leaves > 0).sum() == 8 * sum(expected)


def test_learned_transitions_change_their_priority():
    leaves, largest = leaves_after(4, 60)
    assert len(np.unique(leaves)) > 30
    assert float(largest) >= leaves.max()
