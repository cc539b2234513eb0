"""The replay ring, in the memory of device and host, and its priorities against plain NumPy."""

import dataclasses
import functools
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import make_env
from myriad.agents import make_learner, replay
from myriad.agents.priorities import Priorities, importance_weights
from myriad.agents.replay import Experience, ReplayRing, Step, n_step
from myriad.engine.random import make_key
from myriad.envs.pendulum import Pendulum
from myriad.errors import InvalidArgumentError
from myriad.spaces import Box, Discrete
from myriad.training.loop import LearningLoop
from tests import learners
from tests.agents.plain_networks import SMALL, Unplayed


class PlainRing:
    """What the ring should hold: rows, oldest dropped, or the documented block."""

    def __init__(self, capacity, num_envs):
        self.capacity, self.num_envs = capacity, num_envs
        self.kept, self.env_index = [], 0

    def write(self, row):
        if self.num_envs > self.capacity:
            start = min(self.env_index, self.num_envs - self.capacity)
            self.kept = list(row[start : start + self.capacity])
            following = self.env_index + self.capacity
            self.env_index = following if following < self.num_envs else 0
        else:
            self.kept = [*self.kept, *row][-(self.capacity // self.num_envs * self.num_envs) :]


def write_rows(ring, num_rows):
    """Write rows of distinct numbers, one call each, to both rings."""
    plain = PlainRing(ring.capacity, ring.num_envs)
    state = ring.init({"x": jnp.zeros((ring.num_envs, 2))})
    write = jax.jit(ring.write)
    for i in range(num_rows):
        row = np.arange(ring.num_envs, dtype=np.float32) + i * ring.num_envs
        state = write(state, {"x": jnp.stack([row, -row], axis=1)})
        plain.write(row)
        yield state, plain


@pytest.mark.parametrize(("capacity", "num_envs"), [(12, 4), (10, 4), (4, 10)])
@pytest.mark.parametrize("memory", ["device", "host"])
def test_samples_are_uniform_over_what_a_plain_ring_holds(capacity, num_envs, memory):
    ring = ReplayRing(capacity, num_envs, memory)
    for rows, (state, plain) in enumerate(write_rows(ring, 9), start=1):
        assert int(ring.size(state)) == len(plain.kept)
        slots = ring.draw(jax.random.key(rows), state, 40_000)
        drawn = np.asarray(ring.at(state, slots)["x"])
        np.testing.assert_array_equal(drawn[:, 1], -drawn[:, 0])
        values, counts = np.unique(drawn[:, 0], return_counts=True)
        assert sorted(values) == sorted(plain.kept)
        expected = 40_000 / len(plain.kept)
        assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.parametrize(("capacity", "num_envs"), [(1_000_000, 100), (1000, 10_000)])
@pytest.mark.parametrize("memory", ["device", "host"])
def test_a_loop_of_writes_and_samples_copies_no_column(capacity, num_envs, memory):
    ring = ReplayRing(capacity, num_envs, memory)

    def loop(state, num_steps):
        def body(i, carry):
            state, total = carry
            state = ring.write(state, jnp.full((num_envs, 3), i, jnp.float32))
            key = jax.random.fold_in(jax.random.key(0), i)
            return state, total + ring.at(state, ring.draw(key, state, 32)).sum()

        return jax.lax.fori_loop(0, num_steps, body, (state, jnp.zeros(())))

    state = ring.init(jnp.zeros((num_envs, 3)))
    compiled = jax.jit(loop, donate_argnums=0).lower(state, jnp.int32(3)).compile()
    column = rf"f32\[{capacity},3\]\S*"
    touched = re.findall(rf"= {column} (\S+?)\(", compiled.as_text())
    assert "copy" not in touched
    assert "select" not in touched
    # Updated in place: no second ring among the temporaries, only a row or two.
    stated = compiled.memory_analysis()
    temporaries = stated.temp_size_in_bytes + stated.host_temp_size_in_bytes
    assert temporaries < min(capacity, num_envs) * 12 * 4
    aliased = stated.alias_size_in_bytes + stated.host_alias_size_in_bytes
    assert aliased >= capacity * 12


@pytest.mark.parametrize("agent", ["dqn", "sac", "td3"])
@pytest.mark.parametrize(("num_envs", "copies"), [(4, 1), (60, 2)])  # 60 leave too few rows
def test_a_slot_holds_one_picture_and_keeps_its_bytes(agent, num_envs, copies):
    actions = Discrete(3) if agent == "dqn" else Box(-1.0, 1.0, (2,))
    env = Unplayed(Box(0, 255, (40, 40, 3), np.uint8), actions)

    def num_bytes(buffer_size):
        learner = make_learner(agent, env, 4, network="nature-cnn", buffer_size=buffer_size)
        state = jax.eval_shape(lambda: learner.init(make_key(0), num_envs))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))

    slot = num_bytes(101) - num_bytes(100)
    assert copies * 40 * 40 * 3 < slot < copies * 40 * 40 * 3 + 30


