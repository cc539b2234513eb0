"""What a training needs of memory, by its shapes and by the compiler. Nothing runs."""

import dataclasses
import os
import resource
import sys
from pathlib import Path

import jax

from myriad.hardware import Hardware, fingerprint
from myriad.random import make_key
from myriad.training.config import ResolvedConfig
from myriad.training.loop import LearningLoop
from myriad.training.programs import CompiledTraining
from myriad.xla import describe

# A process also holds the interpreter's and XLA's threads, code, and a copy of a report.
_BESIDE_PROGRAMS = 32 << 20


@dataclasses.dataclass(frozen=True)
class StateSize:
    """Bytes of a training's state.

    Attributes:
        fixed: what the replay buffer and the parameters take, however many environments there are.
        per_env: what each environment adds.
    """

    fixed: int
    per_env: int

    def bytes(self, num_envs: int) -> int:
        """Return the whole state's bytes."""
        return self.fixed + self.per_env * num_envs

    def most_envs(self, limit: int) -> int:
        """Return how many environments fit into `limit` bytes, at least 0."""
        return max(0, (limit - self.fixed) // max(1, self.per_env))


def state_size(resolved: ResolvedConfig) -> StateSize:
    """Measure the state of a training by its shapes at two small numbers of environments.

    Nothing is allocated.
    """
    # An agent may refuse fewer: its batch must divide into minibatches.
    few = resolved.learner.num_envs_multiple
    small = _bytes(resolved, few)
    large = _bytes(resolved, 2 * few)
    per_env = max(1, (large - small) // few)
    return StateSize(max(0, small - per_env * few), per_env)


def _bytes(resolved: ResolvedConfig, num_envs: int) -> int:
    loop = LearningLoop(resolved.env, resolved.learner, num_envs)
    state = jax.eval_shape(loop.init, make_key(0))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def program_bytes(training: CompiledTraining) -> int:
    """Return the most bytes that a training's programs hold at once, by what the compiler states.

    The state is included.
    """
    init = describe(training.init)
    run = describe(training.run)
    evaluate = describe(training.evaluate)
    state = init.output_bytes
    # The state is donated, so most of what a call returns lies where its arguments were.
    while_running = state + run.temp_bytes + run.output_bytes - run.alias_bytes
    while_evaluating = state + evaluate.temp_bytes + evaluate.output_bytes
    num_devices = training.loop.num_devices  # Each of them holds the whole state.
    return num_devices * max(init.peak_bytes, while_running, while_evaluating)


def most_bytes(programs: int) -> int:
    """Return the most bytes of a process whose programs state `programs` bytes."""
    # Matrix products and the allocator were measured to add 7%.
    return programs + programs // 10 + _BESIDE_PROGRAMS


def stated_bytes_within(room: int) -> int:
    """Return the bytes that programs may state if their process is to fit into `room` bytes.

    The inverse of `most_bytes`.
    """
    return max(0, (room - _BESIDE_PROGRAMS) * 10 // 11)


def available_bytes(limit: int | None = None, hardware: Hardware | None = None) -> int:
    """Return the bytes that a training may take beside what this process already holds.

    Args:
        limit: bytes of the whole process on a CPU, and of the device's memory elsewhere. The
            answer is never more than the machine has left.
        hardware: the machine, if you have it at hand.
    """
    hardware = fingerprint() if hardware is None else hardware
    left = (
        sys.maxsize if hardware.memory_available_bytes is None else hardware.memory_available_bytes
    )
    if limit is None:
        return left
    return min(left, limit - (resident_bytes() if hardware.device_kind == "cpu" else 0))


def resident_bytes() -> int:
    """Return the bytes of memory that this process holds, or the most it ever held if unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
            1 if sys.platform == "darwin" else 1024
        )
    return pages * os.sysconf("SC_PAGE_SIZE")
