"""Compiled programs to measure: a training, its gradient steps, and whole episodes of any agent.

They compile ahead of time and then run as often as you call them. A rollout needs nothing from
here: `Rollout.compile` returns its chunk. `myriad.xla.describe` says what the compiler knows of a
program, and `myriad.timing` times it. The benchmarks of this repository use these names.
"""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from myriad.agents.controller import ControllerLearner, controller_of
from myriad.files import user_path
from myriad.timing import block_until_ready
from myriad.training.compiled import CompiledTraining, Halves
from myriad.training.config import TrainingConfig
from myriad.training.evaluation import Evaluation, key_alone
from myriad.training.loop import LearningLoop
from myriad.training.results import TrainingResults
from myriad.training.run_folder import Checkpoints, RunFolder
from myriad.training.trainer import Trainer
from myriad.xla import ProgramReport, describe

__all__ = ["LearningProgram", "TrainingProgram", "episode_returns", "functions"]


class TrainingProgram:
    """The programs of a training, as `train_and_evaluate` compiles and calls them.

    Args:
        config: the training. With `compile_mode="jit"` its programs compile at their first call.
        donate: give the memory of the state to the next state, as a training does.

    Attributes:
        config: the training.
        updates: the compiled updates.
        evaluation: the compiled evaluation.
        compile_s: seconds of tracing and compiling.
        num_devices: devices that share the training.
        num_updates: updates in the whole training.
        steps_per_update: steps of all environments together in an update.
        scan_chunk_size: steps of every environment in a compiled call, `updates_per_call` updates.
        state: the state, once `start` has been called.

    Example:
        >>> from myriad import create_config
        >>> program = TrainingProgram(create_config("cartpole-control", "ppo"))
        >>> program.warm_up()
        >>> program.run_updates(1)
    """

    state: Any = None

    def __init__(self, config: TrainingConfig, *, donate: bool = True):
        self._training = training = CompiledTraining(config)
        training.compile()
        if not donate:
            _, training.programs["run"] = training.loop.jitted(donate=False)
        self.config = training.config
        self.updates = training.programs["run"]
        self.evaluation = training.programs["evaluate"]
        self.compile_s = training.compile_s
        self.num_devices = training.loop.num_devices
        self.num_updates = training.num_updates
        self.steps_per_update = training.steps_per_update
        self.scan_chunk_size = training.config.scan_chunk_size
        self.updates_per_call = training.config.updates_per_chunk

    @functools.cached_property
    def reports(self) -> tuple[ProgramReport, ...]:
        """What the compiler says of the updates, of the reset and of the evaluation."""
        programs = self._training.programs
        return tuple(describe(programs[name]) for name in ("run", "init", "evaluate"))

    def start(self, seed: int | None = None) -> None:
        """Make the state before the first update, by default from the seed of the configuration."""
        self.state = self._training.first_state(None if seed is None else [seed])

    def run_updates(self, num_updates: int, in_one_call: int | None = None) -> None:
        """Train, and fetch the reports.

        Args:
            num_updates: how many updates.
            in_one_call: updates in a compiled call, by default those of `scan_chunk_size` steps.
                The device works on a call while the host reads the report of the one before.
        """
        training = self._training
        training.chunk = in_one_call or training.config.updates_per_chunk
        self.state, _ = training.run_window(self.state, 0, num_updates, lambda report, done: None)

    def run(self, num_steps: int) -> None:
        """Run whole updates of at least `num_steps` steps of every environment."""
        num_envs = self._training.config.num_envs
        self.run_updates(-(-num_steps * num_envs // self.steps_per_update))

    def warm_up(self) -> None:
        """Start, and train until every further update takes gradient steps."""
        self.start()
        num_envs = self._training.config.num_envs
        first = max(1, self._training.loop.learner.first_learning_update(num_envs))
        self.run_updates(first, in_one_call=first)

    def evaluate(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Play greedy episodes; return their returns, whether they ended, and their steps."""
        state = self._training.loop.of_first_device(self.state)
        results = self.evaluation(*self._training.evaluation_args(state))
        return block_until_ready(results[:3])

    def train(self, run_folder: str | Path) -> TrainingResults:
        """Do what `train_and_evaluate` does, but compile nothing."""
        folder = RunFolder.create(user_path(run_folder), "", {})
        self._training.compile = lambda *_, **__: None  # It is compiled.
        return Trainer(self._training, folder, quiet=True).run()

    def checkpoints(self, folder: str | Path) -> tuple[Callable[[], None], Callable[[], Any]]:
        """Return a function that saves the state to `folder`, and one that reads it again."""
        checkpoints = Checkpoints(user_path(folder))
        return lambda: checkpoints.save(1, self.state), lambda: checkpoints.restore(1, self.state)


class LearningProgram:
    """The gradient steps of an update, `compiled` apart from the steps of its environments.

    Raises:
        InvalidArgumentError: the agent's updates can't be taken apart.
    """

    def __init__(self, config: TrainingConfig):
        halves = Halves(config)
        self._state, self._experience = halves.arguments()
        self.compiled = halves.learn.lower(self._state, self._experience).compile()

    def run(self) -> None:
        """Learn once more from the same experience, and wait for the device."""
        self._state = block_until_ready(self.compiled(self._state, self._experience))


def functions(config: TrainingConfig, **fields: Any) -> LearningLoop:
    """Return the pure functions of a training on one device, to jit yourself.

    They are `init(key)`, `collect(state)`, `learn(state, experience)` and
    `run(state, num_updates, begin)`. `learner` is the agent, with the given fields changed, without
    any checks.
    """
    learner: Any = config.learner.scheduled(config.num_updates)
    schedules = {name: row for name, row in config.schedules.items() if name not in fields}
    learner = dataclasses.replace(learner, **fields)
    return LearningLoop(config.environment, learner, config.num_envs, schedules=schedules)


def episode_returns(
    env: Any, agent: Any, num_episodes: int, seed: int = 0, *, max_steps: int = 10_000
) -> jax.Array:
    """Return the returns of whole episodes of any agent that `Rollout` takes, `[num_episodes]`.

    The episodes are those of `evaluate` for the same seed, cut off after `max_steps` steps. You can
    call it in a program of your own, such as one that is mapped over the numbers of a controller.
    """
    learner = ControllerLearner(env, controller_of(agent))
    evaluation = Evaluation(env, learner, num_episodes, max_steps=max_steps)
    return jax.jit(evaluation.returns)((), key_alone(seed), evaluation.env_params)[0]
