"""Build a learner's network by name, for the observations of its environment."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from myriad.agents.networks.mlp import ACTIVATIONS
from myriad.agents.precision import Precision
from myriad.errors import InvalidArgumentError, UnknownNameError, shown
from myriad.registry import Registry
from myriad.spaces import Discrete, MultiDiscrete

NETWORKS = Registry(
    "network",
    {
        "attention": "myriad.agents.networks.attention:Transformer",
        "cnn": "myriad.agents.networks.cnn:CNN",
        "mlp": "myriad.agents.networks.mlp:MLP",
    },
)

# Hyperparameters that a network of your own does not take.
_OF_OURS = ("hidden_sizes", "activation", "layer_norm")


def network_defaults(kind: type, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters that a learner has by default with the chosen network.

    Args:
        kind: the learner's class.
        overrides: the hyperparameters that you chose.

    Raises:
        InvalidArgumentError: you chose one that a network of your own does not take.
    """
    name = overrides.get("network", "mlp")
    known = {field.name: field.default for field in dataclasses.fields(kind)}
    if ":" not in name:
        defaults = NETWORKS.load(name).DEFAULTS
    else:
        defaults = {"preserve_outputs": False}
        for field in _OF_OURS:
            # The default may be given, since a run's config.toml spells it out.
            if field in known and overrides.get(field, known[field]) != known[field]:
                raise InvalidArgumentError(
                    field,
                    f"must be left out with network {shown(name)}, which has layers of its "
                    f"own, but got {shown(overrides[field])}.",
                )
    return {field: value for field, value in defaults.items() if field in known}


def all_defaults(kind: type, name: str) -> dict[str, Any]:
    """Return the defaults for a network of every hyperparameter that depends on the network.

    Args:
        kind: the learner's class.
        name: the network.
    """
    known = {field.name: field.default for field in dataclasses.fields(kind)}
    dependent = {field for each in NETWORKS.names() for field in NETWORKS.load(each).DEFAULTS}
    own = network_defaults(kind, {"network": name})
    return {field: own.get(field, known[field]) for field in sorted(dependent & known.keys())}


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
    """

    name: str
    obs_shape: tuple[int, ...]
    hidden_sizes: tuple[int, ...]
    activation: str
    layer_norm: bool = False
    attention: str = "auto"
    attention_patch: int = 2
    precision: Precision = dataclasses.field(default_factory=Precision)

    @classmethod
    def of(cls, learner: Any) -> "NetworkSpec":
        """Return the network that a learner's fields describe. Raises `Precision.of`'s errors."""
        env = learner.env
        space = env.observation_space(env.default_params)
        if isinstance(space, Discrete | MultiDiscrete) or not hasattr(space, "shape"):
            raise InvalidArgumentError(
                "env",
                "must have observations in a Box, as "
                f"myriad.envs.wrappers.FlattenObservation(env) has, but has {shown(space)}.",
            )
        return cls(
            learner.network,
            tuple(space.shape),
            tuple(learner.hidden_sizes),
            learner.activation,
            getattr(learner, "layer_norm", False),
            learner.attention,
            learner.attention_patch,
            Precision.of(learner),
        )

    @property
    def chosen_attention(self) -> tuple[str, str]:
        """The implementation of attention and the reason. Raises `choose_attention`'s errors."""
        from myriad.agents.networks.attention import num_patches
        from myriad.agents.networks.kernels import choose_attention

        return choose_attention(
            self.attention, num_patches(self.grid(), self.attention_patch), self.precision
        )

    def build(self, num_outputs: int, output_scale: float = 1.0) -> Any:
        """Return the network: flax's `init` and `apply`, from flat `[B, D]` to `[B, num_outputs]`.

        Args:
            num_outputs: the width of the last layer.
            output_scale: the gain of its initial weights. A network of your own ignores it.

        Raises:
            UnknownNameError: there is no such network, activation or implementation of attention.
            InvalidArgumentError: the network doesn't suit the observations or the settings.
        """
        for field in ("attention", "attention_patch"):
            chosen = getattr(self, field)
            default = getattr(NetworkSpec, field)
            if self.name != "attention" and chosen != default:
                raise InvalidArgumentError(
                    field,
                    f"must be {default!r} with network {shown(self.name)}, which has no "
                    f"attention, but got {shown(chosen)}.",
                )
        if ":" in self.name:
            return self._own(num_outputs)
        network = NETWORKS.load(self.name)
        if self.activation not in ACTIVATIONS:
            raise UnknownNameError("activation", self.activation, ACTIVATIONS)
        return network.of(
            self,
            hidden_sizes=self.hidden_sizes,
            num_outputs=num_outputs,
            activation=self.activation,
            layer_norm=self.layer_norm,
            output_scale=output_scale,
            precision=self.precision,
        )

    def require_outputs(self, *sizes: int) -> None:
        """Raise the errors of `build`, or InvalidArgumentError if your own network is unfit.

        Args:
            sizes: the widths of the outputs that the learner will ask for.
        """
        for num_outputs in sizes:
            network = self.build(num_outputs)
            if isinstance(network, OfFlat):
                network.require_outputs(self.name, num_outputs)

    def grid(self, least_side: int = 1) -> tuple[int, int, int]:
        """Return the observation's height, width and channels.

        Raises:
            InvalidArgumentError: it is no grid, or a side is shorter.
        """
        shape = self.obs_shape if len(self.obs_shape) == 3 else (*self.obs_shape, 1)
        if len(shape) != 3 or min(shape[:2]) < least_side:
            raise InvalidArgumentError(
                "network",
                f"must suit observations of shape {list(self.obs_shape)}, but got {self.name!r}, "
                "which needs a grid [height, width] or [height, width, channels] of at least "
                f"{least_side} x {least_side} cells.",
            )
        return shape

    def _own(self, num_outputs: int) -> "OfFlat":
        target = NETWORKS.load(self.name)
        takes_precision = callable(target) and "precision" in _parameters(target)
        for field in dataclasses.fields(Precision):
            dtype = getattr(self.precision, field.name)
            if not takes_precision and dtype != field.default:
                raise InvalidArgumentError(
                    field.name,
                    f"must be {field.default} with network {shown(self.name)}, which "
                    f"takes no argument `precision`, but got {dtype!r}.",
                )
        how = {"precision": self.precision} if takes_precision else {}
        try:
            module = target(num_outputs, **how)
        except Exception as error:
            raise InvalidArgumentError(
                "network",
                f"must be built by a call with the output size, but "
                f"{self.name}({num_outputs}) raises {_in_one_line(error)}.",
            ) from error
        if not isinstance(module, nn.Module):
            raise InvalidArgumentError(
                "network",
                "must be a module of flax.linen, or a function that returns one, but "
                f"{self.name}({num_outputs}) returns {shown(module)}.",
            )
        return OfFlat(module, self.obs_shape)


