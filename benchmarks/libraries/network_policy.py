"""Policies with a network, to measure environments in the way that training uses them.

Every library gets the same weights. A workload's agent `mlp-64-64` has two layers of 64 with tanh
between them. Its weights are drawn once from a fixed seed, and actions are drawn from its logits.
This module does not import Myriad, because peers run it in their own Python.
"""

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

NETWORKS = ("64-64", "1024-1024")
_PREFIX = "mlp-"


def agent_of(network: str) -> str:
    """Return the name of the agent whose network has these widths."""
    return f"{_PREFIX}{network}"


def is_network(agent: str) -> bool:
    """Whether an agent's name is that of such a network."""
    return re.fullmatch(rf"{_PREFIX}\d+(-\d+)*", agent) is not None


def widths_of(agent: str) -> list[int]:
    """Return the widths of the hidden layers."""
    return [int(width) for width in agent.removeprefix(_PREFIX).split("-")]


def num_multiplications(agent: str) -> int:
    """Count an action's multiplications between the hidden layers, which are most of them."""
    return sum(above * below for above, below in itertools.pairwise(widths_of(agent)))


class NetworkPolicy:
    """A fixed policy for vectors of numbers, which is an agent for `myriad.Rollout`.

    `shape` is that of an observation. `num_actions` is None where an action is no choice among a
    few.

    Raises:
        NotImplementedError: the agent is none, or the environment has no observations or actions
            for a network.
    """

    uses_observation = True

    def __init__(self, agent: str, shape: Sequence[int], num_actions: int | None):
        import numpy as np

        if not is_network(agent):
            raise NotImplementedError(f"beside a peer the agent {agent!r} is not measured")
        if num_actions is None or len(shape) != 1:
            raise NotImplementedError(
                "the networks measured here choose among a few actions from a vector of numbers"
            )
        rng = np.random.default_rng(0)
        self.kernels = [
            (rng.standard_normal(shape) / math.sqrt(shape[0])).astype(np.float32)
            for shape in itertools.pairwise([*shape, *widths_of(agent), num_actions])
        ]

    def act(self, key: Any, obs: Any) -> Any:
        """Draw the action of one environment."""
        import jax
        import jax.numpy as jnp

        *hidden, last = self.kernels
        for kernel in hidden:
            obs = jnp.tanh(obs @ jnp.asarray(kernel))
        return jax.random.categorical(key, obs @ jnp.asarray(last))
