"""Networks: what comes out, what the first weights are, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad.agents.networks.mlp import MLP, affine
from tests.agents.plain_networks import apply


def parameters(network, num_inputs=5):
    return network.init(jax.random.key(0), jnp.zeros((1, num_inputs)))


@pytest.mark.slow
@pytest.mark.parametrize(("activation", "layer_norm"), [("tanh", False), ("relu", True)])
def test_an_mlp_is_products_biases_norms_and_activations(activation, layer_norm):
    network = MLP((8, 6), 3, activation=activation, layer_norm=layer_norm)
    params = jax.tree.map(lambda leaf: leaf + 0.1, parameters(network))
    inputs = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    expected = apply(params["params"], inputs, getattr(jax.nn, activation))
    np.testing.assert_allclose(network.apply(params, inputs), expected, atol=1e-4)


@pytest.mark.slow
def test_the_first_weights_are_orthogonal_with_the_gain_asked_for():
    params = parameters(MLP((64,), 3, output_scale=0.01))["params"]
    first, last = params["Dense_0"]["kernel"], params["Dense_1"]["kernel"]
    np.testing.assert_allclose(first @ first.T, 2 * np.eye(5), atol=1e-5)
    np.testing.assert_allclose(last.T @ last, 1e-4 * np.eye(3), atol=1e-8)
    assert not params["Dense_0"]["bias"].any()


@pytest.mark.parametrize("shape", [(5, 8), (8, 3), (8, 1)])
def test_the_gradient_of_a_layer_is_that_of_a_product_and_a_sum(shape):
    inputs, kernel, weights = (
        jax.random.normal(jax.random.key(i), size)
        for i, size in enumerate([(7, shape[0]), shape, (7, shape[1])])
    )

    def gradients(layer):
        args = (inputs, kernel, jnp.zeros(shape[1]))
        return jax.grad(lambda *args: jnp.vdot(layer(*args), weights), (0, 1, 2))(*args)

    for ours, plain in zip(gradients(affine), gradients(lambda x, w, b: x @ w + b), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-5)
