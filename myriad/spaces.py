"""Spaces of actions and observations: shapes, dtypes, bounds and uniform samples."""

import contextlib
import dataclasses
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from myriad.errors import InvalidArgumentError, shown
from myriad.ranges import INT32, Integer

__all__ = ["Box", "Discrete", "MultiDiscrete"]


class Space(Protocol):
    """A set of arrays of one shape and dtype."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw one element uniformly. An unbounded dimension is drawn from a standard normal."""
        ...

    def contains(self, value: jax.Array) -> jax.Array:
        """Return whether `value` belongs to the space, a boolean scalar."""
        ...

    def validate(self, action: Any) -> jax.Array:
        """Return `action` as an array of the right shape and dtype. Known values are checked.

        Raises:
            InvalidArgumentError: the action is not in the space. Under `jit` this is raised while
                tracing.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Discrete:
    """The integers 0 to `n - 1`, int32 scalars.

    Raises:
        InvalidArgumentError: `n` is not an integer of at least 1.

    Example:
        >>> space = Discrete(3)
        >>> bool(space.contains(space.sample(jax.random.key(0))))
        True
    """

    n: int
    shape = ()
    dtype = np.dtype(np.int32)

    def __post_init__(self) -> None:
        Integer(1).require("n", self.n)

    def sample(self, key: jax.Array) -> jax.Array:
        return _integers_below(jax.random.bits(key), self.n)

    def contains(self, value: jax.Array) -> jax.Array:
        return (value >= 0) & (value < self.n)

    def validate(self, action: Any) -> jax.Array:
        return _validated(self, action, jnp.integer)


@dataclasses.dataclass(frozen=True)
class MultiDiscrete:
    """Vectors `[len(nvec)]` whose element `i` is one of 0 to `nvec[i] - 1`, int32.

    Raises:
        InvalidArgumentError: `nvec` is not a list of integers of at least 1.

    Example:
        >>> MultiDiscrete((3, 2)).shape
        (2,)
    """

    nvec: tuple[int, ...]
    dtype = np.dtype(np.int32)

    def __post_init__(self) -> None:
        Integer(1, items=(1, INT32)).require("nvec", self.nvec)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)

    def sample(self, key: jax.Array) -> jax.Array:
        bits = jax.random.bits(key, self.shape)
        return jnp.stack([_integers_below(bits[i], n) for i, n in enumerate(self.nvec)])

    def contains(self, value: jax.Array) -> jax.Array:
        return jnp.all((value >= 0) & (value < jnp.asarray(self.nvec)))

    def validate(self, action: Any) -> jax.Array:
        return _validated(self, action, jnp.integer)


@dataclasses.dataclass(frozen=True)
class Box:
    """Arrays between `low` and `high`, which broadcast to `shape`.

    They are float32 by default. Observations of pixels may be uint8, and stay uint8 when stored.

    Raises:
        InvalidArgumentError: `low` exceeds `high`, a bound is NaN, or `shape` is no shape.

    Example:
        >>> Box(-2.0, 2.0, (3,)).sample(jax.random.key(0)).shape
        (3,)
    """

    low: float | np.ndarray | jax.Array
    high: float | np.ndarray | jax.Array
    shape: tuple[int, ...]
    dtype: Any = np.float32

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        Integer(0, items=(0, INT32)).require("shape", self.shape)
        bounds = (self.low, self.high)
        is_known = not any(isinstance(bound, Tracer) for bound in bounds)
        # A NaN is not below anything.
        if is_known and not np.all(np.asarray(self.low) <= np.asarray(self.high)):
            rule = f"must not exceed high = {shown(self.high)}, and neither may be NaN"
            raise InvalidArgumentError("low", rule, self.low)

    @property
    def is_whole(self) -> bool:
        """Whether its numbers are integers or booleans."""
        return not jnp.issubdtype(self.dtype, np.floating)  # NumPy doesn't know bfloat16.

    def sample(self, key: jax.Array) -> jax.Array:
        if self.is_whole:
            # The end of the range is also an int32, so the largest int32 is never drawn.
            low, high = (
                np.clip(np.asarray(bound, np.float64), -(2**31), 2**31 - 2).astype(np.int32)
                for bound in (self.low, self.high)
            )
            return jax.random.randint(key, self.shape, low, high + 1, jnp.int32).astype(self.dtype)
        dtype = jax.dtypes.canonicalize_dtype(self.dtype)
        low, high = (
            np.broadcast_to(np.asarray(bound, np.float32), self.shape)
            for bound in (self.low, self.high)
        )
        bounded = np.isfinite(low) & np.isfinite(high)
        uniform = jax.random.uniform(
            key, self.shape, minval=np.where(bounded, low, 0), maxval=np.where(bounded, high, 1)
        )
        if bounded.all():
            return uniform.astype(dtype)
        normal = jax.random.normal(jax.random.fold_in(key, 1), self.shape)
        return jnp.where(bounded, uniform, normal).astype(dtype)

    def contains(self, value: jax.Array) -> jax.Array:
        return jnp.all((value >= self.low) & (value <= self.high))

    def cast(self, values: jax.Array) -> jax.Array:
        """Convert numbers to this box's dtype, and round them if it has integers."""
        return (jnp.round(values) if self.is_whole else values).astype(self.dtype)

    def validate(self, action: Any) -> jax.Array:
        """See `Space.validate`. Floats out of bounds pass: the environment interprets them."""
        return _validated(self, action, jnp.integer if self.is_whole else jnp.floating)


def _validated(space: Space, action: Any, kind: Any) -> jax.Array:
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        array = jnp.asarray(action)
        fits: Any = array.shape == space.shape and jnp.issubdtype(array.dtype, kind)
        if fits and not isinstance(array, Tracer):
            fits = ~jnp.isnan(array).any() if kind is jnp.floating else space.contains(array)
        if fits:
            return array
    raise InvalidArgumentError("action", f"must be in {shown(space)}", action)


def _integers_below(bits: jax.Array, n: int) -> jax.Array:
    """Map uniform uint32 words onto 0 to `n - 1`, with a bias below n / 2**32."""
    if n == 1:
        return jnp.zeros_like(bits, jnp.int32)
    if n & (n - 1) == 0:
        return (bits >> (33 - n.bit_length())).astype(jnp.int32)
    return (bits % np.uint32(n)).astype(jnp.int32)
