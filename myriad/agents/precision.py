"""The dtypes of a network, and the loss scale that keeps float16's gradients from vanishing.

Products and activations are in `compute_dtype`. Losses, reductions, layer norm and the optimiser
always stay in float32.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from myriad.errors import InvalidArgumentError, UnknownNameError, shown

DTYPES = ("float32", "bfloat16", "float16")
DYNAMIC = "dynamic"
_OFF = "off"
# Dynamic loss scaling as in Micikevicius et al. (2018), "Mixed precision training", with the usual
# numbers.
_FIRST_SCALE = 2.0**15
_MOST_SCALE = 2.0**24
_STEPS_TO_DOUBLE = 2_000


@dataclasses.dataclass(frozen=True)
class Precision:
    """The dtypes of a network, each float32, bfloat16 or float16 by name.

    Attributes:
        param_dtype: dtype of the parameters.
        compute_dtype: dtype of products and activations.
        output_dtype: dtype of the network's outputs.

    Raises:
        UnknownNameError: there is no such dtype.
    """

    param_dtype: str = "float32"
    compute_dtype: str = "float32"
    output_dtype: str = "float32"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value not in DTYPES:
                raise UnknownNameError(field.name, value, DTYPES)

    @classmethod
    def of(cls, learner: Any) -> "Precision":
        """Return the precision from a learner's hyperparameters of the same names.

        Raises:
            UnknownNameError: there is no such dtype.
            InvalidArgumentError: `loss_scaling` has an unknown value, or is off with float16.
        """
        precision = cls(learner.param_dtype, learner.compute_dtype, learner.output_dtype)
        scaling = learner.loss_scaling
        if scaling not in (DYNAMIC, _OFF):
            raise InvalidArgumentError(
                f"loss_scaling must be {DYNAMIC!r} or {_OFF!r}, but got {shown(scaling)}."
            )
        if scaling == _OFF and precision.needs_loss_scale:
            raise InvalidArgumentError(
                f"loss_scaling must be {DYNAMIC!r} with float16, whose small gradients vanish "
                f"without it, but got {_OFF!r}."
            )
        return precision

    @property
    def hidden(self) -> "Precision":
        """The precision of a hidden layer, whose outputs are activations."""
        return dataclasses.replace(self, output_dtype=self.compute_dtype)

    @property
    def before_norm(self) -> "Precision":
        """The precision of a layer whose outputs are normalised."""
        return dataclasses.replace(self, output_dtype="float32")

    @property
    def needs_loss_scale(self) -> bool:
        """Whether gradients pass through float16, in which values below 6e-8 vanish."""
        return "float16" in (self.compute_dtype, self.output_dtype)


# The default precision of networks and layers.
FLOAT32 = Precision()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LossScale:
    """The factor of the loss that makes gradients fit into float16.

    Attributes:
        scale: the factor, float32 scalar, a power of 2.
        good_steps: steps since the scale last changed, int32 scalar.
    """

    scale: jax.Array
    good_steps: jax.Array

    @classmethod
    def create(cls, precision: Precision) -> "LossScale | None":
        """Return the first loss scale, or None if gradients need none."""
        if not precision.needs_loss_scale:
            return None
        return cls(jnp.float32(_FIRST_SCALE), jnp.int32(0))

    def after(self, is_finite: jax.Array) -> "LossScale":
        """Return the next scale: doubled after 2,000 finite gradients, halved after any other."""
        good_steps = jnp.where(is_finite, self.good_steps + 1, 0)
        doubles = good_steps >= _STEPS_TO_DOUBLE
        larger = jnp.where(doubles, jnp.minimum(2 * self.scale, _MOST_SCALE), self.scale)
        scale = jnp.where(is_finite, larger, jnp.maximum(0.5 * self.scale, 1))
        return LossScale(scale, jnp.where(doubles, 0, good_steps))


def scaled(loss: Callable[..., Any], loss_scale: LossScale | None) -> Callable[..., Any]:
    """Return a loss function whose loss is multiplied by the scale. Auxiliary values stay."""
    if loss_scale is None:
        return loss

    def multiplied(*args: Any) -> Any:
        value = loss(*args)
        if isinstance(value, tuple):
            return value[0] * loss_scale.scale, *value[1:]
        return value * loss_scale.scale

    return multiplied


def unscaled(
    gradient: jax.Array, loss_scale: LossScale | None
) -> tuple[jax.Array, jax.Array | None, LossScale | None]:
    """Divide a gradient, `[P]`, by the scale, and decide whether to take a step with it.

    A gradient with an infinity or a NaN becomes 0, and its step is skipped. At scale 1 it is kept,
    since no smaller scale would help and the run has to stop.

    Returns:
        the gradient, whether the step is taken (None if every step is), and the next scale.
    """
    if loss_scale is None:
        return gradient, None, None
    gradient = gradient / loss_scale.scale
    is_finite = jnp.all(jnp.isfinite(gradient))
    is_taken = is_finite | (loss_scale.scale <= 1)
    return jnp.where(is_taken, gradient, 0), is_taken, loss_scale.after(is_finite)


def wide(params: jax.Array) -> jax.Array:
    """Return parameters of any dtype in float32, in which gradients and steps are computed."""
    return params.astype(jnp.float32)