@pytest.mark.parametrize(("capacity", "num_envs", "stride"), [(12, 2, 2), (23, 3, 3), (7, 1, 1)])
@pytest.mark.parametrize("memory", ["device", "host"])
def test_a_later_row_holds_the_next_observation(capacity, num_envs, stride, memory):
    ring = ReplayRing(capacity, num_envs, memory, stride)
    ended = jnp.zeros((stride, num_envs), bool)
    write, drawn = jax.jit(ring.write), jax.jit(ring.draw, static_argnums=2)
    at, state, rows = jax.jit(ring.at), None, []
    for i in range(3 * (capacity // num_envs) + 1):
        obs = (i * num_envs + jnp.arange(num_envs, dtype=jnp.float32))[:, None]
        steps = Step(
            *(jnp.broadcast_to(obs, (stride, num_envs, 1)), ended, ended, ended), ended, None
        )
        row = n_step(steps, 0.9)
        state = write(ring.init(row) if state is None else state, row)
        rows = [*rows, *range(i * num_envs, (i + 1) * num_envs)][-ring.num_slots :]
        complete = rows[: max(len(rows) - stride * num_envs, 0)]
        assert int(ring.size(state)) == len(complete)
        if complete:
            sample = at(state, drawn(jax.random.key(i), state, 512))
            assert set(sample.obs[:, 0].tolist()) == set(complete)
            np.testing.assert_array_equal(sample.next_obs, sample.obs + stride * num_envs)


@pytest.mark.parametrize("agent", ["dqn", "sac", "td3"])
def test_nothing_is_learned_from_a_transition_without_a_next_observation(agent):
    env = make_env("cartpole" if agent == "dqn" else "pendulum")
    learner = make_learner(agent, env, 4, hidden_sizes=(8,))
    state = learner.init(make_key(0), 4)
    obs = jax.random.normal(make_key(1), (2, *env.observation_space(env.default_params).shape))

    def gradient(reward):
        action = jnp.zeros(2, jnp.int32) if agent == "dqn" else jnp.zeros((2, 1))
        batch = Experience(obs, action, reward, jnp.full(2, 0.9), obs, jnp.int32([1, 0]))
        if agent == "dqn":
            return jax.grad(learner.loss)(state.params, batch, reward)
        if agent == "td3":
            loss = functools.partial(learner.critic_loss, state)
            return jax.grad(loss)(state.critics.params, batch, jnp.zeros((2, 1)))
        loss = functools.partial(learner.loss, state)
        return jax.grad(loss, has_aux=True)(state.params, (batch, jnp.zeros((2, 2, 1))))[0]

    first, second = gradient(jnp.float32([1, 2])), gradient(jnp.float32([1, 9]))
    np.testing.assert_array_equal(first, second)
    assert (first != gradient(jnp.float32([3, 2]))).any()


def test_a_memory_that_there_is_not_is_refused(monkeypatch):
    without = types.SimpleNamespace(platform="metal", addressable_memories=list)
    monkeypatch.setattr(jax, "local_devices", lambda: [without])
    with pytest.raises(InvalidArgumentError, match=r"^replay_memory must be 'device' on metal, "):
        ReplayRing(4, 4, "host").init(jnp.zeros(4))


def expected_return(window, gamma, *, stops_before):
    """Return the reward, the discount, the observation after these steps, and how they end."""
    reward, discount, next_obs = 0.0, 1.0, None
    for obs, _, transition in window:
        if stops_before and transition.truncated:
            return reward, discount, obs, "truncated"
        reward += discount * float(transition.reward)
        discount *= gamma
        next_obs = transition.final_obs
        if transition.terminated:
            return reward, 0.0, next_obs, "terminated"
        if transition.truncated:
            return reward, discount, next_obs, "truncated"
    return reward, discount, next_obs, "running"


@dataclasses.dataclass(frozen=True)
class Falling(Pendulum):
    """A pendulum whose episodes end, by themselves or after 5 steps."""

    def step(self, key, state, action, params):
        obs, state, reward, *_, info = super().step(key, state, action, params)
        return obs, state, reward, obs[0] < -0.8, state.time >= 5, info


def life_of(learner):
    """Return the state after 30 updates of 3 environments, and the steps that they lived."""
    loop = LearningLoop(learner.env, learner, 3)
    state = jax.jit(loop.init)(make_key(1))
    lived, step_of_loop = [], loop.step

    def recording(key, batch_state, action):
        after, transition = step_of_loop(key, batch_state, action)
        jax.debug.callback(
            lambda *step: lived.append(step), batch_state.obs, action, transition, ordered=True
        )
        return after, transition

    loop.step = recording
    update = jax.jit(lambda *state: learner.update(*state, loop))
    agent, batch_state = state.agent, state.batch_state
    for i in range(30):
        agent, batch_state, _ = update(jax.random.fold_in(make_key(3), i), agent, batch_state)
    jax.effects_barrier()
    return agent, lived


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "steps", "bootstrap_truncated"),
    # TD3 collects as SAC does.
    [("dqn", 3, True), ("dqn", 3, False), ("sac", 1, True)],
)
@pytest.mark.parametrize("is_kept_once", [False, True])
def test_the_buffer_holds_the_n_step_experience_that_was_lived(
    agent, steps, bootstrap_truncated, is_kept_once, monkeypatch
):
    if is_kept_once:
        monkeypatch.setattr(replay, "_KEPT_ONCE", 0)
    # Some poles fall before the time limit, and some don't.
    env, options = Falling(), SMALL | {"learning_starts": 1000}
    if agent == "dqn":
        env = make_env("cartpole-control", max_steps=13)
        options |= {"n_step": steps, "bootstrap_truncated": bootstrap_truncated}
    learner = make_learner(agent, env, 3, **options)
    after, lived = life_of(learner)
    rows = 31 - steps
    assert int(after.replay.num_writes) == rows
    rows -= steps * is_kept_once
    columns = learner.ring(3).at(after.replay, jnp.arange(3 * rows))
    seen = set()
    for slot in range(3 * rows):
        row, env_index = divmod(slot, 3)
        window = [
            jax.tree.map(lambda leaf, i=env_index: leaf[i], each)
            for each in lived[row : row + steps]
        ]
        reward, discount, next_obs, end = expected_return(
            window, learner.gamma, stops_before=is_kept_once and bootstrap_truncated
        )
        if end == "truncated" and not bootstrap_truncated:
            discount = 0.0
        seen.add(end)
        np.testing.assert_array_equal(columns.obs[slot], lived[row][0][env_index])
        # The torques of the pendulum go from -2 to 2.
        action = columns.action[slot] * (1 if agent == "dqn" else 2)
        np.testing.assert_allclose(action, lived[row][1][env_index], rtol=1e-6)
        np.testing.assert_allclose(columns.reward[slot], reward, rtol=1e-6)
        np.testing.assert_allclose(columns.discount[slot], discount, rtol=1e-6)
        if discount or not is_kept_once:
            np.testing.assert_array_equal(columns.next_obs[slot], next_obs)
    assert seen == {"terminated", "truncated", "running"}
    obs = np.concatenate([step[0] for step in lived])
    np.testing.assert_allclose(after.obs_stats.mean, obs.mean(0), rtol=1e-4, atol=1e-5)


