"""The learners' networks by name: an MLP, networks for grids and your own.

`NetworkSpec` builds one for the observations of a learner's environment.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from myriad.agents.networks.mlp import ACTIVATIONS, KernelInit, Precision
from myriad.envs.wrappers import privileged_of
from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.ranges import require
from myriad.registry import Registry
from myriad.spaces import Discrete, MultiDiscrete

NETWORKS = Registry(
    "network",
    {
        "attention": "myriad.agents.networks.attention:Transformer",
        "cnn": "myriad.agents.networks.cnn:CNN",
        "gru": "myriad.agents.networks.recurrent:GRU",
        "mlp": "myriad.agents.networks.mlp:MLP",
        "nature-cnn": "myriad.agents.networks.cnn:NatureCNN",
    },
)


def has_memory(name: str) -> bool:
    """Return whether a network has a memory: flax's `initialize_carry`, as its cells have it.

    Raises:
        UnknownNameError: there is no such network.
        InvalidArgumentError: `module:Class` can't be imported.
    """
    return hasattr(NETWORKS.load(name), "initialize_carry")


def network_defaults(kind: type, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters that a class of learners has by default with the chosen networks.

    They are those of its `network`, but a `critic_network` brings its own `critic_hidden_sizes`.
    """
    known = {field.name: field.default for field in dataclasses.fields(kind)}
    critic = overrides.get("critic_network")
    require("critic_network", critic, str | None)
    names = [overrides.get("network", "mlp"), *([] if critic is None else [critic])]
    of_each = [
        {"preserve_outputs": False} if ":" in name else NETWORKS.load(name).DEFAULTS
        for name in names
    ]
    defaults: dict[str, Any] = dict(of_each[0])
    if critic is not None:
        if ":" not in critic:
            sizes = of_each[1].get("hidden_sizes", known["hidden_sizes"])
            defaults["critic_hidden_sizes"] = sizes
        if not all(each.get("preserve_outputs", True) for each in of_each):
            defaults["preserve_outputs"] = False
    return {field: value for field, value in defaults.items() if field in known}


@dataclasses.dataclass(frozen=True)
class NetworkSpec:
    """A network as a learner's hyperparameters describe it.

    Attributes:
        name: a name in `NETWORKS`, or `module:Class` of your own.
        obs_shape: the shape of an observation. Networks get observations flat.
        hidden_sizes: the widths of dense layers.
        activation: a name in `ACTIVATIONS`.
        layer_norm: whether hidden layers are normalised.
        attention: auto, or an implementation of attention.
        attention_patch: the side of a token in cells.
        precision: the dtypes.
        byte_channels: how many channels are bytes that nobody has scaled, the first ones.
        role: what it is for: actor, critic or q, or a word of your own learner. A network of your
            own may be told.
    """

    name: str
    obs_shape: tuple[int, ...]
    hidden_sizes: tuple[int, ...]
    activation: str
    layer_norm: bool = False
    attention: str = "auto"
    attention_patch: int = 2
    precision: Precision = dataclasses.field(default_factory=Precision)
    byte_channels: int = 0
    role: str = "actor"
    kernel_init: KernelInit = "orthogonal"

    @classmethod
    def of(cls, learner: Any, role: str = "actor") -> "NetworkSpec":
        """Return the network that a learner's fields describe for a role.

        A critic is that of `critic_network` and `critic_hidden_sizes`, if the learner sets them,
        for a `privileged_observation` of the environment, if the learner `sees_privileged`.

        A network with a memory needs a learner whose class has `trains_memory = True`. Raises the
        errors of `has_memory` and of `Precision.of`, and InvalidArgumentError for a network or
        observations that the learner can't use.
        """
        name, sizes = learner.network, learner.hidden_sizes
        critic = getattr(learner, "critic_network", None)
        if role == "critic":
            name = name if critic is None else critic
            of_critic = getattr(learner, "critic_hidden_sizes", None)
            sizes = sizes if of_critic is None else of_critic
        if has_memory(name) and not getattr(learner, "trains_memory", False):
            rule = f"must be one without a memory with {type(learner).__name__}"
            raise InvalidArgumentError("network", rule, name)
        env = getattr(learner.env, "unmasked", learner.env)  # A network doesn't see the mask.
        space = env.observation_space(env.default_params)
        if isinstance(space, Discrete | MultiDiscrete) or not hasattr(space, "shape"):
            rule = "must have observations in a Box, as myriad.envs.wrappers.FlattenObservation has"
            raise InvalidArgumentError("env", rule, space)
        if role == "critic" and getattr(learner, "sees_privileged", False):
            space = privileged_of(learner.env)
        is_bytes = space.dtype == np.uint8 and not learner.normalize_observations
        has_attention = name == "attention"  # The other network's is not this one's.
        return cls(
            name,
            tuple(space.shape),
            tuple(sizes),
            learner.activation,
            getattr(learner, "layer_norm", False),
            learner.attention if has_attention else cls.attention,
            learner.attention_patch if has_attention else cls.attention_patch,
            Precision.of(learner),
            (*space.shape, 1)[2] if is_bytes and len(space.shape) in (2, 3) else 0,
            role,
            learner.kernel_init,
        )

    def build(self, num_outputs: int, output_scale: float = 1.0) -> Any:
        """Return the network: flax's `init` and `apply`, from flat `[B, D]` to `[B, num_outputs]`.

        One with a memory is a `RecurrentOfFlat`.

        Args:
            num_outputs: the width of the last layer.
            output_scale: the gain of its initial weights, if they are orthogonal. A network of your
                own ignores it.

        Raises:
            UnknownNameError: there is no such network, activation or implementation of attention.
            InvalidArgumentError: the network doesn't suit the observations or the settings.
        """
        network = NETWORKS.load(self.name)
        if ":" in self.name:
            from myriad.agents.networks.own import own_network

            return own_network(network, self, num_outputs)
        if self.activation not in ACTIVATIONS:
            raise UnknownNameError("activation", self.activation, ACTIVATIONS)
        return network.of(
            self,
            hidden_sizes=self.hidden_sizes,
            num_outputs=num_outputs,
            activation=self.activation,
            layer_norm=self.layer_norm,
            output_scale=output_scale,
            kernel_init=self.kernel_init,
            precision=self.precision,
        )

    def grid(self, least_side: int = 1) -> tuple[int, int, int]:
        """Return the height, width and channels of the observations.

        Raises:
            InvalidArgumentError: it is no grid, or a side is shorter.
        """
        shape = self.obs_shape if len(self.obs_shape) == 3 else (*self.obs_shape, 1)
        if len(shape) != 3 or min(shape[:2]) < least_side:
            field = "critic_network" if self.role == "critic" else "network"
            least = f"{least_side} x {least_side}"
            rule = f"needs a grid of {least} cells or more, not {[*self.obs_shape]}"
            raise InvalidArgumentError(field, rule, self.name)
        return shape

    def require_outputs(self, num_outputs: int) -> None:
        """Raise the errors of `build`, or InvalidArgumentError if your own network is unfit."""
        network = self.build(num_outputs)
        if ":" in self.name:
            network.require_outputs(self.name, num_outputs)
