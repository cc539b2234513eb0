"""The gradient step of all learners, and the statistics that they report of it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from myriad.agents.networks import EXACT
from myriad.agents.precision import LossScale, unscaled, wide
from myriad.agents.shards import Shards
from myriad.errors import InvalidArgumentError

# The metrics that a learner with `gradient_statistics` reports in addition to its losses.
GRADIENT_METRICS = ("gradient_norm", "update_norm", "parameter_norm")


class Learned(NamedTuple):
    """The part of a learner's state that a gradient step changes.

    Attributes:
        params: one vector, `[P]`, in the dtype that parameters are kept in.
        opt_state: the optimiser's state, float32.
        loss_scale: the scale of the loss; None if gradients need none.
    """

    params: jax.Array
    opt_state: optax.OptState
    loss_scale: LossScale | None


def take_step(
    learned: Learned,
    gradient: jax.Array,
    update: Callable[[jax.Array, optax.OptState], tuple[Any, optax.OptState]],
    learning_rate: jax.Array | float,
    shards: Shards,
    *,
    statistics: bool,
) -> tuple[Learned, list[jax.Array]]:
    """Take one gradient step in float32. All shards take the same step, and round it alike.

    With a loss scale above 1, a step is skipped if its gradient is not finite.

    Args:
        learned: the result of the steps before.
        gradient: the gradient of the scaled loss, float32 `[P]`.
        update: the optimiser's function from a gradient and a state to a step and the next state.
        learning_rate: the factor of the step.
        shards: the shards of the learner.
        statistics: whether to return the values of `GRADIENT_METRICS`.

    Returns:
        the result of the step, and its statistics or an empty list. The statistics
            of a skipped step are those of a gradient and a step of zeros.
    """

    def stepped(learned: Learned, gradient: jax.Array) -> tuple[Learned, list[jax.Array]]:
        gradient, is_taken, loss_scale = unscaled(gradient, learned.loss_scale)
        step, opt_state = update(gradient, learned.opt_state)
        change = learning_rate * step
        if is_taken is not None:
            change = jnp.where(is_taken, change, 0)
            opt_state = jax.tree.map(
                lambda new, old: jnp.where(is_taken, new, old), opt_state, learned.opt_state
            )
        params = wide(learned.params)
        metrics = gradient_metrics(gradient, change, params) if statistics else []
        rounded = (params - change).astype(learned.params.dtype)
        return Learned(rounded, opt_state, loss_scale), metrics

    return shards.alike(stepped, learned, gradient)


def norm(vector: jax.Array) -> jax.Array:
    """Return the Euclidean norm of `[P]`, a float32 scalar."""
    # A dot product compiles to a vector loop. A sum of squares in a fixed order does not.
    return jnp.sqrt(jnp.vdot(vector, vector, precision=EXACT))


def gradient_metrics(gradient: jax.Array, update: jax.Array, params: jax.Array) -> list[jax.Array]:
    """Return the values of `GRADIENT_METRICS`, from vectors `[P]`.

    Args:
        gradient: the gradient before it is clipped.
        update: the change that is subtracted from the parameters.
        params: the parameters before the step.
    """
    return [norm(gradient), norm(update), norm(params)]


def require_whole_parts(minibatch_rows: int, gradient_accumulation: int) -> None:
    """Raise InvalidArgumentError unless a minibatch can be cut into equal parts."""
    if minibatch_rows % gradient_accumulation:
        raise InvalidArgumentError(
            f"gradient_accumulation must divide a minibatch of {minibatch_rows:,} rows, "
            f"but is {gradient_accumulation:,}."
        )
