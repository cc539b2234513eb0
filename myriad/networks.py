"""The networks that learners share: a multilayer perceptron in flax, whose parameters are a plain pytree."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from myriad.errors import InvalidArgumentError, UnknownNameError

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}


class MLP(nn.Module):
    """Dense layers with an activation after each but the last, from orthogonal initial weights and zero biases.

    Attributes:
        hidden_sizes: the width of each hidden layer; empty for a linear map.
        num_outputs: the width of the last layer.
        activation: a name in `ACTIVATIONS`.
        layer_norm: whether each hidden layer is normalised before its activation (Ba et al. 2016).
        output_scale: the gain of the last layer's initial weights.

    Raises:
        InvalidArgumentError: a width is below 1.
        UnknownNameError: no such activation.

    Example:
        >>> network = MLP((64, 64), 2)
        >>> params = network.init(jax.random.key(0), jnp.zeros((1, 4)))
        >>> network.apply(params, jnp.zeros((8, 4))).shape
        (8, 2)
    """

    hidden_sizes: tuple[int, ...]
    num_outputs: int
    activation: str = "tanh"
    layer_norm: bool = False
    output_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise UnknownNameError("activation", self.activation, ACTIVATIONS)
        if min(*self.hidden_sizes, self.num_outputs, 1) < 1:
            raise InvalidArgumentError(
                f"hidden_sizes and num_outputs must be at least 1, but got {self.hidden_sizes} and {self.num_outputs}."
            )
        super().__post_init__()

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Map `[..., D]` to `[..., num_outputs]`."""
        hidden = inputs
        for size in self.hidden_sizes:
            hidden = nn.Dense(size, kernel_init=nn.initializers.orthogonal(np.sqrt(2)))(hidden)
            if self.layer_norm:
                hidden = nn.LayerNorm()(hidden)
            hidden = ACTIVATIONS[self.activation](hidden)
        return nn.Dense(self.num_outputs, kernel_init=nn.initializers.orthogonal(self.output_scale))(hidden)


def flatten(obs: Any) -> jax.Array:
    """Return observations `[B, *O]` as a network takes them, float32 `[B, D]`."""
    return obs.reshape(obs.shape[0], -1).astype(jnp.float32)
