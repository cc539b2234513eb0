"""Sine and cosine that XLA can fuse and vectorise on every backend.

Calls into the math library keep a step from being vectorised on the CPU, and cost more than the
rest of a cart-pole. Here both functions share one range reduction to [-pi/2, pi/2] and two short
polynomials. Environments call `sin_cos`.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from myriad.envs.environment import require_32_bits

# pi in three parts whose products with integers below 2**12 are exact in float32 (Cody and Waite
# 1980, chapter 8).
_PI_PARTS = tuple(
    np.float32(part) for part in (3.140625, 9.67502593994140625e-4, 1.509957990978376e-7)
)
_INVERSE_PI = np.float32(1 / np.pi)
# Minimax for the relative error of sine and the absolute error of cosine on [-pi/2, pi/2], in
# powers of the square.
_SIN = tuple(np.float32(c) for c in (1.0, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800))
_COS = tuple(
    np.float32(c) for c in (1.0, -1 / 2, 1 / 24, -1 / 720, 1 / 40320, -1 / 3628800, 1 / 479001600)
)


def sin_cos(angle: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the sine and the cosine of `angle`.

    Args:
        angle: float32 of any shape, radians. The error is below 2e-7 for |angle| up to 10,000.

    Raises:
        InvalidArgumentError: `jax_enable_x64` is on, under which an angle has different bits.
    """
    require_32_bits()
    half_turns = jnp.round(angle * _INVERSE_PI)
    reduced = angle
    for part in _PI_PARTS:
        reduced = reduced - half_turns * part
    square = reduced * reduced
    # An odd number of half turns flips the sign of both, so move the parity bit to the sign bit.
    sign = half_turns.astype(jnp.int32).astype(jnp.uint32) << 31
    return _with_sign(reduced * horner(_SIN, square), sign), _with_sign(horner(_COS, square), sign)


def horner(coefficients: Sequence[np.float32] | np.ndarray, x: jax.Array) -> jax.Array:
    """Return the polynomial of `x` with these coefficients, the constant first."""
    value = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value


def _with_sign(value: jax.Array, sign: jax.Array) -> jax.Array:
    bits = jax.lax.bitcast_convert_type(value, jnp.uint32) ^ sign
    return jax.lax.bitcast_convert_type(bits, jnp.float32)
