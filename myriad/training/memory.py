"""How much memory a training needs, from its shapes and from the compiler. Nothing runs."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from myriad.hardware import resolve_platform
from myriad.random import make_key
from myriad.training.config import TrainingConfig
from myriad.training.loop import LearningLoop
from myriad.training.programs import CompiledTraining, ProgramSize
from myriad.xla import Stated, is_on_host, result_shapes

# On a CPU, a matrix product copies its factors into the order in which it reads them, and the
# compiler's figures leave these copies out. The gradients of an actor and of a critic run side by
# side: 4 to 6.5 copies were measured.
COPIES = 6
# An evaluation returns for each episode the return, the length and whether it ended.
EPISODE_BYTES = 9
# A checkpoint is compressed in memory. Trained environments and full buffers shrank to 36 to 43% of
# their size. While a checkpoint is restored, memory holds it twice.
SAVING_SHARE = 0.75
_RESTORING_SHARE = 1.05
_RESTORING = 64 << 20
# Memory of the compiler, measured in nine trainings on two cores. One program at a time took 0.5 to
# 0.6 of what three side by side take.
_COMPILING = 60 << 20
_COMPILING_OPERATION = 72 << 10
_COMPILING_PRODUCT = 5 << 20
_ONE_AT_A_TIME = 0.55


@dataclasses.dataclass(frozen=True)
class StateSize:
    """Bytes of a training's state.

    Attributes:
        fixed: bytes that don't depend on the number of environments: the replay buffer and the
            parameters.
        per_env: bytes that each environment adds.
    """

    fixed: int
    per_env: int

    def bytes(self, num_envs: int) -> int:
        """Return the whole state's bytes."""
        return self.fixed + self.per_env * num_envs

    def most_envs(self, limit: int) -> int:
        """Return how many environments fit into `limit` bytes, at least 0."""
        return max(0, (limit - self.fixed) // max(1, self.per_env))


@dataclasses.dataclass(frozen=True)
class Needs:
    """Bytes that a training holds.

    Attributes:
        state: bytes of the state, held throughout.
        beside: the most that a call or a checkpoint holds in addition to the state.
        evaluation: what an evaluation holds in addition to the state.
        is_compiled: whether the numbers come from the compiler. Otherwise they are lower bounds.
    """

    state: int
    beside: int
    evaluation: int
    is_compiled: bool

    @property
    def stated(self) -> int:
        """The most bytes that the training holds at a time."""
        return self.state + max(self.beside, self.evaluation)


def state_size(config: TrainingConfig) -> StateSize:
    """Measure the state of a training by its shapes at two small numbers of environments.

    Nothing is allocated.
    """
    # An agent may refuse fewer environments, since its batch must divide into minibatches.
    few = config.learner.num_envs_multiple
    small = _state_bytes(config, few)
    large = _state_bytes(config, 2 * few)
    per_env = max(1, (large - small) // few)
    return StateSize(max(0, small - per_env * few), per_env)


def _state_bytes(config: TrainingConfig, num_envs: int) -> int:
    loop = LearningLoop(config.environment, config.learner, num_envs)
    leaves = jax.tree.leaves(result_shapes(jax.jit(loop.init).trace(make_key(0))))
    # On a CPU, device and host share one memory.
    is_cpu = resolve_platform() == "cpu"
    return bytes_of([leaf for leaf in leaves if is_cpu or not is_on_host(leaf)])


def least_needs(config: TrainingConfig) -> Needs:
    """Return a lower bound of what a training needs, from its shapes."""
    state = state_size(config).bytes(config.num_envs)
    return Needs(state, 0, EPISODE_BYTES * config.eval_rollouts, is_compiled=False)


def program_needs(
    training: CompiledTraining, *, saves: bool = False, resumes: bool = False
) -> Needs:
    """Return what a compiled training needs.

    Args:
        training: the training.
        saves: whether checkpoints are saved.
        resumes: whether it begins with a checkpoint.
    """
    init = Stated.of(training.init)
    run = Stated.of(training.run)
    _, of_run, _ = training.sizes
    is_cpu = resolve_platform() == "cpu"
    # The figures are those of one device, and all devices of a CPU share its memory.
    num_devices = training.loop.num_present if is_cpu else 1
    state = num_devices * init.results
    # The state is donated, so most results of a call reuse the memory of its arguments.
    copied = COPIES * of_run.product_bytes if is_cpu else 0
    beside = [
        num_devices * (init.arguments + init.temporaries),
        num_devices * (run.beside_arguments + copied),
    ]
    # On other devices, a checkpoint is made in the host's memory and not where the state lies.
    if is_cpu:
        if saves:
            beside.append(round(SAVING_SHARE * _written_bytes(training)))
        if resumes:
            beside.append(restoring_bytes(training.state_shapes))
    evaluation = evaluation_bytes(training.evaluate)
    return Needs(state, max(beside), evaluation, is_compiled=True)


def program_bytes(training: CompiledTraining) -> int:
    """Return the most bytes that a training's programs hold at once, from the compiler's figures.

    The state is included.
    """
    return program_needs(training).stated


def evaluation_bytes(compiled: jax.stages.Compiled) -> int:
    """Return the bytes that an evaluation holds in addition to the agent."""
    return Stated.of(compiled).beside_arguments


def call_bytes(traced: jax.stages.Traced, compiled: jax.stages.Compiled) -> int:
    """Return the bytes that one call of a program holds, including its arguments."""
    stated = Stated.of(compiled)
    is_cpu = resolve_platform() == "cpu"
    copied = COPIES * ProgramSize.of(traced).product_bytes if is_cpu else 0
    return stated.arguments + stated.beside_arguments + copied


def restoring_bytes(shapes: Any) -> int:
    """Return the bytes that restoring a checkpoint holds in addition to the state."""
    return round(_RESTORING_SHARE * bytes_of(shapes)) + _RESTORING


def bytes_of(tree: Any) -> int:
    """Return the bytes of a tree's arrays, from their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _written_bytes(training: CompiledTraining) -> int:
    """Return the bytes of the state without the part of the buffer that is never written."""
    state = bytes_of(training.state_shapes)
    slots = training.config.buffer_size
    if slots is None:
        return state
    environments = bytes_of(training.state_shapes.batch_state)
    filled = min(1.0, training.num_updates * training.steps_per_update / slots)
    return environments + round((state - environments) * filled)


def compiler_bytes(sizes: Sequence[ProgramSize]) -> tuple[int, int]:
    """Return the bytes of the compiler for programs side by side, and for one after another."""
    operations = sum(size.operations for size in sizes)
    products = sum(size.products for size in sizes)
    together = _COMPILING + _COMPILING_OPERATION * operations + _COMPILING_PRODUCT * products
    return together, round(_ONE_AT_A_TIME * together)
