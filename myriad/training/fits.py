"""Compile a training or an evaluation only if it fits into memory, and say what would fit.

The shapes are checked before the compiler works, and the compiler's own figures before anything
runs. The trainer, `evaluate` and the autotuner call this.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from myriad.errors import InvalidArgumentError
from myriad.hardware import available_bytes, resolve_platform
from myriad.host import release_freed_memory
from myriad.training.config import TrainingConfig
from myriad.training.evaluation import Evaluation
from myriad.training.memory import (
    EPISODE_BYTES,
    Needs,
    bytes_of,
    compiler_bytes,
    evaluation_bytes,
    least_needs,
    program_needs,
    restoring_bytes,
    state_size,
)
from myriad.training.programs import CompiledTraining, ProgramSize
from myriad.xla import readable_bytes, require_room

# From this size on, look at the shapes first: tracing an impossible size raises an unclear error.
# Below it, that would only trace twice.
_MANY = 1 << 20


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
    what = f"{config.agent} on {config.env}"
    training.compile(
        meanwhile, lambda sizes: programs_at_a_time(sizes, available_bytes(limit), what)
    )
    release_freed_memory()
    if not is_compiled:
        return least_needs(config)
    needs = program_needs(training, saves=saves, resumes=resumes)
    require_fit(config, needs, available_bytes(limit), subject)
    return needs


def programs_at_a_time(sizes: Sequence[ProgramSize], room: int, what: str) -> int:
    """Return how many programs the compiler may work on at a time: all, or one.

    A program in the persistent cache needs less memory, but only a later lookup shows whether it is
    there.

    Args:
        sizes: the size of each program.
        room: bytes that the compiler may take.
        what: the name of what is compiled, for the message.

    Raises:
        InvalidArgumentError: not even one at a time fits into `room`.
    """
    if resolve_platform() != "cpu":
        return len(sizes)  # The compiler works in the host's memory, not in the device's.
    together, one_by_one = compiler_bytes(sizes)
    if together <= room:
        return len(sizes)
    if one_by_one <= room:
        return 1
    raise InvalidArgumentError(
        f"compiling {what} needs about {readable_bytes(one_by_one)} of memory, "
        f"and {readable_bytes(max(0, room))} are free; give it more, or choose a smaller agent."
    )


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
    traced = jax.jit(evaluation.returns).trace(agent_state, key)
    size = ProgramSize.of(traced)
    programs_at_a_time([size], available_bytes(), f"{config.agent} on {config.env}")
    compiled = traced.lower().compile()
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
