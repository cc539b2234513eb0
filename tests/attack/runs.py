"""Small trainings for the attack: one is made once, and each fault gets a copy of its folder."""

import contextlib
import io
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from myriad import create_config, evaluate, load_agent, resume, train_and_evaluate
from myriad.errors import ShortTrainingWarning
from myriad.training.config import TrainingConfig

SEEDS_OF_EPISODES = 3


def config() -> TrainingConfig:
    """Describe a training of eight updates, with an evaluation and a checkpoint at every second."""
    return create_config(
        "cartpole-control",
        "ppo",
        2,
        64,
        rollout_steps=8,
        eval_frequency=16,
        eval_rollouts=2,
        eval_max_steps=50,
        checkpoint_every_s=0.0,
        **{"agent.hidden_sizes": (8,), "agent.num_epochs": 1, "agent.num_minibatches": 2},
    )


def trained(folder: Path) -> Path:
    """Train in a new folder, and return it."""
    with short_trainings_expected():
        train_and_evaluate(config(), folder, quiet=True)
    return folder


def interrupted(finished: Path, folder: Path) -> Path:
    """Copy a finished run as a kill leaves it: rows that its checkpoints don't hold yet."""
    shutil.copytree(finished, folder)
    shutil.rmtree(max(checkpoints(folder), key=lambda path: int(path.name)))
    return folder


def checkpoints(folder: Path) -> list[Path]:
    """Return the folders of a run's checkpoints, the oldest first."""
    found = [path for path in (folder / "checkpoints").iterdir() if path.name.isdigit()]
    return sorted(found, key=lambda path: int(path.name))


def resumed(folder: Path) -> tuple[Any, ...]:
    """Resume a run, and return all that came of it: the agent, its rows, and its file of rows."""
    with short_trainings_expected():
        results = resume(folder, quiet=True)
    return (
        *_bits(results.agent_state),
        str(list(results.training)),
        str(list(results.evaluations)),
        (folder / "metrics.jsonl").read_text(encoding="utf-8"),
    )


def loaded(folder: Path) -> tuple[Any, ...]:
    """Load the agent of a run, and return its bits and its configuration."""
    described, _, agent = load_agent(folder)
    return (described, *_bits(agent.state))


def evaluated(folder: Path) -> list[float]:
    """Load the agent of a run, and return what it reaches in some episodes."""
    described, _, agent = load_agent(folder)
    return np.asarray(evaluate(described, agent.state, SEEDS_OF_EPISODES)).tolist()


@contextlib.contextmanager
def short_trainings_expected() -> Iterator[None]:
    """Hear nothing of how short a training is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortTrainingWarning)
        yield


@contextlib.contextmanager
def silent() -> Iterator[io.StringIO]:
    """Catch what is printed."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        yield said


def _bits(state: Any) -> tuple[bytes, ...]:
    return tuple(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state))
