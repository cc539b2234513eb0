"""What a researcher calls: `create_config`, `train_and_evaluate`, `evaluate`, `make_train`."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.agents.controller import ControllerLearner, TrainedPolicy
from myriad.autotune import autotune
from myriad.errors import InvalidArgumentError
from myriad.random import fast_key, make_key
from myriad.training.checkpoint import Checkpoints
from myriad.training.config import TrainingConfig, make_config
from myriad.training.evaluation import Evaluation
from myriad.training.loop import LearningLoop
from myriad.training.programs import with_schedule
from myriad.training.run_folder import RunFolder
from myriad.training.trackers import require_trackers
from myriad.training.trainer import Trainer, TrainingResults, environment_record

__all__ = ["create_config", "evaluate", "load_agent", "make_train", "resume", "train_and_evaluate"]


def create_config(
    env: str,
    agent: str,
    num_envs: int | None = None,
    steps_per_env: int | None = None,
    scan_chunk_size: int | None = None,
    *,
    auto_tune: bool = False,
    **overrides: Any,
) -> TrainingConfig:
    """Describe a training; see `TrainingConfig` for the fields.

    Args:
        env: the environment's name.
        agent: the agent's name.
        num_envs: environments in parallel.
        steps_per_env: steps of every environment in the whole training.
        scan_chunk_size: steps of every environment in one compiled call.
        auto_tune: have the autotuner choose `scan_chunk_size` here and now, for this machine; it
            says what it does.
        **overrides: other fields, and hyperparameters by dotted name such as
            `"agent.learning_rate"`, `"env.gravity"`.

    Raises:
        UnknownNameError: no such environment, agent or field; the message holds the closest.
        InvalidArgumentError: a value that can't be used, or an agent that can't act in the
            environment; both `auto_tune` and `scan_chunk_size`; a training that does not fit into
            memory.

    Example:
        >>> config = create_config("cartpole-control", "ppo", **{"agent.learning_rate": 1e-3})
        >>> config.agent_options
        {'learning_rate': 0.001}
    """
    config = make_config(env, agent, num_envs, steps_per_env, scan_chunk_size, **overrides)
    if not auto_tune:
        return config
    if scan_chunk_size is not None:
        raise InvalidArgumentError(
            f"auto_tune chooses scan_chunk_size, so it can't be given as well, but got {scan_chunk_size}."
        )
    return config.model_copy(update={"scan_chunk_size": autotune(config).scan_chunk_size})


def train_and_evaluate(
    config: TrainingConfig, run_folder: str | Path | None = None, *, quiet: bool = False
) -> TrainingResults:
    """Train as `config` says, evaluating on the way.

    Args:
        config: from `create_config`.
        run_folder: where configuration, metrics and checkpoints go; by default a new folder under
            `runs/`.
        quiet: show no progress, also on a terminal.

    Raises:
        InvalidArgumentError: the folder holds a run already, is in use, or can't be written; or no
            such tracker.
        NotInstalledError: the library of a tracker in `log_to` is absent.
        DivergedError: a NaN came up.
        KeyboardInterrupt: it was interrupted; `resume` goes on from where it was.
    """
    require_trackers(config.log_to)
    folder = RunFolder.create(
        Path(run_folder or _new_name(config)), config.resolve().to_toml(), environment_record()
    )
    with folder.held():
        return Trainer(config, folder, quiet=quiet).run()


def resume(run_folder: str | Path, *, quiet: bool = False) -> TrainingResults:
    """Go on with the run in `run_folder`, from its newest checkpoint or from the start, to the same end bit for bit.

    Raises:
        InvalidArgumentError: the folder holds no run, or one of another version's programs, or is
            in use.
    """
    folder = RunFolder(Path(run_folder))
    config = TrainingConfig.from_toml(folder.config_toml())
    with folder.held():
        return Trainer(config, folder, quiet=quiet).run()


def evaluate(
    config: TrainingConfig, agent_state: Any, num_episodes: int = 128, seed: int = 0
) -> jax.Array:
    """Return the returns of whole greedy episodes of a trained agent, float32 `[num_episodes]`.

    Raises:
        InvalidArgumentError: `num_episodes` is less than 1, or `seed` does not fit in 64 bits.
    """
    if num_episodes < 1:
        raise InvalidArgumentError(f"num_episodes must be at least 1, but got {num_episodes}.")
    env = config.make_env()
    evaluation = Evaluation(
        env, config.make_learner(env), num_episodes, max_steps=config.eval_max_steps
    )
    return jax.jit(evaluation.returns)(agent_state, make_key(seed))[0]


def make_train(config: TrainingConfig) -> Callable[[jax.Array], dict[str, Any]]:
    """Return `train(key)`, the whole training as one pure function: `jax.vmap` it over keys for many seeds at once.

    `train` returns `agent_state`, and per evaluation `steps` and `eval_return`, `[E,
    eval_rollouts]`.
    """
    config = config.resolve()
    env = config.make_env()
    learner = config.make_learner(env)
    num_envs, steps, unit = (
        config.num_envs or 1,
        config.steps_per_env or 1,
        learner.steps_per_update,
    )
    num_updates, eval_every = steps // unit, (config.eval_frequency or steps) // unit
    learner = with_schedule(learner, num_updates)
    loop = LearningLoop(env, learner, num_envs)
    evaluation = Evaluation(env, learner, config.eval_rollouts, max_steps=config.eval_max_steps)
    ends = [*range(eval_every, num_updates, eval_every), num_updates]
    # Known beforehand, and so the same for every seed of a vmap: a loop whose end depends on the
    # seed would run masked.
    trips = jnp.asarray(np.diff(ends, prepend=0), jnp.int32)

    def train(key: jax.Array) -> dict[str, Any]:
        def window(state: Any, window: tuple[jax.Array, jax.Array]) -> tuple[Any, Any]:
            end, trips = window
            state, report = loop.run(state, trips, jnp.ones((), bool))
            returns, _ = evaluation.returns(state.agent, jax.random.fold_in(key, end))
            return state, (end * num_envs * unit, returns, report.metric_sums)

        key = fast_key(key)
        state, (taken, returns, metrics) = jax.lax.scan(
            window, loop.init(key), (jnp.asarray(ends), trips)
        )
        return {
            "agent_state": state.agent,
            "steps": taken,
            "eval_return": returns,
            "metric_sums": metrics,
        }

    return train


def evaluate_run(run_folder: str | Path, num_episodes: int = 128, seed: int = 0) -> jax.Array:
    """Return what `evaluate` does, of the agent that the newest checkpoint of a run holds."""
    config, _, agent = load_agent(run_folder)
    return evaluate(
        config, agent.state if isinstance(agent, TrainedPolicy) else None, num_episodes, seed
    )


def load_agent(run_folder: str | Path) -> tuple[TrainingConfig, Any, Any]:
    """Return the configuration of a run, its environment, and its agent as the newest checkpoint holds it.

    The agent is what `Rollout` takes: a fixed greedy policy, or the controller.

    Raises:
        InvalidArgumentError: the folder holds no run, or no checkpoint yet.
    """
    folder = RunFolder(Path(run_folder))
    config = TrainingConfig.from_toml(folder.config_toml())
    env = config.make_env()
    learner = config.make_learner(env)
    if isinstance(learner, ControllerLearner):
        return config, env, learner.controller
    checkpoints = Checkpoints(folder.checkpoints)
    newest = checkpoints.latest()
    if newest is None:
        raise InvalidArgumentError(
            f"{folder.path} holds no checkpoint yet: resume the run to its end first."
        )
    loop = LearningLoop(env, learner, config.num_envs or 1)
    state = checkpoints.restore(newest, jax.eval_shape(loop.init, make_key(config.seed)))
    return config, env, TrainedPolicy(learner, state.agent)


def _new_name(config: TrainingConfig) -> Path:
    """Name a folder that isn't there yet."""
    stem = (
        f"{config.env}-{config.agent}-seed{config.seed}-{time.strftime('%Y%m%d-%H%M%S')}".replace(
            ":", "-"
        )
    )
    folder, number = Path("runs") / stem, 1
    while folder.exists():
        number += 1
        folder = Path("runs") / f"{stem}-{number}"
    return folder
