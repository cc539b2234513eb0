"""Massively parallel environments, agents and a trainer on JAX, whose speed is a tested feature.

The public names load on first use, so that `import myriad` is almost free.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from myriad.adapters import (
        from_gymnax,
        make_env,
        to_gymnasium,
        to_gymnasium_vector,
        to_gymnax,
        to_sb3,
    )
    from myriad.agents import list_agents, make_agent, register_agent
    from myriad.api import (
        create_config,
        evaluate,
        load_agent,
        make_train,
        resume,
        train_and_evaluate,
    )
    from myriad.engine.machine import configure
    from myriad.engine.random import make_key
    from myriad.envs import list_envs, register_env
    from myriad.envs.checker import check_env
    from myriad.errors import MyriadError
    from myriad.rollout import Rollout
    from myriad.training.agent_checker import check_agent
    from myriad.xla import jit

__version__ = "0.1.0"

__all__ = [
    "MyriadError",
    "Rollout",
    "check_agent",
    "check_env",
    "configure",
    "create_config",
    "evaluate",
    "from_gymnax",
    "jit",
    "list_agents",
    "list_envs",
    "load_agent",
    "make_agent",
    "make_env",
    "make_key",
    "make_train",
    "register_agent",
    "register_env",
    "resume",
    "to_gymnasium",
    "to_gymnasium_vector",
    "to_gymnax",
    "to_sb3",
    "train_and_evaluate",
]

# The module of each name.
_HOMES = {
    name: module
    for module, names in {
        "adapters": "from_gymnax make_env to_gymnasium to_gymnasium_vector to_gymnax to_sb3",
        "agents": "list_agents make_agent register_agent",
        "api": "create_config evaluate load_agent make_train resume train_and_evaluate",
        "envs": "list_envs register_env",
        "envs.checker": "check_env",
        "errors": "MyriadError",
        "engine.machine": "configure",
        "engine.random": "make_key",
        "rollout": "Rollout",
        "training.agent_checker": "check_agent",
        "xla": "jit",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'myriad' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"myriad.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
