"""64-bit counts on the device, since JAX's integers have 32 bits unless `jax_enable_x64` is on.

An update counter passes 2**32 within days, and the steps of a single environment within minutes.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

_WORD = 1 << 32
# Purposes are below this, so that a purpose and the high word fit into one word that is folded in.
_PURPOSES = 1 << 8


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Counter:
    """A count of up to 64 bits: two uint32 words, scalars or of one shape.

    Example:
        >>> count = Counter.of(2**32 - 1) + jnp.uint32(2)
        >>> int(count)
        4294967297
    """

    low: jax.Array
    high: jax.Array

    @classmethod
    def of(cls, value: int = 0) -> "Counter":
        """Return a count of a known value."""
        return cls(jnp.uint32(value % _WORD), jnp.uint32(value // _WORD))

    def __add__(self, steps: jax.Array | int) -> "Counter":
        """Add a number of 0 to 2**32 - 1, of any shape."""
        low = self.low + jnp.asarray(steps).astype(jnp.uint32)
        return Counter(low, self.high + (low < self.low).astype(jnp.uint32))

    def __int__(self) -> int:
        """Return the value, outside a trace."""
        return int(self.high) * _WORD + int(self.low)

    def as_float(self) -> jax.Array:
        """Return the value in float32, exact up to 2**24."""
        return self.high.astype(jnp.float32) * np.float32(_WORD) + self.low.astype(jnp.float32)

    def clipped(self, most: int) -> jax.Array:
        """Return the value, but at most `most`, as an int32. So `most` must be below 2**31."""
        return jnp.where(self.high > 0, most, jnp.minimum(self.low, np.uint32(most))).astype(
            jnp.int32
        )

    def reaches(self, value: int) -> jax.Array:
        """Return whether the count is at least `value`, an int of up to 64 bits."""
        high, low = divmod(max(value, 0), _WORD)
        equal = (self.high == np.uint32(high)) & (self.low >= np.uint32(low))
        return (self.high > np.uint32(high)) | equal

    def is_multiple_of(self, period: int) -> jax.Array:
        """Return whether `period`, below 2**31, divides the count."""
        divisor = np.uint32(period)
        # Double the high word's remainder 32 times, since a product would exceed 32 bits.
        doublings = jnp.where(self.high > 0, 32, 0)
        rest = jax.lax.fori_loop(
            0, doublings, lambda _, rest: rest * 2 % divisor, self.high % divisor
        )
        return (rest + self.low % divisor) % divisor == 0

    def key(self, key: jax.Array, purpose: int) -> jax.Array:
        """Fold a purpose, below 256, and the count into a key."""
        of_purpose = jax.random.fold_in(key, self.high * np.uint32(_PURPOSES) + np.uint32(purpose))
        return jax.random.fold_in(of_purpose, self.low)


def exact_sum(values: jax.Array) -> jax.Array:
    """Add up fewer than 2**24 counts, uint32 or int32 `[N]`, into `[4]` sums that `whole` reads."""
    words = values.astype(jnp.uint32)
    # Byte by byte, so that no sum exceeds 32 bits.
    return jnp.stack([jnp.sum(words >> shift & 0xFF, dtype=jnp.uint32) for shift in (0, 8, 16, 24)])


def whole(sums: jax.Array | np.ndarray) -> int:
    """Return the total from the sums of `exact_sum`, outside a trace."""
    return sum(int(part) << shift for part, shift in zip(sums, (0, 8, 16, 24), strict=True))
