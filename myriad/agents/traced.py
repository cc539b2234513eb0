"""Hyperparameters as arguments of a compiled program, with the same bits as constants.

A learner computes with its hyperparameters in Python's float64, such as `1 - clip_epsilon`, and the
device gets the result in float32. A float32 argument would be rounded before the subtraction, and
the training would end differently. `TracedFloat` replaces the number and computes as Python does.
`Population` uses it.
"""

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.errors import InvalidArgumentError


class TracedFloat:
    """A float64 that is known only when the program runs.

    With Python's numbers and other `TracedFloat`s it computes in float64. With arrays it is a
    float32 scalar. Pass it through `number` before you call a function of JAX with it.

    Args:
        value: a function that returns the number. It is called while float64 is enabled.
    """

    # Makes NumPy's arrays leave operations to this class.
    __array_ufunc__ = None

    def __init__(self, value: Callable[[], jax.Array]):
        self._value = value

    @classmethod
    def of_words(cls, words: jax.Array) -> "TracedFloat":
        """Return the number whose two words are `words`, uint32 `[2]`. See `words_of`."""
        return cls(lambda: jax.lax.bitcast_convert_type(words, jnp.float64))

    def __jax_array__(self) -> jax.Array:
        """Round to float32."""
        with jax.enable_x64(True):  # noqa: FBT003
            return self._value().astype(jnp.float32)

    def __bool__(self) -> bool:
        """Raise, since a number that switches a part on or off must be known when tracing."""
        raise InvalidArgumentError(
            "a hyperparameter that switches a part of the agent on or off can't differ by slot."
        )

    def _apply(self, operation: Callable[[Any, Any], Any], other: Any, *, swap: bool) -> Any:
        if isinstance(other, TracedFloat):
            second = other._value  # noqa: SLF001  (of the same class)
        elif isinstance(other, bool | int | float):
            second = lambda: jnp.float64(other)  # noqa: E731
        else:
            other = jnp.asarray(other)
            number = self.__jax_array__()
            return operation(other, number) if swap else operation(number, other)
        if swap:
            return TracedFloat(lambda: operation(second(), self._value()))
        return TracedFloat(lambda: operation(self._value(), second()))

    def __add__(self, other: Any) -> Any:
        return self._apply(operator.add, other, swap=False)

    def __radd__(self, other: Any) -> Any:
        return self._apply(operator.add, other, swap=True)

    def __sub__(self, other: Any) -> Any:
        return self._apply(operator.sub, other, swap=False)

    def __rsub__(self, other: Any) -> Any:
        return self._apply(operator.sub, other, swap=True)

    def __mul__(self, other: Any) -> Any:
        return self._apply(operator.mul, other, swap=False)

    def __rmul__(self, other: Any) -> Any:
        return self._apply(operator.mul, other, swap=True)

    def __truediv__(self, other: Any) -> Any:
        return self._apply(operator.truediv, other, swap=False)

    def __rtruediv__(self, other: Any) -> Any:
        return self._apply(operator.truediv, other, swap=True)

    def __neg__(self) -> "TracedFloat":
        return TracedFloat(lambda: -self._value())

    def __pow__(self, exponent: int) -> "TracedFloat":
        return TracedFloat(lambda: self._value() ** exponent)


def number(value: Any) -> Any:
    """Return a hyperparameter as JAX's functions take it. A known number stays as it is."""
    return value.__jax_array__() if isinstance(value, TracedFloat) else value


def float32(value: Any) -> Any:
    """Return a hyperparameter rounded to float32. A known number stays known."""
    return value.__jax_array__() if isinstance(value, TracedFloat) else np.float32(value)


def times_unless(factor: Any, is_zero: jax.Array, values: jax.Array) -> jax.Array:
    """Return `factor * values`, or 0 where `is_zero`, rounded the same for both kinds of factors.

    The compiler multiplies by a constant before it selects, so it rounds the product before an
    addition. With a traced factor it would fuse the product into a multiply-add, which rounds once.
    """
    if isinstance(factor, TracedFloat):
        return jnp.where(is_zero, 0, number(factor) * values)
    return factor * jnp.where(is_zero, 0, values)


def words_of(values: Any) -> np.ndarray:
    """Return the words of float64 `[M]` that `TracedFloat.of_words` takes, uint32 `[M, 2]`."""
    array = np.ascontiguousarray(values, "<f8")
    return array.view("<u4").reshape(*array.shape, 2)
