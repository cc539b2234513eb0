"""Layers that networks on a grid share."""

import flax.linen as nn
import jax
import numpy as np

from myriad.agents.networks.mlp import ACTIVATIONS, Dense, orthogonal
from myriad.agents.precision import Precision

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
