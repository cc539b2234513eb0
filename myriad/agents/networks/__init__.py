"""The learners' networks: an MLP, networks for grids and your own. `spec` builds them by name."""

from myriad.agents.networks.mlp import (
    ACTIVATIONS,
    EXACT,
    MLP,
    Dense,
    affine,
    flatten,
    orthogonal,
    sum_rows,
)
from myriad.agents.networks.spec import NETWORKS, NetworkSpec, all_defaults, network_defaults

__all__ = [
    "ACTIVATIONS",
    "EXACT",
    "MLP",
    "NETWORKS",
    "Dense",
    "NetworkSpec",
    "affine",
    "all_defaults",
    "flatten",
    "network_defaults",
    "orthogonal",
    "sum_rows",
]
