"""Measure the trainer's work on the host: windows, evaluations, checkpoints.

This is only an asv suite. training.py measures the updates themselves.
"""

import importlib.util
import itertools
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.harness import handles
from benchmarks.harness.skipping import skip_unless_runnable
from benchmarks.harness.workloads import load

_WINDOWS = 64


class HostLoop:
    """Seconds of a training with many windows and hardly anything to compute in each."""

    version = "1"
    timeout = 120
    training: Any = None
    folders: ClassVar = itertools.count()

    def setup(self) -> None:
        """Compile one update to a window, once: asv calls this before every sample."""
        if self.training is not None:
            return
        skip_unless_runnable(load().trainings["training"]["cartpole-dqn"])
        from myriad import create_config

        has_tensorboard = importlib.util.find_spec("tensorboardX") is not None
        config = create_config(
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
        )
        self.training = handles.TrainingProgram(config)
        self.time_windows()

    def time_windows(self) -> None:
        """Train from the first window to the last: rows, a tracker, one checkpoint at the end."""
        self.training.train(Path(f"run-{next(self.folders)}"))


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
        training = _training(workload)
        training.start()
        self.save, self.restore = training.checkpoints(Path("checkpoints"))
        self.save()
        self.restore()
        self.prepared = workload

    def time_save(self, workload: str) -> None:
        """Save; the checkpoint is on the disk."""
        self.save()

    def time_restore(self, workload: str) -> None:
        """Check and read what was saved."""
        self.restore()


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
        self.training = _training(workload)
        self.training.start()
        self.time_evaluate(workload)
        self.prepared = workload

    def time_evaluate(self, workload: str) -> None:
        """Run every episode to its end."""
        self.training.evaluate()

    def program(self, workload: str) -> Any:
        """Return the compiled evaluation, for the gate."""
        return self.training.evaluation


def _training(workload: str) -> Any:
    """Return the programs of a declared training.

    Raises:
        NotImplementedError: the commit or the machine lacks what it needs; asv then skips.
    """
    declared = load().trainings["training"][workload]
    skip_unless_runnable(declared)
    from myriad import create_config

    config = create_config(declared.env, declared.agent, declared.num_envs)
    return handles.TrainingProgram(config)