COUNTS = np.bool_(1)


def leaves_after(num_envs, num_updates):
    """Return the priorities of all slots, and the largest, after a training with them."""
    options = learners.SMALL["dqn"] | {"priority_alpha": 0.6}
    learner = make_learner("dqn", make_env("cartpole"), **options)
    priorities = learners.trained(learner, num_envs, num_updates)[0].agent.priorities
    return np.asarray(priorities.sums)[128 : 128 + 96], priorities.largest


@pytest.mark.slow
def test_slots_are_drawn_in_proportion_and_empty_ones_never():
    # Of a slot that was drawn twice, the larger error counts.
    learned, errors = jnp.int32([0, 2, 1, 2, 3, 4]), jnp.float32([1, 9, 4, 4, 16, 0])
    priorities = Priorities.create(6).updated(learned, errors, 0.5, COUNTS)
    slots, probability = priorities.sample(jax.random.key(0), 5, 1_600)
    expected = np.array([0.1, 0.2, 0.3, 0.4, 1e-4, 0])
    # Every batch by itself: one gradient step sees the whole buffer.
    for of_batch in np.asarray(slots):
        counts = np.bincount(of_batch, minlength=6) / 1_600
        np.testing.assert_allclose(counts, expected, atol=0.002)
    np.testing.assert_allclose(probability, expected[slots], rtol=2e-4)
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
@pytest.mark.parametrize("num_updates", [6, 40])  # 96 slots are 12 rows of 8 environments
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
