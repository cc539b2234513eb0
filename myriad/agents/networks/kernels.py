"""Implementations of attention, and the choice between them.

In docstrings `B` is the batch, `T` the queries, `S` the keys, `H` the heads and `K` the numbers per
head.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.agents.precision import Precision
from myriad.errors import InvalidArgumentError, UnknownNameError

AUTO = "auto"
# The most queries and the most keys whose weights `chunked` holds at a time.
BLOCK = 128
_HALF = ("bfloat16", "float16")
# The compute capability of the first GPUs that cuDNN's attention runs on.
_CUDNN_CAPABILITY = 8


def attend(implementation: str, query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """Return softmax(query key / sqrt(K)) value, `[B, T, H, K]`, by one of `IMPLEMENTATIONS`.

    Args:
        implementation: its name.
        query: `[B, T, H, K]`.
        key: `[B, S, H, K]`.
        value: `[B, S, H, K]`.
    """
    return IMPLEMENTATIONS[implementation](query, key, value)


def choose_attention(name: str, num_tokens: int, precision: Precision) -> tuple[str, str]:
    """Return the implementation that a setting means on this device, and the reason.

    Args:
        name: "auto" or one of `IMPLEMENTATIONS`.
        num_tokens: number of tokens of the network.
        precision: the network's dtypes.

    Raises:
        UnknownNameError: there is no such implementation.
        InvalidArgumentError: it doesn't exist for this device or these dtypes.
    """
    if name != AUTO and name not in IMPLEMENTATIONS:
        raise UnknownNameError("attention", name, [AUTO, *IMPLEMENTATIONS])
    is_half = precision.compute_dtype in _HALF
    if name == "cudnn" and not (is_half and has_cudnn_attention()):
        raise InvalidArgumentError(
            "attention",
            "must be auto, reference, xla or chunked here, but got 'cudnn', which needs "
            "an NVIDIA GPU of compute capability 8.0 and compute_dtype bfloat16 or float16: this "
            f"device is a {jax.local_devices()[0].device_kind} and networks compute in "
            f"{precision.compute_dtype}.",
        )
    # JAX asks for float16 products with sums in float32, which XLA lacks on CPUs.
    lacks_xla = precision.compute_dtype == "float16" and jax.default_backend() == "cpu"
    if name == "xla" and lacks_xla:
        raise InvalidArgumentError(
            "attention",
            "must be auto, reference or chunked here, but got 'xla', which has no "
            "compute_dtype float16 on a CPU.",
        )
    if name != AUTO:
        return name, "you chose it"
    if is_half and has_cudnn_attention():
        return "cudnn", f"a GPU has it for {precision.compute_dtype}"
    # On two cores, a gradient of 32 rows of 400 tokens took 124 ms in blocks and 386 ms with "xla".
    # Up to one block, neither was faster.
    if num_tokens > BLOCK:
        return "chunked", f"{num_tokens:,} tokens are more than a block of {BLOCK}"
    if lacks_xla:
        return "chunked", "xla has no float16 on a CPU"
    return "xla", f"{num_tokens:,} tokens are no more than a block of {BLOCK}"


def attention_in_blocks(compute_dtype: str) -> str:
    """Return the fastest implementation for this device that never holds all weights."""
    is_cudnn = compute_dtype in _HALF and has_cudnn_attention()
    return "cudnn" if is_cudnn else "chunked"


def has_cudnn_attention() -> bool:
    """Return whether this process's device is a GPU that cuDNN has attention for."""
    # Only NVIDIA's GPUs have a numeric compute capability.
    capability = str(getattr(jax.local_devices()[0], "compute_capability", ""))
    number = re.fullmatch(r"(\d+)\.\d+", capability)
    return number is not None and int(number[1]) >= _CUDNN_CAPABILITY


