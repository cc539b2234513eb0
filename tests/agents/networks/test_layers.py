"""What each network computes: its parts, batches, first weights, scales and dtypes."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad.agents.networks.attention import Transformer, patches
from myriad.agents.networks.cnn import CNN, NatureCNN
from myriad.agents.networks.mlp import MLP, Precision, affine
from tests.agents.plain_networks import apply

GRID = (6, 5, 3)
HALF = Precision(compute_dtype="bfloat16", output_dtype="float32")


def inputs_of(batch=4, grid=GRID):
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=(batch, int(np.prod(grid)))), jnp.float32)


def mlp(**options):
    return MLP((8,), 2, **options)


def cnn(**options):
    return CNN(GRID, (8,), 2, **options)


def transformer(**options):
    return Transformer(GRID, 2, (), 2, **options)


def params_of(network):
    params = jax.jit(network.init)(jax.random.key(0), inputs_of(1))
    # Biases begin at 0 and would hide where they are added.
    return jax.tree.map(lambda leaf: leaf + 0.1, params)


@pytest.mark.slow
@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_cnn_is_xlas_convolution_and_dense_layers(layer_norm):
    network = cnn(layer_norm=layer_norm)
    params = params_of(network)["params"]

    def norm(hidden, name):
        if not layer_norm:
            return hidden
        hidden = jax.nn.standardize(hidden, epsilon=1e-6)
        return hidden * params[name]["scale"] + params[name]["bias"]

    kernel = params["Dense_0"]["kernel"].reshape(3, 3, 3, 16)
    hidden = jax.lax.conv_general_dilated(
        inputs_of().reshape(-1, *GRID),
        kernel,
        window_strides=(1, 1),
        padding="VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    hidden = jax.nn.relu(norm(hidden + params["Dense_0"]["bias"], "LayerNorm_0"))
    hidden = hidden.reshape(4, -1) @ params["Dense_1"]["kernel"] + params["Dense_1"]["bias"]
    hidden = jax.nn.relu(norm(hidden, "LayerNorm_1"))
    expected = hidden @ params["Dense_2"]["kernel"] + params["Dense_2"]["bias"]
    found = network.apply({"params": params}, inputs_of())
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_a_nature_cnn_is_three_strided_convolutions_of_scaled_bytes():
    grid = (38, 45, 3)  # The strides leave a rest.
    network = NatureCNN(grid, (8,), 2, byte_channels=2)
    pictures = jnp.round(50 * inputs_of(grid=grid))
    params = jax.jit(network.init)(jax.random.key(0), pictures)["params"]
    hidden = pictures.reshape(-1, *grid) / np.array([255, 255, 1], np.float32)
    for i, (size, stride) in enumerate([(8, 4), (4, 2), (3, 1)]):
        kernel, side = params[f"Dense_{i}"]["kernel"], size // stride
        # The network lists the cells of a block before the blocks.
        kernel = kernel.reshape(side, side, stride, stride, hidden.shape[-1], -1)
        kernel = kernel.transpose(0, 2, 1, 3, 4, 5).reshape(size, size, hidden.shape[-1], -1)
        hidden = jax.nn.relu(
            jax.lax.conv_general_dilated(
                hidden,
                kernel,
                window_strides=(stride, stride),
                padding="VALID",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )
        )
    hidden = jax.nn.relu(hidden.reshape(4, -1) @ params["Dense_3"]["kernel"])
    expected = hidden @ params["Dense_4"]["kernel"]
    found = network.apply({"params": params}, pictures)
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.slow  # each shape compiles
@pytest.mark.parametrize(
    ("height", "width", "channels", "patch"),
    [(1, 1, 1, 1), (6, 4, 3, 2), (7, 9, 2, 3), (3, 5, 1, 10)],
)
def test_patches_hold_each_cell_once(height, width, channels, patch):
    cells = np.arange(1, 1 + 2 * height * width * channels, dtype=np.float32)
    cells = cells.reshape(2, height, width, channels)
    tokens = np.asarray(patches(jnp.asarray(cells), patch))
    num_tokens = math.ceil(height / patch) * math.ceil(width / patch)
    assert tokens.shape == (2, num_tokens, patch * patch * channels)
    assert sorted(tokens[tokens > 0]) == sorted(cells.ravel())
    first = np.zeros((patch, patch, channels), np.float32)
    corner = cells[0, :patch, :patch]
    first[: corner.shape[0], : corner.shape[1]] = corner
    np.testing.assert_array_equal(tokens[0, 0], first.ravel())


@pytest.mark.slow
@pytest.mark.parametrize("network", [mlp, cnn, transformer])
def test_rows_do_not_see_each_other_and_small_last_weights_make_small_outputs(network):
    params = params_of(network())
    alone = network().apply(params, inputs_of()[:1])
    # Another batch size may sum in another order: 1.4e-5 apart with jax 0.11.2.
    np.testing.assert_allclose(network().apply(params, inputs_of())[:1], alone, atol=3e-5)
    small, large = (
        network(output_scale=scale).apply(
            network(output_scale=scale).init(jax.random.key(0), inputs_of(1)), inputs_of()
        )
        for scale in (0.01, 1.0)
    )
    np.testing.assert_allclose(100 * small, large, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("network", [mlp, cnn, transformer])
def test_products_are_in_the_compute_dtype_and_parameters_and_outputs_in_theirs(network):
    params = network(precision=HALF).init(jax.random.key(0), inputs_of(1))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    lowered = jax.jit(network(precision=HALF).apply).lower(params, inputs_of())
    products = [line for line in lowered.as_text().splitlines() if "dot_general" in line]
    assert products
    assert all("bf16" in line for line in products)
    assert lowered.out_info.dtype == jnp.float32
    exact = network().apply(params, inputs_of())
    found = network(precision=HALF).apply(params, inputs_of())
    np.testing.assert_allclose(found, exact, atol=0.06)
    for dtypes in (
        ("bfloat16", "float32", "bfloat16"),
        ("bfloat16", "float16", "float16"),
        ("float32", "bfloat16", "float32"),
    ):
        own = network(layer_norm=True, precision=Precision(*dtypes))
        outputs, params = jax.eval_shape(own.init_with_output, jax.random.key(0), inputs_of())
        assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(dtypes[0])}
        assert outputs.dtype == dtypes[2]


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
