"""What an action or an observation may be: shapes, dtypes, bounds, and a uniform sample."""

import dataclasses
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from myriad.errors import InvalidArgumentError


class Space(Protocol):
    """A set of arrays of one shape and dtype."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw one element uniformly; an unbounded dimension is drawn from a standard normal."""
        ...

    def contains(self, value: jax.Array) -> jax.Array:
        """Return whether `value` belongs to the space, a boolean scalar."""
        ...


@dataclasses.dataclass(frozen=True)
class Discrete:
    """The integers 0 to `n - 1`, int32 scalars."""

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InvalidArgumentError(f"n must be at least 1, but got {self.n}.")

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.int32)

    def sample(self, key: jax.Array) -> jax.Array:
        return _integers_below(jax.random.bits(key), self.n)

    def contains(self, value: jax.Array) -> jax.Array:
        return (value >= 0) & (value < self.n)


@dataclasses.dataclass(frozen=True)
class MultiDiscrete:
    """Vectors whose element `i` is one of 0 to `nvec[i] - 1`, int32."""

    nvec: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.nvec or min(self.nvec) < 1:
            raise InvalidArgumentError(f"nvec must hold integers of at least 1, but got {self.nvec}.")

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.int32)

    def sample(self, key: jax.Array) -> jax.Array:
        bits = jax.random.bits(key, self.shape)
        return jnp.stack([_integers_below(bits[i], n) for i, n in enumerate(self.nvec)])

    def contains(self, value: jax.Array) -> jax.Array:
        return jnp.all((value >= 0) & (value < jnp.asarray(self.nvec)))


@dataclasses.dataclass(frozen=True)
class Box:
    """Float32 arrays of one shape between `low` and `high`, scalars or arrays that broadcast to it."""

    low: float | np.ndarray | jax.Array
    high: float | np.ndarray | jax.Array
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if np.any(np.asarray(self.low) > np.asarray(self.high)):
            raise InvalidArgumentError(f"low must not exceed high, but got {self.low} and {self.high}.")

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32)

    def sample(self, key: jax.Array) -> jax.Array:
        low, high = (np.broadcast_to(np.asarray(bound, np.float32), self.shape) for bound in (self.low, self.high))
        bounded = np.isfinite(low) & np.isfinite(high)
        uniform = jax.random.uniform(
            key, self.shape, minval=np.where(bounded, low, 0), maxval=np.where(bounded, high, 1)
        )
        if bounded.all():
            return uniform
        return jnp.where(bounded, uniform, jax.random.normal(jax.random.fold_in(key, 1), self.shape))

    def contains(self, value: jax.Array) -> jax.Array:
        return jnp.all((value >= self.low) & (value <= self.high))


def _integers_below(bits: jax.Array, n: int) -> jax.Array:
    """Map uniform uint32 words onto 0 to `n - 1`; the bias is below n / 2**32."""
    if n & (n - 1) == 0:
        return (bits >> (33 - n.bit_length())).astype(jnp.int32) if n > 1 else jnp.zeros_like(bits, jnp.int32)
    return (bits % np.uint32(n)).astype(jnp.int32)
