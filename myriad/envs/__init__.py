"""Environments by name: `build_env` builds one, and `list_envs` lists the names."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from myriad.envs.environment import AnyEnvironment, Changeable, Environment
from myriad.errors import InvalidArgumentError
from myriad.ranges import checked, ranges_of, require_ranges
from myriad.registry import Registry, check_overrides, refuse_unused

__all__ = ["Environment", "list_envs", "register_env"]

Kind = TypeVar("Kind", bound=type)

ENVIRONMENTS = Registry(
    "environment",
    {
        "bucket-brigade": "myriad.envs.bucket_brigade:BucketBrigade",
        "cartpole-control": "myriad.envs.cartpole:CartPole",
        "gene-circuit-control": "myriad.envs.gene_circuit:GeneCircuit",
        "pendulum-control": "myriad.envs.pendulum:Pendulum",
        "snake": "myriad.envs.snake:Snake",
    },
    aliases={
        "CartPole-v1": "cartpole-control",
        "Pendulum-v1": "pendulum-control",
        "cartpole": "cartpole-control",
        "gene-circuit": "gene-circuit-control",
        "pendulum": "pendulum-control",
    },
    member="default_params",
)


# How a configuration calls an environment that you gave it as an object.
OBJECT = "object:"


def list_envs() -> list[str]:
    """Return the names that `make_env` knows, sorted, without aliases.

    Example:
        >>> "cartpole-control" in list_envs()
        True
    """
    return ENVIRONMENTS.names()


def build_env(env: str | AnyEnvironment, /, **overrides: Any) -> Environment:
    """Do what `myriad.make_env` does, but for no environment of another library by its name."""
    if not isinstance(env, str):
        return _changed(env, type(env).__name__, overrides)
    if env.startswith(OBJECT):
        rule = "must be given again as an object, as in load_agent(run, env=...)"
        raise InvalidArgumentError("env", rule, env)
    kind: Any = ENVIRONMENTS.load(env)
    # Set the configuration first, since the default parameters may depend on it, as those of a
    # scenario do.
    config = {field.name for field in dataclasses.fields(kind)} - {"default_params"}
    made = kind(**{field: value for field, value in overrides.items() if field in config})
    return _changed(made, ENVIRONMENTS.resolve(env), overrides)


def _changed(env: Any, name: str, overrides: Mapping[str, Any]) -> Any:
    """Return an environment with other values of its fields and of its parameters' fields."""
    from myriad.envs.wrappers import ResetPool, Wrapper, with_numbers

    if isinstance(env, Wrapper):
        own = {name: overrides[name] for name in _values(env).keys() & overrides.keys()}
        rest = {name: value for name, value in overrides.items() if name not in own}
        changed = dataclasses.replace(env, **own, env=_changed(env.env, name, rest))
        return with_numbers(changed, rest)
    own = _values(env)
    own.pop("default_params", None)
    params = _values(env.default_params)
    if "reset_pool" in overrides and "reset_pool" not in own | params:
        rest = dict(overrides)
        size = rest.pop("reset_pool")
        env = _changed(env, name, rest)
        return ResetPool(env, size) if size != 0 else env
    if isinstance(env, Changeable):
        return env.changed(**overrides)
    # The class itself has already checked its own fields.
    known = dict.fromkeys(own) | params | dict.fromkeys(ranges_of(env.default_params))
    check_overrides(name, known, overrides)
    defaults = {field.name: field.default for field in dataclasses.fields(env)} if own else {}
    refuse_unused(env, defaults | params, overrides)
    ours = {field: value for field, value in overrides.items() if field in own}
    theirs = {field: value for field, value in overrides.items() if field in params}
    if theirs:
        ours["default_params"] = dataclasses.replace(env.default_params, **theirs)
    if ours:
        env = dataclasses.replace(env, **ours)
    require_ranges(env)
    require_ranges(env.default_params)
    # Parameters that you give may be batched or traced.
    if any(hasattr(value, "dtype") for value in overrides.values()):
        return env
    try:
        hash(env)
    except TypeError as error:
        rule = "must be hashable, as a dataclass with frozen=True and without arrays is"
        raise InvalidArgumentError("env", rule, env) from error
    return env


def _values(thing: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name. Any other object has none."""
    fields = dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ()
    return {field.name: getattr(thing, field.name) for field in fields}


@checked
def register_env(name: str) -> Callable[[Kind], Kind]:
    """Register the decorated environment class as `name` in this process.

    A command line imports no file of yours, so it takes `package.module:Name` instead.

    Raises:
        InvalidArgumentError: one of Myriad's own environments has this name, or it has a colon.

    Example:
        >>> import dataclasses
        >>> from myriad.envs.cartpole import CartPole, CartPoleParams
        >>> @register_env("moon-cartpole")
        ... @dataclasses.dataclass(frozen=True)
        ... class MoonCartPole(CartPole):
        ...     default_params: CartPoleParams = CartPoleParams(gravity=1.6)
        >>> build_env("moon-cartpole").default_params.gravity
        1.6
    """
    return functools.partial(ENVIRONMENTS.add, name)
