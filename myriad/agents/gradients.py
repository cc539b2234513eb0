"""Gradients of minibatches: in parts that fit into less memory, and what is reported of them."""

import jax
import jax.numpy as jnp

from myriad.agents.networks import EXACT
from myriad.errors import InvalidArgumentError

# What a learner with `gradient_statistics` reports beside its losses.
GRADIENT_METRICS = ("gradient_norm", "update_norm", "parameter_norm")


def norm(vector: jax.Array) -> jax.Array:
    """Return the Euclidean norm of `[P]`, a float32 scalar."""
    # A product with itself is a vector loop, as a sum of squares in a fixed order is not.
    return jnp.sqrt(jnp.vdot(vector, vector, precision=EXACT))


def gradient_metrics(gradient: jax.Array, update: jax.Array, params: jax.Array) -> list[jax.Array]:
    """Return the values of `GRADIENT_METRICS`, all from `[P]`.

    Args:
        gradient: before it is clipped.
        update: what is subtracted from the parameters.
        params: the parameters before that.
    """
    return [norm(gradient), norm(update), norm(params)]


def require_whole_parts(minibatch_rows: int, gradient_accumulation: int) -> None:
    """Raise InvalidArgumentError unless a minibatch can be cut into equal parts."""
    if minibatch_rows % gradient_accumulation:
        raise InvalidArgumentError(
            f"gradient_accumulation must divide a minibatch of {minibatch_rows:,} rows, "
            f"but is {gradient_accumulation:,}."
        )
