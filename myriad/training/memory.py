"""Compile a training or an evaluation only if it fits into memory, and say what would fit.

The shapes are checked before the compiler works if they are large, and the compiler's own figures
before anything runs. The trainer, `evaluate` and the autotuner call this.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax

from myriad.errors import InvalidArgumentError
from myriad.hardware import available_bytes, resolve_platform
from myriad.host import release_freed_memory
from myriad.jaxpr import equations
from myriad.random import make_key
from myriad.ranges import INT32
from myriad.training.config import TrainingConfig
from myriad.training.loop import LearningLoop
from myriad.xla import (
    Stated,
    is_on_host,
    require_room,
    require_room_for,
    result_shapes,
)

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
# From this size on, look at the shapes first: tracing an impossible size raises an unclear error.
# Below it, that would only trace twice.
MANY = 1 << 20


def state_size(config: TrainingConfig) -> tuple[int, int]:
    """Measure the state of a training by its shapes for its environments and for twice as many.

    Nothing is allocated.

    Returns:
        the bytes that don't depend on the number of environments, such as the replay buffer and the
        parameters, and the bytes that each environment adds.
    """
    # An agent or an environment may refuse numbers that aren't multiples of one of its own.
    num_envs = config.num_envs
    once = _state_bytes(config, num_envs)
    if 2 * num_envs > INT32:
        return 0, once // num_envs  # So many can't be doubled, and beside them nothing else counts.
    per_env = max(1, (_state_bytes(config, 2 * num_envs) - once) // num_envs)
    return max(0, once - per_env * num_envs), per_env


def _state_bytes(config: TrainingConfig, num_envs: int) -> int:
    loop = LearningLoop(config.environment, config.learner, num_envs)
    leaves = jax.tree.leaves(result_shapes(jax.jit(loop.init).trace(make_key(0))))
    # On a CPU, device and host share one memory.
    is_cpu = resolve_platform() == "cpu"
    return bytes_of([leaf for leaf in leaves if is_cpu or not is_on_host(leaf)])


def least_bytes(config: TrainingConfig, num_seeds: int = 1) -> int:
    """Return a lower bound of the bytes that trainings hold in one memory, from their shapes."""
    fixed, per_env = state_size(config)
    one = fixed + per_env * config.num_envs + EPISODE_BYTES * config.eval_rollouts
    # Seeds are spread over the devices, and those of a CPU share its memory.
    num_memories = 1 if resolve_platform() == "cpu" else jax.local_device_count()
    return one * -(-num_seeds // num_memories)


def product_bytes(traced: jax.stages.Traced) -> int:
    """Return the bytes of the largest matrix that a program multiplies."""
    products = (
        each for each in equations(traced.jaxpr.jaxpr) if str(each.primitive) == "dot_general"
    )
    matrices: Any = [operand.aval for product in products for operand in product.invars]
    return max((x.size * x.dtype.itemsize for x in matrices), default=0)


def call_bytes(traced: jax.stages.Traced, compiled: jax.stages.Compiled) -> int:
    """Return the bytes that one call of a program holds, including its arguments."""
    stated = Stated.of(compiled)
    is_cpu = resolve_platform() == "cpu"
    copied = COPIES * product_bytes(traced) if is_cpu else 0
    return stated.arguments + stated.beside_arguments + copied


def restoring_bytes(state: float) -> int:
    """Return the bytes that restoring a checkpoint holds in addition to a state of so many."""
    return round(_RESTORING_SHARE * state) + _RESTORING


def bytes_of(tree: Any) -> int:
    """Return the bytes of a tree's arrays, from their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def compile_within_memory(
    training: Any,
    *,
    limit: int | None = None,
    saves: bool = False,
    resumes: bool = False,
    subject: str = "",
    by_shapes_first: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
) -> int:
    """Compile a training's programs, unless it doesn't fit into memory.

    Args:
        training: the training, not compiled yet: a `CompiledTraining`, or `SeedTrainings`.
        limit: see `myriad.hardware.available_bytes`.
        saves: whether checkpoints are saved.
        resumes: whether it begins with a checkpoint.
        subject: what needs the memory, for the message; by default the settings that decide it.
        by_shapes_first: check the shapes before the compiler works even if the numbers are small.
        meanwhile: called while the compiler works.

    Returns:
        the most bytes that the programs hold at once, as the compiler states them. Programs that
        compile at their first call state nothing, so it is a lower bound.

    Raises:
        InvalidArgumentError: it doesn't fit. The message says what would.
    """
    config = training.config
    sizes = (config.num_envs, config.buffer_size or 0, config.eval_rollouts)
    # Programs that compile at their first call can't say yet what they need.
    is_compiled = config.compile_mode == "aot"
    is_of_seeds = None not in training.seeds

    def require_fit(stated: int, at_most: str) -> int:
        if is_of_seeds:
            require_room_for(len(training.seeds), stated, what="seeds", at_most=at_most)
        else:
            remedy = functools.partial(_what_fits, config, stated, at_most)
            require_room(subject or _settings(config), stated, remedy, available_bytes(limit))
        return stated

    stated = 0
    if by_shapes_first or max(sizes) > MANY or not is_compiled or is_of_seeds:
        stated = require_fit(least_bytes(config, len(training.seeds)), "fewer than")
    training.compile(meanwhile)
    release_freed_memory()
    if is_compiled:
        needed = training.stated_bytes(saves=saves, resumes=resumes)
        stated = require_fit(needed, "at most about")
    return stated


@contextlib.contextmanager
def shortage_named() -> Iterator[None]:
    """Turn JAX's error into a sentence if memory runs out although it should have sufficed.

    Another process may have taken it, or `ulimit -v` counts addresses that nothing uses.

    Raises:
        InvalidArgumentError: memory ran out in the block.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if error.error_code_string != "RESOURCE_EXHAUSTED":
            raise
        raise InvalidArgumentError(
            "memory ran out: use fewer environments or episodes or a smaller buffer_size, or leave "
            f"more memory; JAX says: {error}"
        ) from None


def _settings(config: TrainingConfig) -> str:
    named = [f"num_envs = {config.num_envs:,}"]
    if config.buffer_size is not None:
        named.append(f"buffer_size = {config.buffer_size:,}")
    return f"{', '.join(named)} and eval_rollouts = {config.eval_rollouts:,}"


def _what_fits(config: TrainingConfig, stated: int, at_most: str, room: int) -> str:
    """Return smaller numbers that fit: of the setting that takes most, or of all together."""
    fixed, per_env = state_size(config)
    multiple = config.learner.num_envs_multiple
    # What each setting takes, in bytes of the state: an episode is played in its own environment.
    taken = {
        "environments": (config.num_envs, per_env * config.num_envs),
        "transitions of replay": (config.buffer_size or 0, fixed if config.buffer_size else 0),
        "episodes of an evaluation": (config.eval_rollouts, per_env * config.eval_rollouts),
    }
    most = max(taken, key=lambda what: taken[what][1])
    excess = 1 - room / stated
    kept = 1 - excess * sum(size for _, size in taken.values()) / taken[most][1]
    fitting = {most: int(kept * taken[most][0])}
    if kept <= 0:
        fitting = {what: int((1 - excess) * number) for what, (number, _) in taken.items()}
    if "environments" in fitting:
        fitting["environments"] -= fitting["environments"] % multiple
        if not fitting["environments"]:
            return "not even one environment fits"
    numbers = [f"{max(1, number):,} {what}" for what, number in fitting.items() if taken[what][0]]
    return f"{at_most} {' and '.join(numbers)} fit"
