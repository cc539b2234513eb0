"""A convolutional network for observations on a grid."""

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from myriad.agents.networks.layers import ON_A_GRID, grid_of, hidden_layers, linear, normalized
from myriad.agents.networks.mlp import ACTIVATIONS
from myriad.agents.precision import Precision

NUM_CHANNELS = 16
_SIZE = 3


class CNN(nn.Module):
    """One convolution of 3 x 3 cells with 16 channels, then dense layers.

    Young and Tian (2019), "MinAtar: An Atari-inspired testbed", use it with a dense layer of 128.
    The convolution has stride 1 and no padding, so it maps `[H, W]` cells to `[H - 2, W - 2]`.

    Attributes:
        grid: the shape of an observation: height, width and channels.
        hidden_sizes: the width of each dense layer between the convolution and the last layer.
        num_outputs: the width of the last layer.
        activation: a name in `ACTIVATIONS`.
        layer_norm: whether the convolution's channels and each dense layer are normalised before
            their activation.
        output_scale: the gain of the last layer's initial weights.
        precision: the dtypes. Layer norm is in float32.

    Example:
        >>> network = CNN((10, 10, 4), (128,), 6)
        >>> params = network.init(jax.random.key(0), jnp.zeros((1, 400)))
        >>> network.apply(params, jnp.zeros((8, 400))).shape
        (8, 6)
    """

    DEFAULTS: ClassVar = {"hidden_sizes": (128,), "activation": "relu", **ON_A_GRID}

    grid: tuple[int, int, int]
    hidden_sizes: tuple[int, ...]
    num_outputs: int
    activation: str = "relu"
    layer_norm: bool = False
    output_scale: float = 1.0
    precision: Precision = Precision()

    @classmethod
    def of(cls, spec: Any, **fields: Any) -> "CNN":
        """Build the network that a `NetworkSpec` describes."""
        return cls(grid_of(spec, least_side=_SIZE), **fields)

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Map `[B, H * W * C]` to `[B, num_outputs]`."""
        cells = inputs.reshape(-1, *self.grid)
        hidden = linear(NUM_CHANNELS, self.precision)(_neighbourhoods(cells))
        if self.layer_norm:
            hidden = normalized(hidden, self.precision)
        hidden = ACTIVATIONS[self.activation](hidden).reshape(inputs.shape[0], -1)
        hidden = hidden_layers(
            hidden, self.hidden_sizes, self.activation, self.precision, layer_norm=self.layer_norm
        )
        last = linear(self.num_outputs, self.precision, self.output_scale)(hidden)
        return last.astype(self.precision.output_dtype)


# The convolution is a matrix product with these. XLA has no fast gradient of
# `lax.conv_general_dilated` with 4 channels on a CPU: a gradient step of 1,024 rows of 10 x 10
# cells took 238 ms with it, and 12 ms this way.
def _neighbourhoods(cells: jax.Array) -> jax.Array:
    """Return the 3 x 3 cells around each inner cell, `[B, H - 2, W - 2, 9 C]`."""
    height, width = cells.shape[1] - _SIZE + 1, cells.shape[2] - _SIZE + 1
    shifted = [
        cells[:, row : row + height, column : column + width]
        for row in range(_SIZE)
        for column in range(_SIZE)
    ]
    return jnp.concatenate(shifted, axis=-1)
