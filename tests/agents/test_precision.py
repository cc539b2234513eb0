"""Narrower dtypes: where they are, where float32 stays, and what becomes of an infinity."""

import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.training.dynamic_scale import DynamicScale

from myriad import make_env, make_key
from myriad.agents import make_learner
from myriad.agents.agent import alone
from myriad.agents.gradients import Learned, gradient_step
from myriad.agents.networks.mlp import Precision, affine
from myriad.training.loop import LearningLoop
from tests.learners import DISTINCT, env_of, small_without_layers

SHORT = {"bfloat16": "bf16", "float16": "f16"}


def learner_of(agent, env="cartpole-control", **options):
    return make_learner(agent, make_env(env), **small_without_layers(agent) | options)


@pytest.mark.slow
def test_sums_over_the_batch_are_exact_to_float32():
    # In bfloat16, 256 ones and more would add up to 256.
    inputs = jnp.ones((4096, 4), jnp.bfloat16)
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
    ],
)
def test_parameters_have_their_dtype_and_the_optimiser_has_float32(agent, env, options):
    learner = learner_of(agent, env, **options)
    loop = LearningLoop(learner.env, learner, 8)
    init, run = jax.jit(loop.init), jax.jit(loop.run)
    first = init(make_key(0))
    products = re.findall(r"dot_general .*", run.lower(first, np.int32(6), np.bool_(1)).as_text())
    assert any(SHORT[learner.compute_dtype] in each for each in products)
    state, report = run(first, np.int32(6), np.bool_(1))
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
