"""What only a GPU can show: skipped without one. `pytest -m gpu` runs these tests alone."""

import jax
import numpy as np
import pytest

from myriad import Rollout, list_envs, make_agent, make_env, make_key
from myriad.agents.networks.mlp import sum_rows
from myriad.xla import describe
from tests.bits import assert_same_bits
from tests.child_processes import python
from tests.learners import SMALL, env_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX runs on no GPU here"),
]
OF_CARTPOLE = [name for name in SMALL if env_of(name) == "cartpole"]

# Prints a digest of a short training's parameters, so that processes can be compared.
DIGEST = """
import hashlib, sys, jax, numpy as np
from myriad import create_config
from myriad.training.compiled import CompiledTraining
training = CompiledTraining(create_config("cartpole-control", sys.argv[1], 256))
training.compile()
state, _ = training.programs["run"](training.first_state(), np.int32(5), np.bool_(False))
leaves = jax.tree.leaves(state.agent)
print(hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest())
"""


def outcome(env, scan_chunk_size, *, recorded=False):
    """Return what 100 steps make of 1,000 environments."""
    rollout = Rollout(env, make_agent("random", env), 1_000, scan_chunk_size)
    state = rollout.init(0)
    state = rollout.record_chunk(state)[0] if recorded else rollout.run(state, 100)
    return jax.device_get(rollout.batch_state(state))


@pytest.mark.parametrize("name", list_envs())
def test_a_rollout_is_the_same_bits_for_any_chunk(name):
    env = make_env(name)
    expected = outcome(env, 100)
    for other in (outcome(env, 7), outcome(env, 64), outcome(env, 100, recorded=True)):
        assert_same_bits(expected, other)


@pytest.mark.parametrize(
    ("prng", "asks"),
    [("mix2x32", 0), ("threefry2x32", 1)],  # a kernel draws from our generator alone
)
def test_a_chunk_is_one_kernel_or_asks_its_host_once_a_block(prng, asks):
    env = make_env("cartpole-control")
    rollout = Rollout(env, make_agent("random", env), 1_000, 128)
    assert rollout.loop_reason is None
    assert describe(rollout.compile(rollout.init(make_key(0, prng)))).open_loops == asks


def test_a_sum_by_a_product_is_rounded_as_a_sum():
    matrix = jax.random.normal(jax.random.key(0), (4_096, 64)) + 3
    exact = np.asarray(matrix, np.float64).sum(axis=0)
    np.testing.assert_allclose(jax.jit(sum_rows)(matrix), exact, rtol=1e-5)


FIXED = {"XLA_FLAGS": "--xla_gpu_exclude_nondeterministic_ops=true"}


@pytest.mark.parametrize("agent", OF_CARTPOLE)
@pytest.mark.parametrize("variables", [{}, FIXED | {"MYRIAD_COMPILATION_CACHE": "off"}], ids=str)
def test_a_program_from_the_cache_or_of_fixed_kernels_trains_to_the_same_bits(
    agent, variables, tmp_path
):
    given = {"MYRIAD_COMPILATION_CACHE": str(tmp_path)} | variables
    one, other = (python("-c", DIGEST, agent, **given).stdout for _ in range(2))
    assert one == other
