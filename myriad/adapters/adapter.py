"""`Adapter`, the base class of environments of other JAX libraries, one file for each library.

`myriad.adapters.ADAPTERS` lists the libraries, and `make_env("brax:ant")` calls `adapt`. The
modules of the adapters import their libraries when they build an environment, since few users have
them all.
"""

import dataclasses
import functools
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp

from myriad.envs.environment import Changeable
from myriad.errors import InvalidArgumentError, MyriadError, UnknownNameError
from myriad.ranges import ranges_of, require_ranges
from myriad.registry import check_overrides
from myriad.spaces import Space

# What `step` returns: obs, state, reward, terminated, truncated and info.
Stepped = tuple[Any, Any, jax.Array, jax.Array, jax.Array, dict[str, Any]]


class Built(NamedTuple):
    """The environment that a library built, and its spaces."""

    env: Any
    observation_space: Any
    action_space: Space


@dataclasses.dataclass(frozen=True)
class Adapter(Changeable):
    """An environment of another library, without its auto-reset, since the rollout does that.

    Two adapters with equal fields are equal, so that both share one compiled program.

    Attributes:
        name: the environment's name in its library.
        options: the arguments of the library's own class that you chose, sorted by name.
    """

    library: ClassVar[str]

    name: str = dataclasses.field(metadata={"derived": True})
    options: tuple[tuple[str, Any], ...] = dataclasses.field(
        default=(), metadata={"arguments": True}, kw_only=True
    )

    def __post_init__(self) -> None:
        require_ranges(self)
        # Build it now: a library that builds or imports inside a trace leaks tracers.
        try:
            _built(self)
        except MyriadError:
            raise
        except Exception as error:
            says = f"{self.library} can't build {self.name!r} as configured: {error!r}"
            raise InvalidArgumentError(says) from error

    @classmethod
    def names(cls) -> Iterable[str]:
        """Return the names that the library knows."""
        raise NotImplementedError

    @classmethod
    def arguments(cls, name: str) -> Mapping[str, Any]:
        """Return the defaults of the arguments that the library builds `name` with."""
        return {}

    def build(self) -> Built:
        """Build the environment. It is kept, and shared with equal adapters."""
        raise NotImplementedError

    @classmethod
    def adapt(cls, name: str, **overrides: Any) -> Self:
        """Return the environment called `name`, with other fields or arguments than the defaults.

        Raises:
            UnknownNameError: the library has no such environment, or the environment no such field.
            InvalidArgumentError: a value can't be used.
        """
        if name not in (names := list(cls.names())):
            raise UnknownNameError(f"{cls.library} environment", name, names)
        arguments = cls.arguments(name)
        fields = {
            each.name: each.default
            for each in dataclasses.fields(cls)
            if each.name not in ("name", "options", "default_params")
        }
        known = {**arguments, **fields, **dict.fromkeys(ranges_of(cls))}
        check_overrides(f"{cls.library}'s {name}", known, overrides)
        own = {key: value for key, value in overrides.items() if key in fields}
        # Without defaults: a file names them all, and must make an equal adapter.
        options = {
            key: value
            for key, value in overrides.items()
            if key not in fields and value != arguments[key]
        }
        return cls(name, options=tuple(sorted(options.items())), **own)

    def changed(self, **overrides: Any) -> Self:
        """Return the environment with other fields or arguments. Raises the errors of `adapt`."""
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        chosen = fields.pop("options")
        return self.adapt(**{**fields, **dict(chosen), **overrides})

    @property
    def default_params(self) -> Any:
        return None

    @property
    def env(self) -> Any:
        """The library's own environment."""
        return _built(self).env

    def observation_space(self, params: Any) -> Any:
        return _built(self).observation_space

    def action_space(self, params: Any) -> Space:
        return _built(self).action_space


@functools.cache
def _built(adapter: Adapter) -> Built:
    return adapter.build()


def defaults_of(function: Any) -> dict[str, Any]:
    """Return the named arguments of a function or class, and their defaults, or None for each."""
    parameters = inspect.signature(function).parameters.values()
    return {
        each.name: None if each.default is each.empty else each.default
        for each in parameters
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }


def results(
    obs: Any, state: Any, reward: Any, terminated: Any, truncated: Any, info: Mapping[str, Any]
) -> Stepped:
    """Return what `step` returns, each number in the dtype that Myriad expects."""
    return (
        strongly_typed(obs),
        strongly_typed(state),
        jnp.asarray(reward, jnp.float32).reshape(()),
        jnp.asarray(terminated, bool).reshape(()),
        jnp.asarray(truncated, bool).reshape(()),
        strongly_typed(dict(info)),
    )


def timestep_results(timestep: Any, state: Any, info: Mapping[str, Any]) -> Stepped:
    """Return what `step` returns for a timestep of dm_env's kind.

    Its last step is a termination if the discount is 0, and a truncation otherwise.
    """
    ends, last = timestep.discount == 0, timestep.last()
    return results(timestep.observation, state, timestep.reward, last & ends, last & ~ends, info)


def strongly_typed(tree: Any) -> Any:
    """Return a tree without weak types.

    A Python number in the first state is weakly typed, but not in the next state. A loop would
    then be compiled for each.
    """
    return jax.tree.map(
        lambda leaf: jax.lax.convert_element_type(leaf, jnp.asarray(leaf).dtype), tree
    )
