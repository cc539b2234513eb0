"""Measure the trainer's work on the host: windows, evaluations, checkpoints.

This is only an asv suite. training.py measures the updates themselves.
"""

import importlib.util
import itertools
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.harness.asv_suite import AsvSuite
from benchmarks.harness.workloads import Training

_WINDOWS = 64


class HostLoop(AsvSuite):
    """Seconds of a training with many windows and hardly anything to compute in each."""

    suite = "training"
    always = "cartpole-dqn"
    version = "1"
    timeout = 120
    folders: ClassVar = itertools.count()

    def prepare(self, declared: Training) -> None:
        from myriad import create_config
        from myriad.programs import TrainingProgram

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
        self.training = TrainingProgram(config)
        self.time_windows()

    def time_windows(self) -> None:
        """Train from the first window to the last: rows, a tracker, one checkpoint at the end."""
        self.training.train(Path(f"run-{next(self.folders)}"))


class Checkpoint(AsvSuite):
    """Seconds to save and to restore a training's state, including a full replay buffer."""

    suite = "training"
    params: ClassVar = ["cartpole-dqn"]
    version = "1"
    timeout = 120

    def prepare(self, declared: Training) -> None:
        self.save, self.restore = _started(declared).checkpoints(Path("checkpoints"))
        self.save()
        self.restore()

    def time_save(self, workload: str) -> None:
        """Save; the checkpoint is on the disk."""
        self.save()

    def time_restore(self, workload: str) -> None:
        """Check and read what was saved."""
        self.restore()


class Evaluation(AsvSuite):
    """Seconds of one evaluation: whole episodes of an untrained policy."""

    suite = "training"
    params: ClassVar = ["cartpole-ppo"]
    version = "1"
    timed_is_program = True  # for the gate: equal programs need no timing

    def prepare(self, declared: Training) -> None:
        self.training = _started(declared)
        self.training.evaluate()

    def time_evaluate(self, workload: str) -> None:
        """Run every episode to its end."""
        self.training.evaluate()

    def program(self, workload: str) -> Any:
        """Return the compiled evaluation, for the gate."""
        return self.training.evaluation


def _started(declared: Training) -> Any:
    """Return the programs of a training, and its first state in them."""
    from myriad import create_config
    from myriad.programs import TrainingProgram

    config = create_config(declared.env, declared.agent, declared.num_envs)
    training = TrainingProgram(config)
    training.start()
    return training
