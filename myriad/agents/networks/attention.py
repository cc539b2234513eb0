"""A transformer for observations on a grid, and the choice of how its attention is computed."""

import functools
import math
import re
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from myriad.agents.networks.cnn import ON_A_GRID
from myriad.agents.networks.mlp import ACTIVATIONS, Network, Precision
from myriad.errors import InvalidArgumentError, UnknownNameError

AUTO = "auto"
IMPLEMENTATIONS = ("reference", "xla", "cudnn")
# The compute capability of the first GPUs that cuDNN's attention runs on.
_CUDNN_CAPABILITY = 8

D_MODEL = 64
NUM_LAYERS = 2
NUM_HEADS = 4
_D_FEED_FORWARD = 2 * D_MODEL
_POSITION_SCALE = 0.02


class Transformer(Network, kw_only=True):
    """Patches of a grid as tokens, pre-norm attention layers, and the mean of the tokens.

    It follows Vaswani et al. (2017), "Attention is all you need", with the layer norm before each
    part as in Xiong et al. (2020), "On layer normalization in the transformer architecture", and
    with patches and learned positions as in Dosovitskiy et al. (2021), "An image is worth 16x16
    words". There are 2 layers of 4 heads and 64 numbers per token. The feed-forward part has 128.

    Attributes:
        grid: the shape of an observation: height, width and channels.
        patch: the side of a patch in cells. The last patches are padded with zeros.
        attention: a name in `IMPLEMENTATIONS`. Other attributes are a `Network`'s. The dense layers
            follow the mean, whose sum and the softmax are in float32.

    Example:
        >>> network = Transformer((), 6, "gelu", grid=(10, 10, 4), patch=2)
        >>> params = jax.jit(network.init)(jax.random.key(0), jnp.zeros((1, 400)))
        >>> network.apply(params, jnp.zeros((8, 400))).shape
        (8, 6)
    """

    DEFAULTS: ClassVar = {"hidden_sizes": (), "activation": "gelu", **ON_A_GRID}

    grid: tuple[int, int, int]
    patch: int
    attention: str = "xla"

    @classmethod
    def of(cls, spec: Any, **fields: Any) -> "Transformer":
        implementation, _ = choose_attention(spec.attention, spec.precision)
        return cls(grid=spec.grid(), patch=spec.attention_patch, attention=implementation, **fields)

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Map `[B, H * W * C]` to `[B, num_outputs]`."""
        dense = functools.partial(self.dense, scale=1.0)
        tokens = dense(D_MODEL)(patches(inputs.reshape(-1, *self.grid), self.patch))
        positions = self.param(
            "positions",
            nn.initializers.normal(_POSITION_SCALE),
            tokens.shape[1:],
            jnp.dtype(self.precision.param_dtype),
        )
        tokens += positions.astype(tokens.dtype)[None]
        for _ in range(NUM_LAYERS):
            heads = dense(3 * D_MODEL)(self.normalized(tokens))
            heads = heads.reshape(*tokens.shape[:2], 3, NUM_HEADS, -1)
            attended = attend(self.attention, heads[:, :, 0], heads[:, :, 1], heads[:, :, 2])
            tokens += dense(D_MODEL)(attended.reshape(tokens.shape))
            hidden = dense(_D_FEED_FORWARD)(self.normalized(tokens))
            tokens += dense(D_MODEL)(ACTIVATIONS[self.activation](hidden))
        tokens = self.normalized(tokens)
        mean = jnp.mean(tokens, axis=1, dtype=jnp.float32).astype(tokens.dtype)
        return self.last(self.hidden_layers(mean, self.hidden_sizes))


def patches(cells: jax.Array, patch: int) -> jax.Array:
    """Cut `[B, H, W, C]` into square patches, row by row: `[B, T, patch * patch * C]`."""
    batch, height, width, channels = cells.shape
    cells = jnp.pad(cells, ((0, 0), (0, -height % patch), (0, -width % patch), (0, 0)))
    rows, columns = cells.shape[1] // patch, cells.shape[2] // patch
    cut = cells.reshape(batch, rows, patch, columns, patch, channels).swapaxes(2, 3)
    return cut.reshape(batch, rows * columns, patch * patch * channels)


def attend(implementation: str, query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """Return softmax(query key / sqrt(K)) value, `[B, T, H, K]`, for `T` queries and `H` heads.

    The query is `[B, T, H, K]`, and key and value are `[B, S, H, K]`.
    """
    if implementation != "reference":
        of_jax: Any = implementation
        return jax.nn.dot_product_attention(query, key, value, implementation=of_jax)
    scores = jnp.einsum("bthk,bshk->bhts", query, key, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(scores / math.sqrt(query.shape[-1]), axis=-1).astype(value.dtype)
    return jnp.einsum("bhts,bshk->bthk", weights, value)


def choose_attention(name: str, precision: Precision) -> tuple[str, str]:
    """Return the implementation that a setting means on this device, and the reason.

    Raises:
        UnknownNameError: there is no such implementation.
        InvalidArgumentError: it doesn't exist for this device or these dtypes.
    """
    if name not in (AUTO, *IMPLEMENTATIONS):
        raise UnknownNameError("attention", name, [AUTO, *IMPLEMENTATIONS])
    dtype = precision.compute_dtype
    has_cudnn = has_cudnn_attention(dtype)
    if name == "cudnn" and not has_cudnn:
        here = f"a {jax.local_devices()[0].device_kind} and compute_dtype {dtype}"
        rule = f"must be auto, reference or xla, since cuDNN has no attention for {here}"
        raise InvalidArgumentError("attention", rule, name)
    # JAX asks for float16 products with sums in float32, which XLA lacks on CPUs.
    lacks_xla = dtype == "float16" and jax.default_backend() == "cpu"
    if name == "xla" and lacks_xla:
        raise InvalidArgumentError("attention", "must be reference for float16 on a CPU", name)
    if name != AUTO:
        return name, "you chose it"
    if has_cudnn:
        return "cudnn", f"a GPU has it for {dtype}"
    if lacks_xla:
        return "reference", "xla has no float16 on a CPU"
    return "xla", f"cudnn has none for {dtype} on this device"


def has_cudnn_attention(compute_dtype: str) -> bool:
    """Return whether this process's device is a GPU that cuDNN has attention for."""
    # Only NVIDIA's GPUs have a numeric compute capability.
    capability = str(getattr(jax.local_devices()[0], "compute_capability", ""))
    number = re.fullmatch(r"(\d+)\.\d+", capability)
    is_new = number is not None and int(number[1]) >= _CUDNN_CAPABILITY
    return is_new and compute_dtype in ("bfloat16", "float16")
