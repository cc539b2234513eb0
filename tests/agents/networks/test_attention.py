"""Every implementation of attention computes the same, and each device gets one that it has."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad.agents.networks.attention import attend, choose_attention, has_cudnn_attention
from myriad.agents.networks.mlp import Precision
from myriad.errors import InvalidArgumentError

ON_A_GPU = pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX runs on no GPU here")


def draw(queries, keys, width=8, dtype=jnp.float32):
    """Query, key, value and a weight of each output."""
    rng = np.random.default_rng(queries + keys)
    lengths = (queries, keys, keys, queries)
    return [jnp.asarray(rng.normal(size=(2, n, 2, width)), dtype) for n in lengths]


def outputs_and_gradients(implementation, query, key, value, weight):
    def loss(*qkv):
        outputs = attend(implementation, *qkv)
        return jnp.sum((outputs * weight).astype(jnp.float32)), outputs

    with jax.default_matmul_precision("highest"):
        gradients, outputs = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(
            query, key, value
        )
    return outputs, *gradients


def by_hand(query, key, value):
    """Attention in float64, one head of one row at a time."""
    query, key, value = (np.asarray(each, np.float64) for each in (query, key, value))
    outputs = np.zeros((*query.shape[:-1], value.shape[-1]))
    for row in range(query.shape[0]):
        for head in range(query.shape[2]):
            scores = query[row, :, head] @ key[row, :, head].T / np.sqrt(query.shape[-1])
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            outputs[row, :, head] = weights @ value[row, :, head]
    return outputs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("implementation", "dtype"),
    [
        ("reference", "float32"),
        ("reference", "bfloat16"),
        ("reference", "float16"),
        ("xla", "float32"),
        ("xla", "bfloat16"),
        pytest.param("cudnn", "bfloat16", marks=ON_A_GPU),
        pytest.param("cudnn", "float16", marks=ON_A_GPU),
    ],
)
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (7, 11), (150, 150)])
def test_outputs_and_gradients_are_those_of_the_reference(implementation, dtype, queries, keys):
    exact = draw(queries, keys)
    expected = outputs_and_gradients("reference", *exact)
    np.testing.assert_allclose(expected[0], by_hand(*exact[:3]), atol=1e-5)
    found = outputs_and_gradients(implementation, *(each.astype(dtype) for each in exact))
    tolerance = 1e-4 if dtype == "float32" else 0.05
    for each, wanted in zip(found, expected, strict=True):
        assert each.dtype == dtype
        np.testing.assert_allclose(each.astype(jnp.float32), wanted, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    ("platform", "capability", "dtype", "chosen"),
    [
        ("cpu", None, "float32", "xla"),
        ("cpu", None, "bfloat16", "xla"),
        ("cpu", None, "float16", "reference"),
        ("gpu", "9.0", "float32", "xla"),
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
