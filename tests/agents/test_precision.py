"""Narrower dtypes: where they are, where float32 stays, and what becomes of an infinity."""

import functools
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.training.dynamic_scale import DynamicScale
from jax.flatten_util import ravel_pytree

from myriad import create_config, make_env, make_key, train_and_evaluate
from myriad.agents import make_learner
from myriad.agents.agent import alone
from myriad.agents.gradients import Learned, before_learning, gradient_step
from myriad.agents.networks.mlp import Precision, affine
from tests.learners import DISTINCT, env_of, small_without_layers, trained

SHORT = {"bfloat16": "bf16", "float16": "f16"}


def learner_of(agent, env="cartpole-control", **options):
    return make_learner(agent, make_env(env), **small_without_layers(agent) | options)


def gradient_of(learner, rows=256):
    """Return the gradient of the networks' squared outputs at drawn parameters, as one vector."""
    params = jax.jit(functools.partial(learner.init, num_envs=8))(make_key(0)).params
    params = jax.tree.map(
        lambda leaf: leaf + 0.1 * jax.random.normal(jax.random.key(leaf.size), leaf.shape), params
    )
    inputs = jax.random.normal(jax.random.key(1), (rows, 4))

    def loss(params):
        return jnp.mean(jnp.square(learner.outputs(params, inputs) - 1))

    return jax.jit(jax.grad(loss)), params


# Products of a program, as `(left, right)` with their shapes and dtypes.
def products(text):
    found = re.findall(r"stablehlo\.dot_general .*: \(tensor<(.*?)>, tensor<(.*?)>\)", text)
    return [tuple(each.rpartition("x") for each in pair) for pair in found]


@pytest.mark.parametrize(
    ("agent", "dtype", "options"),
    [
        ("ppo", "bfloat16", {}),
        ("pqn", "float16", {}),
        ("dqn", "bfloat16", {"layer_norm": True, "dueling": True}),
    ],
)
def test_every_large_product_is_in_the_compute_dtype_and_the_gradient_is_near(
    agent, dtype, options
):
    options = {"hidden_sizes": (64, 64)} | options
    gradient, params = gradient_of(learner_of(agent, compute_dtype=dtype, **options))
    # By one row or column, a product is a sum: those stay in float32.
    large = [
        {left[2], right[2]}
        for left, right in products(gradient.lower(params).as_text())
        if "x" in left[0] and "x" in right[0] and min(map(int, right[0].split("x"))) > 1
    ]
    networks = 2 if agent == "ppo" else 1
    # Three layers forward, three gradients of kernels, two of inputs.
    narrow = 8 * networks - (3 if agent == "ppo" else 0)  # a critic's last layer has one column
    assert large.count({SHORT[dtype]}) >= narrow
    assert {SHORT[dtype]} == set.union(*large)

    leaves = gradient(params)
    assert {leaf.dtype for leaf in jax.tree.leaves(leaves)} == {jnp.dtype("float32")}
    exact_of, _ = gradient_of(learner_of(agent, **options))
    exact, found = (np.asarray(ravel_pytree(each)[0]) for each in (exact_of(params), leaves))
    error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    assert 0 < error < 6e-2


@pytest.mark.slow
def test_sums_over_the_batch_are_exact_to_float32():
    # In bfloat16, 256 ones and more would add up to 256.
    inputs = jnp.ones((4096, 4))
    precision = Precision(compute_dtype="bfloat16", output_dtype="bfloat16")

    def loss(kernel, bias):
        return jnp.sum(affine(inputs, kernel, bias, precision).astype(jnp.float32))

    of_kernel, of_bias = jax.grad(loss, (0, 1))(jnp.zeros((4, 3)), jnp.zeros(3))
    np.testing.assert_array_equal(of_kernel, np.full((4, 3), 4096.0))
    np.testing.assert_array_equal(of_bias, np.full(3, 4096.0))


