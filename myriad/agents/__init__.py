"""Agents by name: `make_agent` builds one for an environment, `list_agents` names them all."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from myriad.agents.agent import Agent, Learner, without_schedules
from myriad.envs.environment import AnyEnvironment, Environment
from myriad.errors import InvalidArgumentError
from myriad.ranges import checked, ranges_of
from myriad.registry import Registry, check_overrides, refuse_unused

__all__ = ["Agent", "Learner", "list_agents", "make_agent", "register_agent"]

Kind = TypeVar("Kind", bound=type)

AGENTS = Registry(
    "agent",
    {
        "bangbang": "myriad.agents.control_laws:BangBang",
        "dqn": "myriad.agents.dqn:DQN",
        "pid": "myriad.agents.control_laws:PID",
        "ppo": "myriad.agents.ppo:PPO",
        "pqn": "myriad.agents.pqn:PQN",
        "random": "myriad.agents.random:RandomAgent",
        "sac": "myriad.agents.sac:SAC",
        "td3": "myriad.agents.td3:TD3",
    },
    member="create",
)

# The agents that can train a network with a memory, as they then are.
WITH_MEMORY = {
    "ppo": "myriad.agents.sequences:RecurrentPPO",
    "pqn": "myriad.agents.sequences:RecurrentPQN",
}

# Fields that `create` fills in from the environment. The trainer sets those marked as derived.
_BUILT = ("env", "action_space")


def list_agents() -> list[str]:
    """Return the names that `make_agent` knows, sorted.

    Example:
        >>> "ppo" in list_agents()
        True
    """
    return AGENTS.names()


@checked
def make_agent(name: str, env: AnyEnvironment, /, **overrides: Any) -> Any:
    """Build the agent called `name` for `env`: a fixed policy, a controller or a learner.

    Args:
        name: one of `list_agents()`.
        env: the environment it is to act in.
        **overrides: fields of the agent that differ from their defaults.

    Raises:
        UnknownNameError: there is no such agent or field. The message suggests the closest name.
        InvalidArgumentError: the agent can't act in this environment. The message says why.

    Example:
        >>> from myriad import make_env
        >>> make_agent("ppo", make_env("cartpole-control"), gamma=0.98).gamma
        0.98
    """
    kind = _class_of(name, overrides)
    ranges = ranges_of(kind)
    defaults = {f.name: None if f.name in ranges else f.default for f in options_of(kind)}
    check_overrides(name, defaults, overrides)
    agent = kind.create(env, **overrides)
    refuse_unused(agent, {f.name: f.default for f in options_of(kind)}, overrides)
    return agent


def _class_of(name: str, overrides: Mapping[str, Any]) -> Any:
    """Return the class of an agent. Its network may need another than the registered one."""
    name = AGENTS.resolve(name)
    networks = [overrides.get(field) for field in ("network", "critic_network")]
    if name in WITH_MEMORY and any(networks):
        from myriad.agents.networks import has_memory

        if any(has_memory(network) for network in networks if isinstance(network, str)):
            return AGENTS.load(WITH_MEMORY[name])
    return AGENTS.load(name)


def options_of(kind: Any) -> list[dataclasses.Field[Any]]:
    """Return the fields of an agent's class that you can set."""
    return [
        field
        for field in dataclasses.fields(kind)
        if field.name not in _BUILT and not field.metadata.get("derived")
    ]


@checked
def register_agent(name: str) -> Callable[[Kind], Kind]:
    """Register the decorated agent class as `name` in this process.

    A command line imports no file of yours, so it takes `package.module:Name` instead.

    Raises:
        InvalidArgumentError: one of Myriad's own agents has this name, or it has a colon.

    Example:
        >>> import dataclasses
        >>> from myriad.agents.ppo import PPO
        >>> @register_agent("short-sighted-ppo")
        ... @dataclasses.dataclass(frozen=True)
        ... class ShortSighted(PPO):
        ...     gamma: float = 0.9
        >>> "short-sighted-ppo" in list_agents()
        True
    """
    return functools.partial(AGENTS.add, name)


def default_num_envs(name: str) -> int:
    """Return how many environments the agent called `name` trains in by default.

    Raises:
        UnknownNameError: there is no such agent.
    """
    from myriad.agents.controller import ControllerLearner

    kind = AGENTS.load(name)
    return getattr(kind, "default_num_envs", ControllerLearner.default_num_envs)


def make_learner(
    name: str,
    env: Environment,
    num_envs: int | None = None,
    total_steps: int | None = None,
    /,
    **overrides: Any,
) -> Learner:
    """Build the agent called `name` for the trainer. A fixed policy becomes a learner of nothing.

    Args:
        name: one of `list_agents()`.
        env: the environment it is to act in.
        num_envs: environments that it will learn from; None for the agent's own number. Defaults of
            other fields depend on it.
        total_steps: steps of all environments together; None if unknown. Defaults of other fields
            depend on it as well.
        **overrides: fields of the agent that differ from its defaults. Every agent with gradient
            steps takes `batch_size`. An agent with minibatches makes them that large. A float may
            be a schedule, in whose place the learner gets a number.

    Raises the errors of `make_agent`.
    """
    from myriad.agents.controller import ControllerLearner, controller_of

    kind = _class_of(name, overrides)
    given = overrides = without_schedules(kind, overrides)
    fields = {field.name for field in dataclasses.fields(kind)}
    if num_envs is not None and "num_minibatches" in fields:
        overrides = {field: value for field, value in given.items() if field != "batch_size"}
    if num_envs is not None and hasattr(kind, "defaults_for"):
        overrides = kind.defaults_for(num_envs, total_steps, overrides) | overrides
    agent = make_agent(name, env, **overrides)
    if num_envs is not None and "batch_size" in given.keys() - overrides.keys():
        rows, batch_size = num_envs * agent.rollout_steps, given["batch_size"]
        if rows % batch_size:
            rule = f"must divide the batch of num_envs x rollout_steps = {rows}"
            raise InvalidArgumentError("batch_size", rule, batch_size)
        num_minibatches = rows // batch_size
        if given.get("num_minibatches", num_minibatches) != num_minibatches:
            says = "batch_size and num_minibatches say the same; give one of them."
            raise InvalidArgumentError(says)
        agent = dataclasses.replace(agent, num_minibatches=num_minibatches)
    return agent if isinstance(agent, Learner) else ControllerLearner(env, controller_of(agent))
