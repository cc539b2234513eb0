"""Massively parallel environments, agents and a trainer on JAX, whose speed is a tested feature.

The public names load on first use, so that `import myriad` is almost free.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from myriad.adapters import from_gymnax, to_gymnasium, to_gymnasium_vector, to_gymnax
    from myriad.agents import list_agents, make_agent
    from myriad.api import (
        create_config,
        evaluate,
        load_agent,
        make_train,
        resume,
        train_and_evaluate,
    )
    from myriad.envs import list_envs, make_env, register_env
    from myriad.envs.checker import check_env
    from myriad.errors import MyriadError
    from myriad.hardware import configure
    from myriad.random import make_key
    from myriad.rollout import Rollout

__version__ = "0.1.0"

__all__ = [
    "MyriadError",
    "Rollout",
    "check_env",
    "configure",
    "create_config",
    "evaluate",
    "from_gymnax",
    "list_agents",
    "list_envs",
    "load_agent",
    "make_agent",
    "make_env",
    "make_key",
    "make_train",
    "register_env",
    "resume",
    "to_gymnasium",
    "to_gymnasium_vector",
    "to_gymnax",
    "train_and_evaluate",
]

_HOMES = {
    "MyriadError": "myriad.errors",
    "Rollout": "myriad.rollout",
    "check_env": "myriad.envs.checker",
    "configure": "myriad.hardware",
    "create_config": "myriad.api",
    "evaluate": "myriad.api",
    "from_gymnax": "myriad.adapters",
    "list_agents": "myriad.agents",
    "list_envs": "myriad.envs",
    "load_agent": "myriad.api",
    "make_agent": "myriad.agents",
    "make_env": "myriad.envs",
    "make_key": "myriad.random",
    "make_train": "myriad.api",
    "register_env": "myriad.envs",
    "resume": "myriad.api",
    "to_gymnasium": "myriad.adapters",
    "to_gymnasium_vector": "myriad.adapters",
    "to_gymnax": "myriad.adapters",
    "train_and_evaluate": "myriad.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'myriad' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
