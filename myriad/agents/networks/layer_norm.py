"""Layer norm of a dense layer, in fewer passes than flax's and with a faster gradient.

A layer's mean over its features is linear in its inputs, so `centre` subtracts it from the weights
and from the bias, and `LayerNorm` does the rest.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from myriad.agents.networks.mlp import EXACT, sum_rows

_EPSILON = 1e-6  # flax's


class LayerNorm(nn.Module):
    """Normalise rows of mean 0, `[B, O]`, then scale and shift."""

    param_dtype: str

    @nn.compact
    def __call__(self, centred: jax.Array) -> jax.Array:
        shape, dtype = centred.shape[1:], jnp.dtype(self.param_dtype)
        scale = self.param("scale", nn.initializers.ones, shape, dtype)
        shift = self.param("bias", nn.initializers.zeros, shape, dtype)
        return _normalize(centred, scale, shift)


@jax.custom_vjp
def _normalize(centred: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    """Normalise rows of mean 0, `[B, O]`, then scale and shift: the second half of a layer norm."""
    return _normalize_forward(centred, scale, shift)[0]


def _normalize_forward(
    centred: jax.Array, scale: jax.Array, shift: jax.Array
) -> tuple[jax.Array, Any]:
    inverse = jax.lax.rsqrt(_mean_columns(jnp.square(centred)) + _EPSILON)
    return centred * inverse * scale[None] + shift[None], (centred, inverse, scale)


def _normalize_backward(saved: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    centred, inverse, scale = saved
    weighted = gradient * centred
    mean = jnp.matmul(weighted, (scale / scale.size)[:, None], precision=EXACT)
    along = jnp.square(inverse) * mean
    # In the gradient of a whole layer norm, the mean over features is subtracted as well. `centre`
    # does that, since its gradient is `centre` itself.
    return (
        inverse * (gradient * scale[None] - centred * along),
        jnp.matmul(inverse[:, 0], weighted, precision=EXACT),
        sum_rows(gradient),
    )


@jax.custom_vjp
def centre(matrix: jax.Array) -> jax.Array:
    """Subtract the mean over columns from a matrix. This is a projection, so its own gradient."""
    return matrix - _mean_columns(matrix)


def _mean_columns(matrix: jax.Array) -> jax.Array:
    """Average `[B, O]` over its columns, `[B, 1]`, on a CPU as a product."""
    if jax.default_backend() != "cpu":
        return jnp.mean(matrix, axis=1, keepdims=True)
    return matrix @ jnp.full((matrix.shape[1], 1), 1 / matrix.shape[1], matrix.dtype)


_normalize.defvjp(_normalize_forward, _normalize_backward)
centre.defvjp(lambda matrix: (centre(matrix), None), lambda _, gradient: (centre(gradient),))
