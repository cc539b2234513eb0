"""What the tests of all learners know of each. Most of it follows from its fields."""

import dataclasses
import re
from pathlib import Path

import jax
import numpy as np

from myriad import make_key
from myriad.agents import AGENTS, Learner, list_agents
from myriad.spaces import Box, Discrete, MultiDiscrete
from myriad.training.loop import LearningLoop

ROLLOUT = {"rollout_steps": 8, "num_epochs": 2, "num_minibatches": 2, "hidden_sizes": (8,)}
REPLAY = {"batch_size": 16, "buffer_size": 96, "learning_starts": 24, "hidden_sizes": (8,)}
# What a learner needs besides.
BESIDES = {
    "sac": {"gradient_steps": 2, "target_entropy": -1.0},
    "td3": {"gradient_steps": 3},
}
# A seed, the updates after which it has learned its task, and the return that it then reaches.
REACHED = {
    "ppo": (1_000, 40, 475),
    "pqn": (1_000, 60, 300),
    "dqn": (1_000, 7_500, 300),
    "sac": (0, 2_000, -200),
    "td3": (0, 2_000, -250),
}


def small(name):
    """Return options with which 8 environments learn in 4 updates."""
    fields = {field.name for field in dataclasses.fields(AGENTS.load(name))}
    sizes = {field: value for field, value in (ROLLOUT | REPLAY).items() if field in fields}
    return sizes | BESIDES.get(name, {})


SMALL = {name: small(name) for name in list_agents() if issubclass(AGENTS.load(name), Learner)}
# Laws whose programs compile for long leave out learners that share the code of another.
DISTINCT = [name for name in SMALL if name not in ("dqn", "td3")]
# The only kinds of actions that it learns, as the reference says in the last cell of its row.
_PAGE = Path(__file__).parents[1] / "docs" / "reference" / "training.md"
_ROW = re.compile(r"^\| `(\w+)` \|.*\|(.*`.*)\|$", re.MULTILINE)
_KINDS = {"`Box`": Box, "`Discrete`": Discrete, "`MultiDiscrete`": MultiDiscrete}
ACTIONS = {
    agent: tuple(kind for name, kind in _KINDS.items() if name in cell)
    for agent, cell in _ROW.findall(_PAGE.read_text(encoding="utf-8"))
    if agent in SMALL
}


def env_of(agent):
    """Return the name of an environment in which an agent can act."""
    return "pendulum" if ACTIONS.get(agent) == (Box,) else "cartpole"


def small_without_layers(agent):
    """Return the options for a network whose layers have defaults of their own."""
    return {name: value for name, value in SMALL[agent].items() if name != "hidden_sizes"}


def trained(learner, num_envs, num_updates):
    """Return the state and the last report after some updates from seed 0."""
    loop = LearningLoop(learner.env, learner, num_envs)
    state = jax.jit(loop.init)(make_key(0))
    return jax.jit(loop.run)(state, np.int32(num_updates), np.bool_(1))
