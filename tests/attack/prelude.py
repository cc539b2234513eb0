"""The names in the attack's calls: `from tests.attack.prelude import *` runs one again."""

import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import myriad
from myriad.api import evaluate_run
from myriad.autotune import autotune, suggest_config, suggest_scan_chunk_size
from myriad.rendering.video import record
from myriad.training.config import TrainingConfig

CONFIG = myriad.create_config(
    "cartpole", "ppo", 2, 8, rollout_steps=4, eval_rollouts=2, eval_max_steps=8
)
ENV = myriad.make_env("cartpole")
AGENT = myriad.make_agent("random", ENV)
ROLLOUT = myriad.Rollout(ENV, AGENT, 2, 4)
KEY = myriad.make_key(0)
STATE = CONFIG.resolve().learner.init(KEY, 2)
# A finished run, which the worker makes in its folder.
RUN = Path("run")
# Functions and methods that the documentation shows beside those in `myriad`.
DOCUMENTED = [
    "evaluate_run",
    "autotune",
    "suggest_config",
    "suggest_scan_chunk_size",
    "record",
    "ROLLOUT.init",
    "ROLLOUT.run",
    "ROLLOUT.run_chunk",
    "ROLLOUT.record_chunk",
    "ROLLOUT.summary",
    "myriad.make_train(CONFIG)",
    "TrainingConfig.from_toml",
    "TrainingConfig.from_json",
]
__all__ = ["AGENT", "CONFIG", "DOCUMENTED", "ENV", "KEY", "ROLLOUT", "RUN", "STATE", "Path"]
__all__ += ["TrainingConfig", "autotune", "evaluate_run", "jax", "jnp", "math", "myriad", "np"]
__all__ += ["record", "suggest_config", "suggest_scan_chunk_size"]
