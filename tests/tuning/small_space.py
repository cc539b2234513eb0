"""Campaigns of small trainings. They have one shape, so that the tests compile one program."""

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from examples.my_environment import HillCar
from myriad.tuning import TuneSettings

SPACE = """
[fixed]
num_envs = 4
rollout_steps = 16
"agent.num_minibatches" = 2
"agent.hidden_sizes" = [8]
[parameters]
"agent.learning_rate" = { low = 1e-5, high = 1e-2, log = true }
"agent.num_epochs" = { low = 1, high = 3 }
"agent.gamma" = { low = 0.9, high = 0.999 }
"""


def settings(folder: Path, text: str = SPACE, **fields: Any) -> TuneSettings:
    """Return a campaign of five evaluations for each trial, with its space in a folder."""
    file = folder / "space.toml"
    file.write_text(text)
    given = {"num_steps": 1_280, "eval_interval": 256, "num_seeds": 1, "study_name": "s"}
    return TuneSettings(env="cartpole-control", agent="ppo", space=file, **{**given, **fields})


@dataclasses.dataclass(frozen=True)
class Unbounded(HillCar):
    """A car whose rewards are infinite from step 100 on, which an evaluation comes to first."""

    def step(self, key, state, action, params):
        obs, state, reward, *flags = super().step(key, state, action, params)
        return obs, state, jnp.where(state.time < 100, reward, jnp.inf), *flags
