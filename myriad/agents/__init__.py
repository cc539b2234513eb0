"""Agents by name: `make_agent` builds one for an environment, `list_agents` names them all."""

from typing import Any

from myriad.agents.agent import Agent
from myriad.envs import Environment
from myriad.registry import Registry

__all__ = ["Agent", "list_agents", "make_agent"]

AGENTS = Registry("agent", {"random": "myriad.agents.random:RandomAgent"})


def list_agents() -> list[str]:
    """Return the names that `make_agent` knows, sorted."""
    return AGENTS.names()


def make_agent(name: str, env: Environment, **overrides: Any) -> Agent:
    """Build the agent called `name` for `env`.

    Raises:
        UnknownNameError: no such agent; the message holds the closest name.
    """
    return AGENTS.load(name).create(env, **overrides)
