"""What each network and its attention compute: parts, batches, first weights and dtypes."""

import itertools
import math
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from myriad.agents.networks.attention import (
    Transformer,
    attend,
    choose_attention,
    has_cudnn_attention,
    patches,
)
from myriad.agents.networks.cnn import CNN, NatureCNN
from myriad.agents.networks.mlp import MLP, Precision
from myriad.errors import InvalidArgumentError

GRID = (6, 5, 3)
HALF = Precision(compute_dtype="bfloat16", output_dtype="float32")


def inputs_of(batch=4, grid=GRID):
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=(batch, int(np.prod(grid)))), jnp.float32)


def mlp(**options):
    return MLP((8, 8), 2, **options)


def cnn(**options):
    return CNN((8,), 2, "relu", grid=GRID, **options)


def transformer(**options):
    return Transformer((), 2, "gelu", grid=GRID, patch=2, **options)


def params_of(network):
    params = jax.jit(network.init)(jax.random.key(0), inputs_of(1))
    # Biases begin at 0 and would hide where they are added.
    return jax.tree.map(lambda leaf: leaf + 0.1, params)


def convolved(cells, kernel, stride):
    """Return XLA's own convolution without a border."""
    names = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        cells, kernel, (stride, stride), padding="VALID", dimension_numbers=names
    )


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
    hidden = convolved(inputs_of().reshape(-1, *GRID), kernel, 1)
    hidden = jax.nn.relu(norm(hidden + params["Dense_0"]["bias"], "LayerNorm_0"))
    hidden = hidden.reshape(4, -1) @ params["Dense_1"]["kernel"] + params["Dense_1"]["bias"]
    hidden = jax.nn.relu(norm(hidden, "LayerNorm_1"))
    expected = hidden @ params["Dense_2"]["kernel"] + params["Dense_2"]["bias"]
    found = network.apply({"params": params}, inputs_of())
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_a_nature_cnn_is_three_strided_convolutions_of_scaled_bytes():
    grid = (38, 45, 3)  # The strides leave a rest.
    network = NatureCNN((8,), 2, "relu", grid=grid, byte_channels=2)
    pictures = jnp.round(50 * inputs_of(grid=grid))
    params = jax.jit(network.init)(jax.random.key(0), pictures)["params"]
    hidden = pictures.reshape(-1, *grid) / np.array([255, 255, 1], np.float32)
    for i, (size, stride) in enumerate([(8, 4), (4, 2), (3, 1)]):
        kernel, side = params[f"Dense_{i}"]["kernel"], size // stride
        # The network lists the cells of a block before the blocks.
        kernel = kernel.reshape(side, side, stride, stride, hidden.shape[-1], -1)
        kernel = kernel.transpose(0, 2, 1, 3, 4, 5).reshape(size, size, hidden.shape[-1], -1)
        hidden = jax.nn.relu(convolved(hidden, kernel, stride))
    hidden = jax.nn.relu(hidden.reshape(4, -1) @ params["Dense_3"]["kernel"])
    expected = hidden @ params["Dense_4"]["kernel"]
    found = network.apply({"params": params}, pictures)
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.slow  # each shape compiles
@pytest.mark.parametrize(
    ("height", "width", "channels", "patch"),
    [(6, 4, 3, 2), (7, 9, 2, 3), (3, 5, 1, 10)],
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

    def gradient(precision):
        def loss(params):
            outputs = network(precision=precision).apply(params, inputs_of(256))
            assert outputs.dtype == jnp.float32
            return jnp.mean(jnp.square(outputs - 1)), outputs

        return jax.jit(jax.grad(loss, has_aux=True))

    # Products of matrices, forward and back. By a vector of ones, a product is a sum.
    pattern = r"dot_general .*: \(tensor<(?:\d+x){2,}(\w+)>, tensor<(?:\d+x)+(\w+)>\)"
    products = re.findall(pattern, gradient(HALF).lower(params).as_text())
    assert len(products) > 6
    assert all("bf16" in pair for pair in products)
    (wanted, exact), (found, outputs) = (gradient(each)(params) for each in (Precision(), HALF))
    np.testing.assert_allclose(outputs, exact, atol=0.06)
    wanted, found = (ravel_pytree(each)[0] for each in (wanted, found))
    assert 0 < jnp.linalg.norm(found - wanted) < 0.06 * jnp.linalg.norm(wanted)


ON_A_GPU = pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX runs on no GPU here")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("implementation", "dtype"),
    [
        ("reference", "float32"),
        ("reference", "float16"),
        ("xla", "float32"),
        pytest.param("cudnn", "bfloat16", marks=ON_A_GPU),
    ],
)
def test_outputs_are_those_of_attention_by_hand(implementation, dtype):
    rng = np.random.default_rng(0)
    query, key, value = (rng.normal(size=(2, n, 2, 8)) for n in (7, 11, 11))
    expected = np.zeros(query.shape)
    for row, head in itertools.product(range(2), range(2)):
        scores = query[row, :, head] @ key[row, :, head].T / np.sqrt(8)
        weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        expected[row, :, head] = weights @ value[row, :, head]
    with jax.default_matmul_precision("highest"):
        found = attend(implementation, *(jnp.asarray(each, dtype) for each in (query, key, value)))
    assert found.dtype == dtype
    tolerance = 1e-5 if dtype == "float32" else 0.05
    np.testing.assert_allclose(found.astype(jnp.float32), expected, atol=tolerance)


@pytest.mark.parametrize(
    ("platform", "capability", "dtype", "chosen"),
    [
        ("cpu", None, "float32", "xla"),
        ("cpu", None, "float16", "reference"),
        ("gpu", "9.0", "float16", "cudnn"),
        ("gpu", "8.6", "bfloat16", "cudnn"),
        ("gpu", "7.5", "float16", "xla"),
        ("gpu", "gfx90a", "bfloat16", "xla"),
    ],
)
def test_a_device_gets_the_fastest_attention_that_it_has_and_refuses_what_it_lacks(
    platform, capability, dtype, chosen, monkeypatch
):
    device = types.SimpleNamespace(device_kind="a device", compute_capability=capability)
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    assert has_cudnn_attention(dtype) == (chosen == "cudnn")
    precision = Precision(compute_dtype=dtype)
    name, reason = choose_attention("auto", precision)
    assert name == chosen
    assert dtype in reason
    lacks = {"cudnn"} if chosen != "cudnn" else set()
    lacks |= {"xla"} if chosen == "reference" else set()
    for name in ("reference", "xla", "cudnn"):
        if name in lacks:
            with pytest.raises(InvalidArgumentError, match=f"^attention must be .* '{name}'"):
                choose_attention(name, precision)
        else:
            assert choose_attention(name, precision) == (name, "you chose it")