@dataclasses.dataclass(frozen=True)
class OfFlat:
    """Your own network, which takes `[B, *O]`, adapted to flat observations `[B, D]`."""

    module: nn.Module
    obs_shape: tuple[int, ...]

    def init(self, key: jax.Array, obs: jax.Array) -> Any:
        """Draw initial parameters."""
        return self.module.init(key, self._shaped(obs))

    def apply(self, params: Any, obs: jax.Array) -> Any:
        """Map `[B, D]` to `[B, num_outputs]`."""
        return self.module.apply(params, self._shaped(obs))

    def require_outputs(self, name: str, num_outputs: int) -> None:
        """Raise InvalidArgumentError unless the shapes are right, without computing anything."""
        obs = jnp.zeros((2, *self.obs_shape), jnp.float32)
        what = (
            f"network must map float32 observations {['B', *self.obs_shape]} to floats "
            f"{['B', num_outputs]}".replace("'", "")
        )
        try:
            params, outputs = jax.eval_shape(
                lambda key: _init_and_apply(self.module, key, obs), jax.random.key(0)
            )
        except Exception as error:
            raise InvalidArgumentError(
                f"{what}, but {name} raises {_in_one_line(error)}."
            ) from error
        if others := sorted(params.keys() - {"params"}):
            raise InvalidArgumentError(
                "network",
                f"must keep all that it learns in `params`, but {name} also has "
                f"{', '.join(others)}.",
            )
        shape = getattr(outputs, "shape", None)
        if shape != (2, num_outputs) or not jnp.issubdtype(outputs.dtype, jnp.floating):
            given = shown(outputs) if shape is None else f"{outputs.dtype} {['B', *shape[1:]]}"
            raise InvalidArgumentError(f"{what}, but {name} returns {given}.".replace("'", ""))

    def _shaped(self, obs: jax.Array) -> jax.Array:
        return obs.reshape(obs.shape[0], *self.obs_shape)


def _init_and_apply(module: nn.Module, key: jax.Array, obs: jax.Array) -> Any:
    params = module.init(key, obs)
    return params, module.apply(params, obs)


def _parameters(target: Any) -> Mapping[str, Any]:
    try:
        return inspect.signature(target).parameters
    except (TypeError, ValueError):  # A function in C has no signature.
        return {}


def _in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {shown(str(error).strip())}"
