"""Policies with a network, which measure environments as training uses them.

Every library gets the same weights. A workload's agent `mlp-64-64` is two layers of 64 with tanh
between them, weights drawn once from a fixed seed, and actions drawn from its logits. This module
does not import Myriad: peers run it in a Python of their own.
"""

import itertools
import math
import re
from typing import Any

NETWORKS = ("64-64", "1024-1024")
_PREFIX = "mlp-"


def agent_of(network: str) -> str:
    """Return the agent of a workload whose policy is the network of such widths."""
    return f"{_PREFIX}{network}"


def widths_of(agent: str) -> list[int]:
    """Return the widths of the hidden layers."""
    return [int(width) for width in agent.removeprefix(_PREFIX).split("-")]


def num_multiplications(agent: str) -> int:
    """Count the multiplications of one action between the hidden layers, which are most of them."""
    return sum(above * below for above, below in itertools.pairwise(widths_of(agent)))


def is_network(agent: str) -> bool:
    """Whether the agent of a workload is one of these."""
    return re.fullmatch(rf"{_PREFIX}\d+(-\d+)*", agent) is not None


class NetworkPolicy:
    """A fixed policy for vectors of numbers: an agent as `myriad.Rollout` takes it.

    Args:
        agent: such as `mlp-64-64`, the widths of the hidden layers.
        num_inputs: size of an observation.
        num_actions: actions to choose from.
    """

    uses_observation = True

    def __init__(self, agent: str, num_inputs: int, num_actions: int):
        import numpy as np

        rng = np.random.default_rng(0)
        self.kernels = [
            (rng.standard_normal(shape) / math.sqrt(shape[0])).astype(np.float32)
            for shape in itertools.pairwise([num_inputs, *widths_of(agent), num_actions])
        ]

    def act(self, key: Any, obs: Any) -> Any:
        """Draw the action of one environment."""
        import jax
        import jax.numpy as jnp

        *hidden, last = self.kernels
        for kernel in hidden:
            obs = jnp.tanh(obs @ jnp.asarray(kernel))
        return jax.random.categorical(key, obs @ jnp.asarray(last))
