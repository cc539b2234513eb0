"""Measure the trainer's work on the host: windows, evaluations, checkpoints.

This is only an asv suite. training.py measures the updates themselves.
"""

import importlib.util
import itertools
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.harness import package
from benchmarks.harness.skipping import skip_unless_runnable
from benchmarks.harness.workloads import load

_WINDOWS = 64


class HostLoop:
    """Seconds of a training with many windows and hardly anything to compute in each."""

    version = "1"
    timeout = 120
    trainer: Any = None
    folders: ClassVar = itertools.count()

    def setup(self) -> None:
        """Compile one update to a window, once: asv calls this before every sample."""
        if self.trainer is not None:
            return
        skip_unless_runnable(load().trainings["training"]["cartpole-dqn"])
        create_config = package.find("myriad:create_config")
        CompiledTraining = package.find("myriad.training.programs:CompiledTraining")
        self.RunFolder = package.find("myriad.training.logging.run_folder:RunFolder")
        self.trainer = package.find("myriad.training.trainer:Trainer")
        has_tensorboard = importlib.util.find_spec("tensorboardX") is not None
        self.config = create_config(
            "cartpole-control",
            "dqn",
            num_envs=1,
            steps_per_env=_WINDOWS,
            scan_chunk_size=1,
            eval_frequency=1,
            eval_rollouts=1,
            eval_max_steps=1,
            batch_size=1,
            buffer_size=_WINDOWS,
            log_to=["tensorboard"] if has_tensorboard else [],
        ).resolve()
        self.programs = CompiledTraining(self.config)
        self.programs.compile()
        self.programs.compile = lambda *_, **__: None  # it is compiled
        self.time_windows()

    def time_windows(self) -> None:
        """Train from the first window to the last: rows, a tracker, one checkpoint at the end."""
        folder = self.RunFolder.create(Path(f"run-{next(self.folders)}"), "", {})
        trainer = self.trainer(self.config, folder, quiet=True)
        trainer.programs = self.programs
        trainer.run()


class Checkpoint:
    """Seconds to save and to restore a training's state, including a full replay buffer."""

    params: ClassVar = ["cartpole-dqn"]
    param_names: ClassVar = ["workload"]
    version = "1"
    timeout = 120
    prepared = ""

    def setup(self, workload: str) -> None:
        """Save a first checkpoint, once: asv calls this before every sample."""
        if self.prepared == workload:
            return
        import numpy as np

        Checkpoints = package.find("myriad.training.checkpoint:Checkpoints")
        init, _ = _training(workload).loop.jitted()
        self.state = init(np.int64(0))
        self.checkpoints = Checkpoints(Path("checkpoints"))
        self.time_save(workload)
        self.time_restore(workload)
        self.prepared = workload

    def time_save(self, workload: str) -> None:
        """Save; the checkpoint is on the disk."""
        self.checkpoints.save(1, self.state)

    def time_restore(self, workload: str) -> None:
        """Check and read what was saved."""
        self.checkpoints.restore(1, self.state)


class Evaluation:
    """Seconds of one evaluation: whole episodes of an untrained policy."""

    params: ClassVar = ["cartpole-ppo"]
    param_names: ClassVar = ["workload"]
    version = "1"
    timeout = 300
    timed_is_program = True  # for the gate: equal programs need no timing
    prepared = ""

    def setup(self, workload: str) -> None:
        """Compile and warm up, once: asv calls this before every sample."""
        if self.prepared == workload:
            return
        from myriad import timing

        self.training = _training(workload)
        self.training.compile()
        self.block_until_ready = timing.block_until_ready
        self.state = self.training.first_state()
        self.time_evaluate(workload)
        self.prepared = workload

    def time_evaluate(self, workload: str) -> None:
        """Run every episode to its end."""
        state = self.state
        self.block_until_ready(self.training.evaluate(state.agent, state.key, state.num_updates))

    def program(self, workload: str) -> Any:
        """Return the compiled evaluation, for the gate."""
        return self.training.evaluate


def _training(workload: str) -> Any:
    """Return the programs of a declared training, before compilation.

    Raises:
        NotImplementedError: the commit or the machine lacks what it needs; asv then skips.
    """
    declared = load().trainings["training"][workload]
    skip_unless_runnable(declared)
    create_config = package.find("myriad:create_config")
    CompiledTraining = package.find("myriad.training.programs:CompiledTraining")
    return CompiledTraining(
        create_config(declared.env, declared.agent, declared.num_envs).resolve()
    )
