"""Environments by name: `make_env` builds one, `list_envs` names them all."""

import dataclasses
from typing import Any

from myriad.envs.environment import Environment
from myriad.errors import UnknownNameError
from myriad.registry import Registry

__all__ = ["Environment", "list_envs", "make_env"]

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
)


def list_envs() -> list[str]:
    """Return the names that `make_env` knows, sorted, aliases left out."""
    return ENVIRONMENTS.names()


def make_env(name: str, **overrides: Any) -> Environment:
    """Build the environment called `name`.

    Args:
        name: one of `list_envs()`, or an alias such as `CartPole-v1`.
        **overrides: fields of the environment or of its parameters that differ from the defaults.

    Raises:
        UnknownNameError: no such environment, or no such field.

    Example:
        >>> make_env("cartpole", gravity=3.7).default_params.gravity
        3.7
    """
    kind = ENVIRONMENTS.load(name)
    config = {field.name for field in dataclasses.fields(kind)} - {"default_params"}
    # The configuration first: the default parameters may follow from it, as a scenario's do.
    env = kind(**{field: value for field, value in overrides.items() if field in config})
    params = {field.name for field in dataclasses.fields(env.default_params)}
    for field in overrides:
        if field not in params | config:
            raise UnknownNameError(f"field of {ENVIRONMENTS.resolve(name)}", field, params | config)
    chosen = {field: value for field, value in overrides.items() if field in params}
    return dataclasses.replace(env, default_params=dataclasses.replace(env.default_params, **chosen))
