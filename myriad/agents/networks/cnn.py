"""Convolutional networks: a small one for observations on a grid, and one for pictures."""

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from myriad.agents.networks.layers import ON_A_GRID, grid_of, hidden_layers, linear, normalized
from myriad.agents.networks.mlp import ACTIVATIONS, Precision

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
        hidden = self.convolved(inputs.reshape(-1, *self.grid)).reshape(inputs.shape[0], -1)
        hidden = hidden_layers(
            hidden, self.hidden_sizes, self.activation, self.precision, layer_norm=self.layer_norm
        )
        last = linear(self.num_outputs, self.precision, self.output_scale)(hidden)
        return last.astype(self.precision.output_dtype)

    def convolved(self, cells: jax.Array) -> jax.Array:
        """Apply the convolution to `[B, H, W, C]`."""
        return self.activated(linear(NUM_CHANNELS, self.precision)(_neighbourhoods(cells)))

    def activated(self, hidden: jax.Array) -> jax.Array:
        """Apply the activation after a convolution and, if asked, layer norm before it."""
        if self.layer_norm:
            hidden = normalized(hidden, self.precision)
        return ACTIVATIONS[self.activation](hidden)


class NatureCNN(CNN):
    """Three convolutions without padding, then dense layers, for pictures of at least 36 x 36.

    Mnih et al. (2015), "Human-level control through deep reinforcement learning", use 32 channels
    of 8 x 8 cells with stride 4, 64 of 4 x 4 with stride 2, 64 of 3 x 3 with stride 1, and a dense
    layer of 512. Bytes are divided by 255.

    Attributes:
        byte_channels: how many channels are bytes, the first ones. Other attributes are a `CNN`'s.

    Example:
        >>> network = NatureCNN((84, 84, 4), (512,), 6, byte_channels=4)
        >>> params = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros((1, 84 * 84 * 4)))
        >>> sum(leaf.size for leaf in jax.tree.leaves(params))
        1687206
    """

    DEFAULTS: ClassVar = CNN.DEFAULTS | {"hidden_sizes": (512,)}

    byte_channels: int = 0

    @classmethod
    def of(cls, spec: Any, **fields: Any) -> "NatureCNN":
        """Build the network that a `NetworkSpec` describes."""
        return cls(grid_of(spec, least_side=36), byte_channels=spec.byte_channels, **fields)

    def convolved(self, cells: jax.Array) -> jax.Array:
        """Apply the convolutions to `[B, H, W, C]`."""
        is_byte = np.arange(self.grid[2]) < self.byte_channels
        hidden = cells * np.where(is_byte, np.float32(1 / 255), np.float32(1))
        for num_channels, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            blocks = _neighbourhoods(_blocks(hidden, stride), size // stride)
            hidden = self.activated(linear(num_channels, self.precision)(blocks))
        return hidden


# A convolution is a matrix product with these. XLA has no fast gradient of
# `lax.conv_general_dilated` on a CPU, least of all in a loop: a gradient step of 1,024 rows of
# 10 x 10 cells with 4 channels took 238 ms with it, and 12 ms this way.
def _neighbourhoods(cells: jax.Array, size: int = _SIZE) -> jax.Array:
    """Return the `size x size` cells that begin at each, `[B, H - size + 1, W - size + 1, ...]`."""
    height, width = cells.shape[1] - size + 1, cells.shape[2] - size + 1
    shifted = [
        cells[:, row : row + height, column : column + width]
        for row in range(size)
        for column in range(size)
    ]
    return jnp.concatenate(shifted, axis=-1)


def _blocks(cells: jax.Array, side: int) -> jax.Array:
    """Join blocks of cells, `[B, H // side, W // side, side * side * C]`. A rest is left out."""
    batch, height, width, channels = cells.shape
    height, width = height // side, width // side
    blocks = cells[:, : height * side, : width * side]
    blocks = blocks.reshape(batch, height, side, width, side, channels)
    return blocks.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height, width, -1)
