"""Compile a training or an evaluation only if it fits into memory, and say what would fit.

The shapes are checked before the compiler works if they are large, and the compiler's own figures
before anything runs. The trainer, `evaluate` and the autotuner call this.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from myriad.errors import InvalidArgumentError
from myriad.hardware import available_bytes, resolve_platform
from myriad.host import release_freed_memory
from myriad.random import make_key
from myriad.training.config import TrainingConfig
from myriad.training.evaluation import Evaluation
from myriad.training.loop import LearningLoop
from myriad.training.programs import CompiledTraining, product_bytes
from myriad.xla import Stated, is_on_host, readable_bytes, require_room, result_shapes

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
_MANY = 1 << 20


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
    is_cpu = resolve_platform() == "cpu"
    # The figures are those of one device, and all devices of a CPU share its memory.
    num_devices = training.loop.num_present if is_cpu else 1
    state = num_devices * init.results
    # The state is donated, so most results of a call reuse the memory of its arguments.
    copied = COPIES * training.product_bytes if is_cpu else 0
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
    copied = COPIES * product_bytes(traced) if is_cpu else 0
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


def compile_within_memory(
    training: CompiledTraining,
    *,
    limit: int | None = None,
    saves: bool = False,
    resumes: bool = False,
    subject: str = "",
    by_shapes_first: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
) -> Needs:
    """Compile a training's programs, unless it doesn't fit into memory.

    Args:
        training: the training, not compiled yet.
        limit: see `myriad.hardware.available_bytes`.
        saves: whether checkpoints are saved.
        resumes: whether it begins with a checkpoint.
        subject: what needs the memory, for the message; by default the settings that decide it.
        by_shapes_first: check the shapes before the compiler works even if the numbers are small.
        meanwhile: called while the compiler works.

    Raises:
        InvalidArgumentError: it doesn't fit. The message says what would.
    """
    config = training.config
    sizes = (config.num_envs, config.buffer_size or 0, config.eval_rollouts)
    # Programs that compile at their first call can't say yet what they need.
    is_compiled = config.compile_mode == "aot"
    if by_shapes_first or max(sizes) > _MANY or not is_compiled:
        require_fit(config, least_needs(config), available_bytes(limit), subject)
    training.compile(meanwhile)
    release_freed_memory()
    if not is_compiled:
        return least_needs(config)
    needs = program_needs(training, saves=saves, resumes=resumes)
    require_fit(config, needs, available_bytes(limit), subject)
    return needs


def compile_evaluation(
    config: TrainingConfig, num_episodes: int, agent_state: Any, key: jax.Array
) -> jax.stages.Compiled:
    """Compile `Evaluation.returns` of an agent, unless it doesn't fit into memory.

    Raises:
        InvalidArgumentError: it doesn't fit. The message says how many episodes would.
    """
    if num_episodes > _MANY:
        _require_episodes(num_episodes, EPISODE_BYTES * num_episodes, is_compiled=False)
    evaluation = Evaluation(
        config.environment, config.learner, num_episodes, max_steps=config.eval_max_steps
    )
    compiled = jax.jit(evaluation.returns).lower(agent_state, key).compile()
    release_freed_memory()
    # The agent's state is in memory already, so only the rest counts.
    _require_episodes(num_episodes, evaluation_bytes(compiled), is_compiled=True)
    return compiled


def _require_episodes(num_episodes: int, stated: int, *, is_compiled: bool) -> None:
    at_most = "at most about" if is_compiled else "fewer than"
    require_room(
        f"{num_episodes:,} episodes",
        stated,
        lambda room: f"{at_most} {int(num_episodes * room / stated):,} fit",
    )


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


def require_restorable(path: Path, state: Any) -> None:
    """Raise unless there is room to load a checkpoint.

    Args:
        path: the run's folder, for the message.
        state: the shapes of the state.
    """
    needed = bytes_of(state) + restoring_bytes(state)
    room = available_bytes()
    if resolve_platform() == "cpu" and needed > room:
        raise InvalidArgumentError(
            f"the checkpoint of {path} needs {readable_bytes(needed)} of memory to be loaded, and "
            f"{readable_bytes(max(0, room))} are free; load it where there is more."
        )


def require_fit(config: TrainingConfig, needs: Needs, room: int, subject: str = "") -> None:
    """Raise unless a training fits into `room` bytes.

    Args:
        config: the training.
        needs: the bytes that it needs.
        room: the bytes that it may take.
        subject: see `compile_within_memory`.

    Raises:
        InvalidArgumentError: it doesn't fit. The message says what would.
    """
    require_room(
        subject or _settings(config),
        needs.stated,
        lambda room: _what_fits(config, needs, room),
        room,
    )


def _settings(config: TrainingConfig) -> str:
    named = [f"num_envs = {config.num_envs:,}"]
    if config.buffer_size is not None:
        named.append(f"buffer_size = {config.buffer_size:,}")
    return f"{', '.join(named)} and eval_rollouts = {config.eval_rollouts:,}"


def _what_fits(config: TrainingConfig, needs: Needs, room: int) -> str:
    """Return the numbers with which the training would fit, if you change one at a time."""
    size = state_size(config)
    at_most = "at most about" if needs.is_compiled else "fewer than"
    # A call holds this many times the state.
    share = (needs.state + needs.beside) / needs.state
    state = min(int(room / share), room - needs.evaluation)
    multiple = config.learner.num_envs_multiple
    envs = size.most_envs(state) // multiple * multiple
    remedies = []
    if 0 < envs < config.num_envs:
        remedies.append(f"{at_most} {envs:,} environments fit")
    if config.buffer_size is not None and size.fixed > state / 2:
        # A smaller buffer may leave calls and checkpoints as large: only its filled part is saved.
        left = room - max(needs.beside, needs.evaluation) - size.per_env * config.num_envs
        slots = config.buffer_size * left // max(1, size.fixed)
        if 0 < slots < config.buffer_size:
            remedies.append(f"a buffer_size of about {slots:,}")
    if needs.state + needs.evaluation > room >= needs.state + needs.beside:
        episodes = config.eval_rollouts * (room - needs.state) // needs.evaluation
        if episodes:
            remedies.append(f"eval_rollouts of about {episodes:,}")
    if not remedies:
        return _what_fits_together(config, room / needs.stated)
    if not remedies[0].endswith("fit"):
        remedies[0] += " fits"
    return ", or ".join(remedies)


def _what_fits_together(config: TrainingConfig, share: float) -> str:
    """Return smaller numbers for all settings together, when changing one is not enough."""
    multiple = config.learner.num_envs_multiple
    envs = int(share * config.num_envs) // multiple * multiple
    if not envs:
        return "not even one environment fits"
    smaller = [f"about {envs:,} environments"]
    if config.buffer_size is not None:
        smaller.append(f"a buffer_size of {max(1, int(share * config.buffer_size)):,}")
    episodes = max(1, int(share * config.eval_rollouts))
    return f"{', '.join(smaller)} and eval_rollouts of {episodes:,} together fit"
