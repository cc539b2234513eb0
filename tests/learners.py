"""What the tests of all learners know of each. Most of it follows from its fields."""

import dataclasses

from myriad.agents import AGENTS, Learner, list_agents
from myriad.spaces import Box, Discrete

ROLLOUT = {"rollout_steps": 8, "num_epochs": 2, "num_minibatches": 2, "hidden_sizes": (8,)}
REPLAY = {"batch_size": 16, "buffer_size": 96, "learning_starts": 24, "hidden_sizes": (8,)}
# What a learner needs besides.
BESIDES = {
    "sac": {"gradient_steps": 2, "target_entropy": -1.0},
    "td3": {"gradient_steps": 3},
}


def small(name):
    """Return options with which 8 environments learn in 4 updates."""
    fields = {field.name for field in dataclasses.fields(AGENTS.load(name))}
    sizes = {field: value for field, value in (ROLLOUT | REPLAY).items() if field in fields}
    return sizes | BESIDES.get(name, {})


SMALL = {name: small(name) for name in list_agents() if issubclass(AGENTS.load(name), Learner)}
# The only kind of action that it learns.
ACTIONS = {"pqn": Discrete, "dqn": Discrete, "sac": Box, "td3": Box}


def env_of(agent):
    """Return the name of an environment in which an agent can act."""
    return "pendulum" if ACTIONS.get(agent) is Box else "cartpole"
