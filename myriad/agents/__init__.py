"""Agents by name: `make_agent` builds one for an environment, `list_agents` names them all."""

import dataclasses
from typing import Any

from myriad.agents.agent import Agent, Learner
from myriad.envs import Environment
from myriad.errors import UnknownNameError
from myriad.registry import Registry

__all__ = ["Agent", "Learner", "list_agents", "make_agent", "make_learner"]

AGENTS = Registry(
    "agent",
    {
        "bangbang": "myriad.agents.bangbang:BangBang",
        "dqn": "myriad.agents.dqn:DQN",
        "pid": "myriad.agents.pid:PID",
        "ppo": "myriad.agents.ppo:PPO",
        "pqn": "myriad.agents.pqn:PQN",
        "random": "myriad.agents.random:RandomAgent",
    },
)


def list_agents() -> list[str]:
    """Return the names that `make_agent` knows, sorted."""
    return AGENTS.names()


def make_agent(name: str, env: Environment, **overrides: Any) -> Any:
    """Build the agent called `name` for `env`: a fixed policy, a controller or a learner.

    Args:
        name: one of `list_agents()`.
        env: the environment it is to act in.
        **overrides: fields of the agent that differ from their defaults.

    Raises:
        UnknownNameError: no such agent or field; the message holds the closest name.
        InvalidArgumentError: the agent can't act in this environment; the message says why.
    """
    kind = AGENTS.load(name)
    known = {field.name for field in dataclasses.fields(kind)} - {"env", "actuator", "action_space"}
    for field in overrides:
        if field not in known:
            raise UnknownNameError(f"field of {name}", field, known)
    return kind.create(env, **overrides)


def make_learner(name: str, env: Environment, **overrides: Any) -> Learner:
    """Build what the trainer trains: the agent called `name`, or a fixed policy in a learner's place.

    Raises what `make_agent` does.
    """
    from myriad.agents.controller import ControllerLearner

    agent = make_agent(name, env, **overrides)
    return agent if hasattr(agent, "update") else ControllerLearner(env, agent)
