"""Environments by name: `make_env` builds one, and `list_envs` lists the names."""

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_origin

from myriad.envs.environment import Environment, require_32_bits
from myriad.ranges import checked, ranges_of, require, require_ranges
from myriad.registry import Registry, check_overrides, refuse_unused

__all__ = ["Environment", "list_envs", "make_env", "register_env"]

Kind = TypeVar("Kind", bound=type)

ENVIRONMENTS = Registry(
    "environment",
    {
        "bucket-brigade": "myriad.envs.bucket_brigade:BucketBrigade",
        "cartpole-control": "myriad.envs.cartpole:CartPole",
        "cartpole-sysid": "myriad.envs.cartpole_sysid:CartPoleSysID",
        "gene-circuit-control": "myriad.envs.gene_circuit:GeneCircuit",
        "gene-circuit-sysid": "myriad.envs.gene_circuit_sysid:GeneCircuitSysID",
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


# The prefixes of environments of other libraries. Such a name never stands for a module of yours.
ADAPTERS = ("gymnax:",)


def list_envs() -> list[str]:
    """Return the names that `make_env` knows, sorted, without aliases."""
    return ENVIRONMENTS.names()


@checked
def make_env(name: str, **overrides: Any) -> Environment:
    """Build the environment called `name`.

    Args:
        name: one of `list_envs()`, an alias such as `CartPole-v1`, `package.module:Name` for a
            class of your own, or `gymnax:Name` for one of gymnax's.
        **overrides: fields of the environment or of its parameters that differ from the defaults.

    Raises:
        UnknownNameError: there is no such environment or field.
        InvalidArgumentError: `package.module:Name` can't be imported or is not an environment, or
            `jax_enable_x64` is on.

    Example:
        >>> make_env("cartpole", gravity=3.7).default_params.gravity
        3.7
    """
    require_32_bits()
    if name.startswith(ADAPTERS):
        adapters = importlib.import_module("myriad.adapters")
        return adapters.from_gymnax(name.removeprefix("gymnax:"), **overrides)
    kind: Any = ENVIRONMENTS.load(name)
    for field in dataclasses.fields(kind):
        if field.name in overrides and (field.type is str or get_origin(field.type) is Literal):
            require(field.name, overrides[field.name], str)
    config = {field.name for field in dataclasses.fields(kind)} - {"default_params"}
    # Set the configuration first, since the default parameters may depend on it, as those of a
    # scenario do.
    env = kind(**{field: value for field, value in overrides.items() if field in config})
    params = {
        field.name: getattr(env.default_params, field.name)
        for field in dataclasses.fields(env.default_params)
    }
    # The class itself has already checked the fields of the configuration.
    known = dict.fromkeys(config) | params | dict.fromkeys(ranges_of(env.default_params))
    check_overrides(ENVIRONMENTS.resolve(name), known, overrides)
    defaults = {field.name: field.default for field in dataclasses.fields(env)}
    refuse_unused(env, defaults | params, overrides)
    chosen = {field: value for field, value in overrides.items() if field in params}
    env = dataclasses.replace(env, default_params=dataclasses.replace(env.default_params, **chosen))
    require_ranges(env)
    require_ranges(env.default_params)
    return env


@checked
def register_env(name: str) -> Callable[[Kind], Kind]:
    """Register the decorated environment class as `name`, for `make_env` and every command.

    Raises:
        InvalidArgumentError: one of Myriad's own environments has this name, or it has a colon.

    Example:
        >>> import dataclasses
        >>> from myriad.envs.cartpole import CartPole, CartPoleParams
        >>> @register_env("moon-cartpole")
        ... @dataclasses.dataclass(frozen=True)
        ... class MoonCartPole(CartPole):
        ...     default_params: CartPoleParams = CartPoleParams(gravity=1.6)
        >>> make_env("moon-cartpole").default_params.gravity
        1.6
    """

    def register(kind: Kind) -> Kind:
        ENVIRONMENTS.add(name, kind)
        return kind

    return register
