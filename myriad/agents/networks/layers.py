"""Layers that networks on a grid share."""

from typing import Any

import flax.linen as nn
import jax
import numpy as np

from myriad.agents.networks.mlp import ACTIVATIONS, Dense, Precision, orthogonal
from myriad.errors import InvalidArgumentError

_GAIN = float(np.sqrt(2))
# The cells of a grid share their weights, so normalising each cell by its own moments would only
# make equal cells different. Preserving outputs works only for a dense first layer.
ON_A_GRID = {"normalize_observations": False, "preserve_outputs": False}


def linear(num_outputs: int, precision: Precision, scale: float = _GAIN) -> Dense:
    """Return a layer from `[..., I]` to `[..., num_outputs]` with orthogonal initial weights."""
    return Dense(num_outputs, orthogonal(scale), precision.hidden)


def normalized(hidden: jax.Array, precision: Precision) -> jax.Array:
    """Apply a layer norm to the last axis in float32, and convert back to the compute dtype."""
    norm = nn.LayerNorm(dtype="float32", param_dtype=precision.param_dtype)
    return norm(hidden).astype(precision.compute_dtype)


def hidden_layers(
    hidden: jax.Array,
    sizes: tuple[int, ...],
    activation: str,
    precision: Precision,
    *,
    layer_norm: bool,
) -> jax.Array:
    """Apply dense layers of these sizes to `[B, I]`, with activations and, if asked, layer norm."""
    for size in sizes:
        hidden = linear(size, precision)(hidden)
        if layer_norm:
            hidden = normalized(hidden, precision)
        hidden = ACTIVATIONS[activation](hidden)
    return hidden


def grid_of(spec: Any, least_side: int = 1) -> tuple[int, int, int]:
    """Return the height, width and channels of the observations of a `NetworkSpec`.

    Raises:
        InvalidArgumentError: it is no grid, or a side is shorter.
    """
    shape = spec.obs_shape if len(spec.obs_shape) == 3 else (*spec.obs_shape, 1)
    if len(shape) != 3 or min(shape[:2]) < least_side:
        field = "critic_network" if spec.role == "critic" else "network"
        rule = f"needs a grid of {least_side} x {least_side} cells or more, not {[*spec.obs_shape]}"
        raise InvalidArgumentError(field, rule, spec.name)
    return shape
