"""Convolutional networks: a small one for observations on a grid, and one for pictures."""

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from myriad.agents.networks.mlp import Network

# The cells of a grid share their weights, so normalising each cell by its own moments would only
# make equal cells different. Preserving outputs works only for a dense first layer.
ON_A_GRID = {"normalize_observations": False, "preserve_outputs": False}
NUM_CHANNELS = 16
_SIZE = 3


class CNN(Network, kw_only=True):
    """One convolution of 3 x 3 cells with 16 channels, then dense layers.

    Young and Tian (2019), "MinAtar: An Atari-inspired testbed", use it with a dense layer of 128.
    The convolution has stride 1 and no padding, so it maps `[H, W]` cells to `[H - 2, W - 2]`.

    Attributes:
        grid: the shape of an observation: height, width and channels. Other attributes are a
            `Network`'s. Layer norm is that of the convolution's channels and of each dense layer.

    Example:
        >>> network = CNN((128,), 6, "relu", grid=(10, 10, 4))
        >>> params = network.init(jax.random.key(0), jnp.zeros((1, 400)))
        >>> network.apply(params, jnp.zeros((8, 400))).shape
        (8, 6)
    """

    DEFAULTS: ClassVar = {"hidden_sizes": (128,), "activation": "relu", **ON_A_GRID}

    grid: tuple[int, int, int]

    @classmethod
    def of(cls, spec: Any, **fields: Any) -> "CNN":
        return cls(grid=spec.grid(least_side=_SIZE), **fields)

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Map `[B, H * W * C]` to `[B, num_outputs]`."""
        hidden = self.convolved(inputs.reshape(-1, *self.grid)).reshape(inputs.shape[0], -1)
        return self.last(self.hidden_layers(hidden, self.hidden_sizes))

    def convolved(self, cells: jax.Array) -> jax.Array:
        """Apply the convolution to `[B, H, W, C]`."""
        return self.activated(self.dense(NUM_CHANNELS)(_neighbourhoods(cells)))


class NatureCNN(CNN, kw_only=True):
    """Three convolutions without padding, then dense layers, for pictures of at least 36 x 36.

    Mnih et al. (2015), "Human-level control through deep reinforcement learning", use 32 channels
    of 8 x 8 cells with stride 4, 64 of 4 x 4 with stride 2, 64 of 3 x 3 with stride 1, and a dense
    layer of 512. Bytes are divided by 255.

    Attributes:
        byte_channels: how many channels are bytes, the first ones. Other attributes are a `CNN`'s.

    Example:
        >>> network = NatureCNN((512,), 6, "relu", grid=(84, 84, 4), byte_channels=4)
        >>> params = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros((1, 84 * 84 * 4)))
        >>> sum(leaf.size for leaf in jax.tree.leaves(params))
        1687206
    """

    DEFAULTS: ClassVar = CNN.DEFAULTS | {"hidden_sizes": (512,)}

    byte_channels: int = 0

    @classmethod
    def of(cls, spec: Any, **fields: Any) -> "NatureCNN":
        return cls(grid=spec.grid(least_side=36), byte_channels=spec.byte_channels, **fields)

    def convolved(self, cells: jax.Array) -> jax.Array:
        """Apply the convolutions to `[B, H, W, C]`."""
        is_byte = np.arange(self.grid[2]) < self.byte_channels
        hidden = cells * np.where(is_byte, np.float32(1 / 255), np.float32(1))
        for num_channels, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            blocks = _neighbourhoods(_blocks(hidden, stride), size // stride)
            hidden = self.activated(self.dense(num_channels)(blocks))
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
