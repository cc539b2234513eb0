"""A network of your own, which `module:Class` names: built, adapted and checked."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from myriad.agents.precision import Precision
from myriad.errors import InvalidArgumentError, shown


def own_network(target: Any, spec: Any, num_outputs: int) -> "OfFlat":
    """Return a network of your own for the observations of a `NetworkSpec`.

    Args:
        target: what `module:Class` names.
        spec: the `NetworkSpec` that names it.
        num_outputs: the width of its output.

    Raises:
        InvalidArgumentError: it can't be built so.
    """
    takes_precision = callable(target) and "precision" in _parameters(target)
    for field in dataclasses.fields(Precision):
        dtype = getattr(spec.precision, field.name)
        if not takes_precision and dtype != field.default:
            raise InvalidArgumentError(
                field.name,
                f"must be {field.default} with network {shown(spec.name)}, which "
                f"takes no argument `precision`, but got {dtype!r}.",
            )
    how = {"precision": spec.precision} if takes_precision else {}
    try:
        module = target(num_outputs, **how)
    except Exception as error:
        raise InvalidArgumentError(
            "network",
            f"must be built by a call with the output size, but "
            f"{spec.name}({num_outputs}) raises {_in_one_line(error)}.",
        ) from error
    if not isinstance(module, nn.Module):
        raise InvalidArgumentError(
            "network",
            "must be a module of flax.linen, or a function that returns one, but "
            f"{spec.name}({num_outputs}) returns {shown(module)}.",
        )
    return OfFlat(module, spec.obs_shape)


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
