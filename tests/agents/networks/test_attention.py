"""Every implementation of attention computes the same, and each device gets one that it has."""

import itertools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad.agents.networks.attention import attend, choose_attention, has_cudnn_attention
from myriad.agents.networks.mlp import Precision
from myriad.errors import InvalidArgumentError

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
