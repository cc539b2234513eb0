"""Every implementation of attention computes the same, and each is what its name says."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad.agents.networks import kernels
from myriad.agents.networks.kernels import BLOCK, attend, choose_attention
from myriad.agents.precision import Precision
from myriad.errors import UnknownNameError

HALF = Precision(compute_dtype="bfloat16")


def draw(queries, keys, batch=2, heads=2, width=8, dtype=jnp.float32):
    """Query, key, value and a weight of each output."""
    rng = np.random.default_rng(queries + keys)
    lengths = (queries, keys, keys, queries)
    return [jnp.asarray(rng.normal(size=(batch, n, heads, width)), dtype) for n in lengths]


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


def compiled_gradient(implementation, num_tokens=400):
    query, key, value, weight = draw(num_tokens, num_tokens, heads=4, width=16)

    def loss(query, key, value):
        return jnp.sum(attend(implementation, query, key, value) * weight)

    return jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(query, key, value).compile()


def largest_squares(compiled):
    """Return the shapes that end in two sides of 400 tokens."""
    return re.findall(r"\[(?:\d+,)*400,400\]", compiled.as_text())


def test_the_reference_is_attention():
    query, key, value, _ = draw(7, 11)
    np.testing.assert_allclose(
        attend("reference", query, key, value), by_hand(query, key, value), atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("implementation", "queries", "keys"),
    [
        ("xla", 7, 5),
        ("chunked", 1, 1),
        ("chunked", 3, BLOCK),
        ("chunked", BLOCK + 1, BLOCK - 1),
        ("chunked", 2 * BLOCK + 9, 2 * BLOCK + 3),
    ],
)
def test_outputs_and_gradients_are_those_of_the_reference_at_any_length(
    implementation, queries, keys
):
    arrays = draw(queries, keys)
    expected = outputs_and_gradients("reference", *arrays)
    for found, wanted in zip(outputs_and_gradients(implementation, *arrays), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-4, rtol=1e-4)


def test_large_scores_overflow_in_no_implementation():
    query, key, value, weight = draw(300, 300)
    arrays = (query * 100, key * 100, value, weight)
    expected = outputs_and_gradients("reference", *arrays)
    found = outputs_and_gradients("chunked", *arrays)
    assert all(np.isfinite(each).all() for each in (*expected, *found))
    # Scores of 10,000 are rounded to 0.001, and each processor adds them up in its own order.
    np.testing.assert_allclose(found[0], expected[0], atol=1e-2)


@pytest.mark.slow
def test_half_precision_is_kept_and_the_sums_are_in_float32():
    arrays = draw(150, 150, dtype=jnp.bfloat16)
    exact = by_hand(*arrays[:3])
    for implementation in ("reference", "xla", "chunked"):
        outputs = attend(implementation, *arrays[:3])
        assert outputs.dtype == jnp.bfloat16
        np.testing.assert_allclose(outputs.astype(jnp.float32), exact, atol=0.02)


def test_the_weights_of_all_tokens_never_exist_in_chunks():
    assert largest_squares(compiled_gradient("reference"))
    assert largest_squares(compiled_gradient("xla"))
    assert not largest_squares(compiled_gradient("chunked"))


def test_auto_takes_chunks_from_a_block_of_tokens_on_and_says_why():
    assert choose_attention("auto", BLOCK, Precision())[0] == "xla"
    name, reason = choose_attention("auto", BLOCK + 1, HALF)
    assert name == ("cudnn" if jax.default_backend() == "gpu" else "chunked")
    assert "129 tokens" in reason or "GPU" in reason


def test_a_name_stands_for_itself_and_an_unknown_one_is_answered_with_the_nearest():
    assert choose_attention("reference", 10_000, Precision()) == ("reference", "you chose it")
    with pytest.raises(UnknownNameError, match="did you mean 'chunked'"):
        choose_attention("chunk", 16, Precision())


@pytest.mark.parametrize(
    ("capability", "has"), [("9.0", True), ("8.6", True), ("7.5", False), ("gfx90a", False)]
)
def test_cudnn_has_attention_for_newer_gpus_of_nvidia_alone(monkeypatch, capability, has):
    class Gpu:
        compute_capability = capability

    monkeypatch.setattr(jax, "local_devices", lambda: [Gpu()])
    assert kernels.has_cudnn_attention() == has