def _reference(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    scores = jnp.einsum(
        "bthk,bshk->bhts", query, key, preferred_element_type=jnp.float32
    ) / math.sqrt(query.shape[-1])
    weights = jax.nn.softmax(scores, axis=-1).astype(value.dtype)
    return jnp.einsum("bhts,bshk->bthk", weights, value)


def _xla(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    return jax.nn.dot_product_attention(query, key, value, implementation="xla")


def _cudnn(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    return jax.nn.dot_product_attention(query, key, value, implementation="cudnn")


@jax.custom_vjp
def _chunked(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """Attend in blocks, as Dao et al. (2022), "FlashAttention", algorithms 1 and 4.

    The weights of all keys never exist at once. The maximum and the sum of each softmax are updated
    from block to block of keys, and the gradient computes the weights again.
    """
    return _chunked_forward(query, key, value)[0]


def _chunked_forward(query: jax.Array, key: jax.Array, value: jax.Array) -> tuple[jax.Array, Any]:
    keys, values, is_key = _blocks(key), _blocks(value), _is_token(key.shape[1])

    def of_queries(queries: jax.Array) -> tuple[jax.Array, jax.Array]:
        def add_keys(carry: Any, block: Any) -> tuple[Any, None]:
            outputs, total, greatest = carry
            keys, values, is_key = block
            scores = _scores(queries, keys, is_key)
            new_greatest = jnp.maximum(greatest, jnp.max(scores, axis=-1))
            weights = jnp.exp(scores - new_greatest[..., None])
            shrink = jnp.exp(greatest - new_greatest)
            added = _product("bhts,bhsk->bhtk", weights.astype(values.dtype), values)
            carry = (
                outputs * shrink[..., None] + added,
                total * shrink + jnp.sum(weights, axis=-1),
                new_greatest,
            )
            return carry, None

        rows = queries.shape[:-1]
        first = (
            jnp.zeros(queries.shape, jnp.float32),
            jnp.zeros(rows, jnp.float32),
            jnp.full(rows, -jnp.inf, jnp.float32),
        )
        (outputs, total, greatest), _ = jax.lax.scan(add_keys, first, (keys, values, is_key))
        return outputs / total[..., None], greatest + jnp.log(total)

    outputs, log_total = jax.lax.map(of_queries, _blocks(query))
    outputs = _whole(outputs, query.shape[1]).astype(query.dtype)
    return outputs, (query, key, value, outputs, log_total)


def _chunked_backward(saved: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    query, key, value, outputs, log_total = saved
    keys, values, is_key = _blocks(key), _blocks(value), _is_token(key.shape[1])
    along = jnp.sum(gradient.astype(jnp.float32) * outputs, axis=-1, keepdims=True)
    scale = 1 / math.sqrt(query.shape[-1])

    def add_queries(of_keys: Any, block: Any) -> tuple[Any, jax.Array]:
        queries, log_total, gradient, along = block

        def add_keys(of_queries: jax.Array, block: Any) -> tuple[jax.Array, Any]:
            keys, values, is_key, of_keys, of_values = block
            weights = jnp.exp(_scores(queries, keys, is_key) - log_total[..., None])
            of_weights = _product("bhtk,bhsk->bhts", gradient, values)
            of_scores = (weights * (of_weights - along) * scale).astype(queries.dtype)
            weights = weights.astype(queries.dtype)
            of_values = of_values + _product("bhts,bhtk->bhsk", weights, gradient)
            of_keys = of_keys + _product("bhts,bhtk->bhsk", of_scores, queries)
            return of_queries + _product("bhts,bhsk->bhtk", of_scores, keys), (of_keys, of_values)

        of_queries, of_keys = jax.lax.scan(
            add_keys, jnp.zeros(queries.shape, jnp.float32), (keys, values, is_key, *of_keys)
        )
        return of_keys, of_queries

    zeros = (jnp.zeros(keys.shape, jnp.float32), jnp.zeros(values.shape, jnp.float32))
    of_keys, of_queries = jax.lax.scan(
        add_queries, zeros, (_blocks(query), log_total, _blocks(gradient), _blocks(along))
    )
    return (
        _whole(of_queries, query.shape[1]).astype(query.dtype),
        _whole(of_keys[0], key.shape[1]).astype(key.dtype),
        _whole(of_keys[1], value.shape[1]).astype(value.dtype),
    )


_chunked.defvjp(_chunked_forward, _chunked_backward)


def _scores(queries: jax.Array, keys: jax.Array, is_key: jax.Array) -> jax.Array:
    """Return scaled products of blocks, `[B, H, t, s]` in float32, or -inf without a key."""
    scores = _product("bhtk,bhsk->bhts", queries, keys) / math.sqrt(queries.shape[-1])
    return jnp.where(is_key, scores, -jnp.inf)


def _product(subscripts: str, left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.einsum(subscripts, left, right, preferred_element_type=jnp.float32)


def _blocks(tokens: jax.Array) -> jax.Array:
    """Cut `[B, T, H, K]` into blocks of tokens, `[blocks, B, H, t, K]`, padded with zeros."""
    batch, num_tokens, heads, width = tokens.shape
    num_blocks, size = _block_shape(num_tokens)
    missing = num_blocks * size - num_tokens
    filled = jnp.pad(tokens, ((0, 0), (0, missing), (0, 0), (0, 0)))
    return filled.reshape(batch, num_blocks, size, heads, width).transpose(1, 0, 3, 2, 4)


def _whole(blocks: jax.Array, num_tokens: int) -> jax.Array:
    """Undo `_blocks`."""
    tokens = blocks.transpose(1, 0, 3, 2, 4)
    return tokens.reshape(tokens.shape[0], -1, *tokens.shape[3:])[:, :num_tokens]


def _is_token(num_tokens: int) -> np.ndarray:
    """Return which places of the blocks hold tokens, `[blocks, t]`."""
    num_blocks, size = _block_shape(num_tokens)
    return (np.arange(num_blocks * size) < num_tokens).reshape(num_blocks, size)


def _block_shape(num_tokens: int) -> tuple[int, int]:
    """Return the number of blocks and the tokens of each, equally many and at most `BLOCK`."""
    num_blocks = -(-num_tokens // BLOCK)
    return num_blocks, -(-num_tokens // num_blocks)


IMPLEMENTATIONS: dict[str, Callable[[jax.Array, jax.Array, jax.Array], jax.Array]] = {
    "reference": _reference,
    "xla": _xla,
    "chunked": _chunked,
    "cudnn": _cudnn,
}
