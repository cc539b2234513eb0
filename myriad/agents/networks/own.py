"""A network of your own, which `module:Class` names: built, adapted and checked."""

import dataclasses
import inspect
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from myriad.agents.networks.mlp import Precision
from myriad.errors import InvalidArgumentError, shown


def own_network(target: Any, spec: Any, num_outputs: int) -> "OfFlat | RecurrentOfFlat":
    """Return a network of your own, `target`, for the observations of a `NetworkSpec`.

    Raises:
        InvalidArgumentError: it can't be built so.
    """
    told = {"precision": spec.precision, "role": spec.role}
    try:
        parameters = inspect.signature(target).parameters
        how = {name: value for name, value in told.items() if name in parameters}
        module = target(num_outputs, **how)
    except Exception as error:
        says = f"{spec.name}({num_outputs}) can't be built: {_in_one_line(error)}."
        raise InvalidArgumentError("network", says) from error
    for field in dataclasses.fields(Precision) if "precision" not in parameters else ():
        dtype = getattr(spec.precision, field.name)
        if dtype != field.default:
            rule = f"must be {field.default} with a network that takes no argument `precision`"
            raise InvalidArgumentError(field.name, rule, dtype)
    if not isinstance(module, nn.Module):
        raise InvalidArgumentError("network", "must be or return a module of flax.linen", module)
    kind = RecurrentOfFlat if hasattr(target, "initialize_carry") else OfFlat
    return kind(module, spec.obs_shape)


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
        what = (
            f"network must map float32 observations {['B', *self.obs_shape]} to floats "
            f"{['B', num_outputs]}".replace("'", "")
        )
        obs = jnp.zeros((2, math.prod(self.obs_shape)), jnp.float32)
        try:
            params = jax.eval_shape(self.init, jax.random.key(0), obs)
            outputs: Any = jax.eval_shape(self.apply, params, obs)
        except Exception as error:
            says = f"{what}, but {name} raises {_in_one_line(error)}."
            raise InvalidArgumentError(says) from error
        if others := sorted(params.keys() - {"params"}):
            says = f"{name} must keep all that it learns in `params`, but has {', '.join(others)}."
            raise InvalidArgumentError("network", says)
        shape = getattr(outputs, "shape", None)
        if shape != (2, num_outputs) or not jnp.issubdtype(outputs.dtype, jnp.floating):
            given = shown(outputs) if shape is None else f"{outputs.dtype} {['B', *shape[1:]]}"
            raise InvalidArgumentError(f"{what}, but {name} returns {given}.".replace("'", ""))

    def _shaped(self, obs: jax.Array) -> jax.Array:
        return obs.reshape(obs.shape[0], *self.obs_shape)


class RecurrentOfFlat(OfFlat):
    """A network with a memory, adapted to flat observations `[B, D]`.

    Its module has flax's `initialize_carry(rng, input_shape)`. It maps a carry and `[B, *O]` to the
    next carry and `[B, num_outputs]`.
    """

    def init(self, key: jax.Array, obs: jax.Array) -> Any:
        return self.module.init(key, self.first_memory(obs.shape[0]), self._shaped(obs))

    def apply(self, params: Any, obs: jax.Array) -> Any:
        """Map `[B, D]` to `[B, num_outputs]`, as in an episode's first step."""
        return self.step(params, self.first_memory(obs.shape[0]), obs)[1]

    def step(self, params: Any, memory: Any, obs: jax.Array) -> tuple[Any, jax.Array]:
        """Map a memory and `[B, D]` to the next memory and `[B, num_outputs]`."""
        applied: Any = self.module.apply(params, memory, self._shaped(obs))
        memory, outputs = applied
        return memory, outputs

    def first_memory(self, num_envs: int) -> Any:
        """Return the memory of each environment before an episode's first step."""
        # That of one, since all begin with the same, however many there are.
        module: Any = self.module
        memory = module.initialize_carry(jax.random.key(0), (1, *self.obs_shape))
        return jax.tree.map(lambda leaf: jnp.repeat(leaf, num_envs, axis=0), memory)

    def require_outputs(self, name: str, num_outputs: int) -> None:
        super().require_outputs(name, num_outputs)
        obs = jnp.zeros((2, math.prod(self.obs_shape)), jnp.float32)

        def carries(key: jax.Array) -> Any:
            memory = self.first_memory(2)
            return memory, self.step(self.init(key, obs), memory, obs)[0]

        first, following = jax.eval_shape(carries, jax.random.key(0))
        if first != following:
            says = f"{name} must return initialize_carry's carry {first}, but returns {following}."
            raise InvalidArgumentError("network", says)


def _in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {shown(str(error).strip())}"
