"""Networks: what comes out, what the first weights are, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad.agents.networks.mlp import MLP


def parameters(network, num_inputs=5):
    return network.init(jax.random.key(0), jnp.zeros((1, num_inputs)))


@pytest.mark.slow
def test_an_mlp_is_products_biases_and_activations():
    network = MLP((8, 6), 3)
    params = jax.tree.map(lambda leaf: leaf + 0.1, parameters(network))
    inputs = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    hidden = inputs
    for layer in range(2):
        dense = params["params"][f"Dense_{layer}"]
        hidden = np.tanh(hidden @ dense["kernel"] + dense["bias"])
    dense = params["params"]["Dense_2"]
    np.testing.assert_allclose(
        network.apply(params, inputs), hidden @ dense["kernel"] + dense["bias"], atol=1e-5
    )


@pytest.mark.slow
def test_layer_norm_stands_between_product_and_activation():
    network = MLP((16,), 2, activation="relu", layer_norm=True)
    params = parameters(network)
    inputs = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    hidden = inputs @ params["params"]["Dense_0"]["kernel"]
    normal = (hidden - hidden.mean(-1, keepdims=True)) / np.sqrt(
        hidden.var(-1, keepdims=True) + 1e-6
    )
    expected = np.maximum(normal, 0) @ params["params"]["Dense_1"]["kernel"]
    np.testing.assert_allclose(network.apply(params, inputs), expected, atol=1e-4)


@pytest.mark.slow
def test_the_first_weights_are_orthogonal_with_the_gain_asked_for():
    params = parameters(MLP((64,), 3, output_scale=0.01))["params"]
    first, last = params["Dense_0"]["kernel"], params["Dense_1"]["kernel"]
    np.testing.assert_allclose(first @ first.T, 2 * np.eye(5), atol=1e-5)
    np.testing.assert_allclose(last.T @ last, 1e-4 * np.eye(3), atol=1e-8)
    assert not params["Dense_0"]["bias"].any()
