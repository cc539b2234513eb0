"""What a training needs of memory: from shapes alone, and from the compiler, without running anything."""

import dataclasses
import os
import resource
import sys
from pathlib import Path
from typing import Any

import jax

from myriad.hardware import Hardware, fingerprint
from myriad.random import make_key
from myriad.training.config import TrainingConfig
from myriad.training.loop import LearningLoop
from myriad.training.programs import CompiledTraining
from myriad.xla import describe

_BESIDE_PROGRAMS = (
    32 << 20
)  # of a process: the interpreter's and XLA's threads, code, a report's copy


@dataclasses.dataclass(frozen=True)
class StateSize:
    """Bytes of a training's state: `fixed`, replay buffer and parameters, and `per_env` for each environment."""

    fixed: int
    per_env: int

    def bytes(self, num_envs: int) -> int:
        """Return the whole state's bytes."""
        return self.fixed + self.per_env * num_envs

    def most_envs(self, limit: int) -> int:
        """Return how many environments fit into `limit` bytes, at least 0."""
        return max(0, (limit - self.fixed) // max(1, self.per_env))


def state_size(config: TrainingConfig) -> StateSize:
    """Measure the state of a configuration by its shapes at two small numbers of environments: nothing is allocated."""
    env = config.make_env()
    learner = config.make_learner(env)
    few = getattr(learner, "num_minibatches", 1)  # a batch must divide into whole minibatches
    small, large = (_bytes(env, learner, num_envs) for num_envs in (few, 2 * few))
    per_env = max(1, (large - small) // few)
    return StateSize(max(0, small - per_env * few), per_env)


def _bytes(env: Any, learner: Any, num_envs: int) -> int:
    state = jax.eval_shape(LearningLoop(env, learner, num_envs).init, make_key(0))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def program_bytes(training: CompiledTraining) -> int:
    """Return the most that a training's programs hold at once, its state included, as the compiler states it."""
    init, run, evaluate = (
        describe(program) for program in (training.init, training.run, training.evaluate)
    )
    state = init.output_bytes
    while_running = state + run.temp_bytes + run.output_bytes - run.alias_bytes
    while_evaluating = state + evaluate.temp_bytes + evaluate.output_bytes
    num_devices = training.loop.num_devices  # each holds the whole state
    return num_devices * max(init.peak_bytes, while_running, while_evaluating)


def most_bytes(programs: int) -> int:
    """Return what a process may take for programs of which the compiler states `programs` bytes.

    Matrix products and the allocator came to 7% of what is stated.
    """
    return programs + programs // 10 + _BESIDE_PROGRAMS


def stated_bytes_within(room: int) -> int:
    """Return the bytes that programs may state for their process to fit into `room`, the inverse of `most_bytes`."""
    return max(0, (room - _BESIDE_PROGRAMS) * 10 // 11)


def available_bytes(limit: int | None = None, hardware: Hardware | None = None) -> int:
    """Return what a training may take beside what this process holds already.

    Args:
        limit: of the whole process on a CPU, of the device's memory elsewhere; never more than the
            machine has left.
        hardware: the machine, where it is at hand.
    """
    hardware = fingerprint() if hardware is None else hardware
    left = (
        sys.maxsize if hardware.memory_available_bytes is None else hardware.memory_available_bytes
    )
    if limit is None:
        return left
    return min(left, limit - (resident_bytes() if hardware.device_kind == "cpu" else 0))


def resident_bytes() -> int:
    """Return the resident set of this process; where the system doesn't tell, the most it ever was."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
            1 if sys.platform == "darwin" else 1024
        )
    return pages * os.sysconf("SC_PAGE_SIZE")