NARROW = {"param_dtype": "bfloat16", "compute_dtype": "bfloat16"}
HALF = {"param_dtype": "float16", "compute_dtype": "float16", "output_dtype": "float16"}
PRIORITIES = {"priority_alpha": 0.6, "n_step": 3, "layer_norm": True}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "env", "options"),
    [
        *((agent, env_of(agent), HALF | {"gradient_accumulation": 2}) for agent in DISTINCT),
        ("dqn", "cartpole-control", {"compute_dtype": "float16"} | PRIORITIES),
        ("ppo", "snake", HALF | {"network": "cnn"}),
        ("dqn", "snake", NARROW | {"network": "attention"}),
        ("dqn", "snake", HALF | {"network": "attention"}),
    ],
)
def test_parameters_have_their_dtype_and_the_optimiser_has_float32(agent, env, options):
    learner = learner_of(agent, env, **options)
    state, report = trained(learner, 8, 6)
    assert not report.is_bad.any()
    parts = [state.agent, *vars(state.agent).values()]
    for part in (each for each in parts if hasattr(each, "opt_state")):
        kept = {leaf.dtype for leaf in jax.tree.leaves(part.params)}
        assert kept == {jnp.dtype(learner.param_dtype)}
        moments = {leaf.dtype for leaf in jax.tree.leaves(part.opt_state)}
        assert moments == {jnp.dtype("float32"), jnp.dtype("int32")}
        assert (part.loss_scale is None) == ("float16" not in options.values())
    if hasattr(state.agent, "target_params"):
        assert state.agent.target_params.dtype == jnp.float32


def scaled_by(scale):
    return DynamicScale(scale=jnp.float32(scale), fin_steps=jnp.int32(7), minimum_scale=1.0)


def stepped(gradient, scale, params=(1.0, 2.0)):
    """Take a step of plain gradient descent at a rate of 1 whose optimiser counts.

    The loss is linear, so its gradient is `gradient` once the scale is divided out.
    """
    learner = types.SimpleNamespace(
        gradient_accumulation=1,
        gradient_statistics=True,
        optimizer=optax.GradientTransformation(None, lambda g, num_steps: (g, num_steps + 1)),
    )
    learned = Learned(jnp.asarray(params), jnp.int32(3), scaled_by(scale))

    def loss(params, rows):
        return jnp.sum(params * rows[0]), {}

    rows = jnp.asarray([gradient])
    return gradient_step(learner, loss, learned, rows, 1.0, alone)


@pytest.mark.parametrize(
    ("of_second", "scale", "params", "num_steps", "next_scale"),
    [
        (2.0, 8.0, [0.0, 0.0], 4, 8.0),
        *((bad, 2.0**15, [1.0, 2.0], 3, 2.0**14) for bad in (np.inf, -np.inf, np.nan)),
        # At the least scale an infinity is no longer hidden.
        (np.inf, 1.0, [0.0, -np.inf], 4, 1.0),
    ],
)
def test_an_infinity_skips_the_step_and_halves_the_scale(
    of_second, scale, params, num_steps, next_scale
):
    learned, statistics = stepped([1.0, of_second], scale)
    np.testing.assert_array_equal(learned.params, params)
    assert int(learned.opt_state) == num_steps
    assert float(learned.loss_scale.scale) == next_scale
    assert int(learned.loss_scale.fin_steps) == (8 if of_second == 2 else 0)
    # What is watched for NaNs sees none.
    assert scale == 1 or all(np.isfinite(value) for value in statistics.values())


def test_only_float16_has_a_scale_which_begins_at_32768():
    params = jnp.zeros(2)
    assert before_learning(learner_of("pqn", compute_dtype="bfloat16"), params).loss_scale is None
    first = before_learning(learner_of("pqn", output_dtype="float16"), params).loss_scale
    assert (float(first.scale), int(first.fin_steps)) == (2.0**15, 0)


@pytest.mark.long
def test_cartpole_is_learned_in_bfloat16(tmp_path, monkeypatch):
    monkeypatch.setenv("MYRIAD_HOME", str(tmp_path / "home"))
    config = create_config(
        "cartpole-control", "ppo", target_return=475.0, **{"agent.compute_dtype": "bfloat16"}
    )
    assert train_and_evaluate(config, tmp_path / "run", quiet=True).stopped == "target"
