"""What only a GPU can show: skipped without one. `pytest -m gpu` runs these tests alone."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import (
    Rollout,
    create_config,
    kernel,
    make_agent,
    make_env,
    make_key,
    train_and_evaluate,
)
from myriad.agents.networks.mlp import sum_rows
from myriad.xla import describe
from tests.child_processes import python

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX runs on no GPU here"),
]

# Prints a digest of a short training's parameters, so that processes can be compared.
DIGEST = """
import hashlib, sys, jax, numpy as np
from myriad import create_config
from myriad.training.programs import CompiledTraining
training = CompiledTraining(create_config("cartpole-control", sys.argv[1], 256))
training.compile()
state, _ = training.run(training.first_state(), np.int32(5), np.bool_(False))
leaves = jax.tree.leaves(state.agent)
print(hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest())
"""


def bits(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("name", ["cartpole-control", "pendulum-control", "gene-circuit", "snake"])
def test_a_rollout_is_the_same_bits_for_any_chunk(name: str) -> None:
    env = make_env(name)

    def outcome(scan_chunk_size: int, *, recorded: bool = False) -> list[np.ndarray]:
        rollout = Rollout(env, make_agent("random", env), 1_000, scan_chunk_size)
        state = rollout.init(0)
        if recorded:
            return bits(rollout.batch_state(rollout.record_chunk(state)[0]))
        return bits(rollout.batch_state(rollout.run(state, 100)))

    expected = outcome(100)
    for other in (outcome(7), outcome(64), outcome(100, recorded=True)):
        for one, two in zip(expected, other, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("prng", "asks"),
    [("mix2x32", 0), ("threefry2x32", 1)],  # a kernel draws from our generator alone
)
def test_a_chunk_is_one_kernel_or_asks_its_host_once_a_block(prng: str, asks: int) -> None:
    env = make_env("cartpole-control")
    rollout = Rollout(env, make_agent("random", env), 1_000, 128)
    assert rollout.loop_reason is None
    assert describe(rollout.compile(rollout.init(make_key(0, prng)))).open_loops == asks


@pytest.mark.parametrize("shape", [(64, 2), (512, 8)])
def test_a_kernel_has_the_same_bits_for_any_block(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_env("pendulum-control")

    def outcome() -> list[np.ndarray]:
        rollout = Rollout(env, make_agent("random", env), 1_000, 100)
        return bits(rollout.batch_state(rollout.run(rollout.init(0), 100)))

    expected = outcome()
    monkeypatch.setattr(kernel, "run_steps", partial(kernel.run_steps, shape=shape))
    for one, other in zip(expected, outcome(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_sum_by_a_product_is_rounded_as_a_sum() -> None:
    matrix = jax.random.normal(jax.random.key(0), (4_096, 64)) + 3
    exact = np.asarray(matrix, np.float64).sum(axis=0)
    np.testing.assert_allclose(jax.jit(sum_rows)(matrix), exact, rtol=1e-5)


def digests(agent: str, **variables: str) -> set[str]:
    """Train in two processes, one after the other."""
    return {python("-c", DIGEST, agent, **variables).stdout for _ in range(2)}


FIXED = {"XLA_FLAGS": "--xla_gpu_exclude_nondeterministic_ops=true"}


@pytest.mark.parametrize("agent", ["ppo", "pqn", "dqn"])
@pytest.mark.parametrize("variables", [{}, FIXED | {"MYRIAD_COMPILATION_CACHE": "off"}], ids=str)
def test_a_program_from_the_cache_or_of_fixed_kernels_trains_to_the_same_bits(
    agent: str, variables: dict[str, str], tmp_path: Path
) -> None:
    assert len(digests(agent, **{"MYRIAD_COMPILATION_CACHE": str(tmp_path)} | variables)) == 1


@pytest.mark.parametrize("agent", ["ppo", "pqn", "dqn"])
def test_the_defaults_learn_cartpole(agent: str, tmp_path: Path) -> None:
    config = create_config("cartpole-control", agent, 1_024)
    results = train_and_evaluate(config, tmp_path / "run", quiet=True)
    assert results.evaluations[-1]["return"] >= 475


def test_a_large_rollout_counts_every_step() -> None:
    env = make_env("cartpole-control")
    rollout = Rollout(env, make_agent("random", env), 1_000_000, 50)
    summary = rollout.summary(rollout.run(rollout.init(0), 200))
    assert summary.num_steps == 200_000_000
    assert 21 < summary.mean_episode_length < 24
    assert jnp.isfinite(summary.mean_episode_return)
