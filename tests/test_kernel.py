"""Chunks for a GPU, without one: a kernel lowers for CUDA, and it and loops come to the same."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh

from myriad import Rollout, create_config, list_envs, make_agent, make_env, make_key
from myriad.engine import gpu_loops, kernel
from myriad.envs.cartpole import CartPole
from myriad.training.evaluation import Evaluation
from myriad.training.loop import LearningLoop
from tests.bits import assert_alike, assert_same_bits


@pytest.fixture
def as_on_an_h100(monkeypatch):
    h100 = AbstractDevice("NVIDIA H100 80GB HBM3", 132, "gpu")
    mesh = AbstractMesh((1,), ("x",), abstract_device=h100)

    def refusal(*args):
        # jax 0.11 lowers for the GPU that is there, or for one that it is told.
        with jax.sharding.use_abstract_mesh(mesh):
            return real(*args)

    real = kernel.refusal
    monkeypatch.setattr("myriad.rollout._is_gpu", lambda: True)
    monkeypatch.setattr(kernel, "refusal", refusal)


def random_rollout(env, num_envs, scan_chunk_size):
    return Rollout(env, make_agent("random", env), num_envs, scan_chunk_size, num_devices=1)


def interpreted(monkeypatch, *args):
    """Return a rollout whose chunk is a kernel. The test of its lowering is another one."""
    with monkeypatch.context() as patch:
        patch.setattr("myriad.rollout._is_gpu", lambda: True)
        patch.setattr(kernel, "refusal", lambda *_: None)
        rollout = random_rollout(*args)
    assert rollout.loop_reason is None
    assert "one kernel" in repr(rollout)
    return rollout


@pytest.mark.slow
@pytest.mark.parametrize("name", list_envs())
def test_the_chunk_of_each_environment_lowers_for_cuda(name, as_on_an_h100):
    assert random_rollout(make_env(name), 100, 8).loop_reason is None


@pytest.mark.parametrize(
    ("name", "num_envs"),
    [("cartpole-control", 1_000), pytest.param("bucket-brigade", 100, marks=pytest.mark.long)],
)
def test_a_kernel_records_what_the_loop_does_from_equal_states(name, num_envs, monkeypatch):
    args = make_env(name), num_envs, 200
    cpu, gpu = random_rollout(*args), interpreted(monkeypatch, *args)
    state = cpu.run_chunk(cpu.init(1))
    copy = jax.tree.map(jnp.copy, state)
    (_, expected), (after, recorded) = cpu.record_chunk(state), gpu.record_chunk(copy)
    # Later steps may differ, since rounding errors grow.
    assert_alike(*(jax.tree.map(lambda leaf: leaf[:1], rows) for rows in (expected, recorded)))
    assert name != "cartpole-control" or 21 < gpu.summary(after).mean_episode_length < 23


@pytest.mark.slow
def test_the_kernel_has_the_same_bits_for_any_chunk_and_block(monkeypatch):
    env = make_env("cartpole-control")

    def outcome(chunk, shape, *, recorded=False):
        def run_steps(*args, **options):
            return real(*args, **options, shape=shape)

        monkeypatch.setattr(kernel, "run_steps", run_steps)
        rollout = interpreted(monkeypatch, env, 100, chunk)
        state = rollout.init(0)
        state = rollout.record_chunk(state)[0] if recorded else rollout.run(state, 60)
        return jax.device_get(rollout.batch_state(state))

    real = kernel.run_steps
    expected = outcome(60, (128, 4))
    for other in (outcome(7, (32, 1)), outcome(60, (64, 2), recorded=True)):
        assert_same_bits(expected, other)


def test_a_step_that_reads_a_table_at_its_state_keeps_the_loop_and_says_so(as_on_an_h100):
    @dataclasses.dataclass(frozen=True)
    class Tabled(CartPole):
        def step(self, key, state, action, params):
            forces = jnp.array([0, 1, 1])
            return super().step(key, state, forces[action + (state.time > 3)], params)

    rollout = random_rollout(Tabled(), 100, 8)
    assert rollout.loop_reason == "gather at indices from the state has no form in a kernel"
    assert rollout.loop_reason in repr(rollout)


def test_operations_that_no_environment_of_ours_has():
    def step(key, position, is_up, scale, keys, index):
        """Step one environment with a key, an array and a boolean in its state."""
        key, drawn = jax.random.split(key)
        noise = jax.random.normal(drawn, (3,)) + scale[0] * jax.random.uniform(keys[1], (3,))
        position = jnp.flip(position + noise) * jnp.sign(noise)
        position = jnp.where(jnp.any(position > 2) | is_up, jnp.round(position), position)
        shifted = jnp.concatenate([position[1:], position[:1]]) - jnp.max(position)
        halvings = jax.lax.while_loop(
            lambda carry: carry[0] > 1,
            lambda carry: (carry[0] / 2, carry[1] + 1),
            (jnp.sum(jnp.abs(shifted)), index.astype(jnp.int32)),
        )[1]
        return key, shifted, halvings % 2 == 0, halvings

    num_envs = 40
    index = jnp.arange(num_envs, dtype=jnp.uint32)
    states = [
        jax.random.split(make_key(1), num_envs),
        jax.random.normal(jax.random.key(2), (num_envs, 3)),
        index % 3 == 0,
    ]
    keys = jax.random.split(make_key(3), (4, 3))
    scale = jnp.array([0.1])
    steps = jax.vmap(step, in_axes=(0, 0, 0, None, None, 0))
    traced = jax.make_jaxpr(steps)(*(leaf[:1] for leaf in states), scale, keys[0], index[:1])
    # The interpreter's kernel, with more steps than one pair.
    found, (rows,) = jax.jit(
        lambda *args: kernel.run_steps(
            traced, *args, num_columns=1, num_recorded=num_envs, shape=(16, 1)
        )
    )(states, scale, keys, jnp.uint32(0), jnp.int32(3))

    expected = states
    for i in range(3):
        *expected, halvings = jax.jit(steps)(*expected, scale, keys[i], index)
        np.testing.assert_array_equal(rows[i], halvings)
    assert_alike(list(found), expected, tolerance=1e-5)


# --- loops in blocks ------------------------------------------------------------------------------


def rolled_out():
    env = make_env("cartpole-control")
    rollout = Rollout(env, make_agent("random", env), 20, 7)
    state = rollout.run(rollout.init(3), 50)
    state, recorded = rollout.record_chunk(state, 5)
    return rollout.batch_state(state), jax.tree.map(lambda leaf: leaf[:5], recorded)


def learned():
    options = {"batch_size": 16, "agent.learning_starts": 40, "agent.hidden_sizes": (8,)}
    config = create_config("cartpole-control", "dqn", 8, 400, **options)
    init, run = LearningLoop(config.environment, config.learner, 8).jitted()
    return run(init(make_key(0)), np.int32(12), np.bool_(0))[0].agent.params


def evaluated():
    config = create_config("cartpole-control", "random", 4)
    agent = config.learner.init(jax.random.key(0), 4)
    evaluation = Evaluation(config.environment, config.learner, 6, max_steps=10)
    return jax.jit(evaluation.episodes)(agent, jax.random.key(1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "run",
    [rolled_out, learned, evaluated],
)
def test_what_runs_in_blocks_comes_to_the_same_bits(run, monkeypatch):
    expected = run()
    monkeypatch.setattr(gpu_loops, "waits_for_host", lambda: True)
    monkeypatch.setattr("myriad.rollout._is_gpu", lambda: True)
    monkeypatch.setattr(kernel, "refusal", lambda *_: "its loop is under test")
    assert_same_bits(run(), expected)
