"""A network with a memory: a gated recurrent unit (GRU)."""

import math
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from myriad.agents.networks.mlp import Network
from myriad.agents.networks.own import RecurrentOfFlat
from myriad.errors import InvalidArgumentError

# Of three square matrices side by side, each is then about orthogonal.
_GAIN = math.sqrt(3)


class GRU(Network):
    """Dense layers, then a GRU as in Cho et al. (2014), then a linear layer.

    The last of `hidden_sizes` is the width of the GRU, whose memory
    and gates are in float32.
    """

    DEFAULTS: ClassVar = {"preserve_outputs": False}

    @classmethod
    def of(cls, spec: Any, **fields: Any) -> RecurrentOfFlat:
        """Build the network that a `NetworkSpec` describes. A GRU without a width is refused."""
        if not fields["hidden_sizes"]:
            raise InvalidArgumentError("hidden_sizes", "must end in the width of network 'gru'", ())
        return RecurrentOfFlat(cls(**fields), (math.prod(spec.obs_shape),))

    @nn.nowrap
    def initialize_carry(self, rng: jax.Array, input_shape: tuple[int, ...]) -> jax.Array:
        """Return the memory before an episode's first step: zeros."""
        return jnp.zeros((*input_shape[:-1], self.hidden_sizes[-1]), jnp.float32)

    @nn.compact
    def __call__(self, carry: jax.Array, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Map a memory, `[B, H]`, and `[B, D]` to the next memory and `[B, num_outputs]`."""
        *sizes, size = self.hidden_sizes
        hidden = self.hidden_layers(inputs, tuple(sizes))
        # One product for all gates. An update with flax's GRUCell, which has one for each, took 1.3
        # times as long on a CPU.
        of_inputs, of_memory = (
            jnp.split(self.dense(3 * size, _GAIN)(each).astype(jnp.float32), 3, axis=-1)
            for each in (hidden, carry)
        )
        reset = nn.sigmoid(of_inputs[0] + of_memory[0])
        update = nn.sigmoid(of_inputs[1] + of_memory[1])
        new = jnp.tanh(of_inputs[2] + reset * of_memory[2])
        carry = (1 - update) * new + update * carry
        return carry, self.last(carry)
