"""Suggestions of the autotuner for named environments: a chunk size or a whole configuration."""

import time
from collections.abc import Iterator
from typing import Annotated

from myriad.autotune.tuner import BUDGET_S, AutotuneResult, autotune, printer
from myriad.errors import InvalidArgumentError
from myriad.hardware import available_bytes
from myriad.ranges import Bytes, Integer, Seconds, checked
from myriad.training.config import TrainingConfig, make_config
from myriad.training.memory import state_size

# The training is so long that ten of the longest candidates fit between two of its 20 evaluations,
# and that the learning rate falls as in a long run.
STEPS_PER_ENV = 20 * 10 * 1_024
# Beyond a million environments nothing runs faster.
_MOST_ENVS = 1 << 20


@checked
def suggest_scan_chunk_size(
    num_envs: Annotated[int, Integer(1)],
    env: str,
    agent: str,
    buffer_size: Annotated[int | None, Integer(1)] = None,
    force_revalidate: bool = False,  # noqa: FBT001, FBT002 (the documented signature)
    verbose: bool = True,  # noqa: FBT001, FBT002
    *,
    memory_limit: Bytes | None = None,
) -> int:
    """Return the smallest chunk size, in steps, that trains no more than 2% slower than the best.

    It holds for trainings of any length whose evaluations are at least that many steps apart.

    Args:
        num_envs: environments in parallel.
        env: the environment's name.
        agent: the agent's name.
        buffer_size: transitions of its replay buffer; by default the agent's own number.
        force_revalidate: measure again, even if the result is known.
        verbose: print progress and results.
        memory_limit: bytes that may be used; by default what the machine has left.

    Raises:
        UnknownNameError: there is no such environment or agent.
        InvalidArgumentError: the agent can't act there, or nothing fits into memory.

    Example:
        >>> suggest_scan_chunk_size(
        ...     1_000, "cartpole-control", "random", verbose=False
        ... )  # doctest: +SKIP
        16
    """
    config = make_config(env, agent, num_envs, STEPS_PER_ENV, buffer_size=buffer_size)
    result = autotune(
        config, force_revalidate=force_revalidate, verbose=verbose, memory_limit=memory_limit
    )
    return result.scan_chunk_size


@checked
def suggest_config(
    env: str,
    agent: str,
    *,
    memory_limit: Bytes | None = None,
    seconds: Seconds = 60.0,
    verbose: bool = True,
) -> TrainingConfig:
    """Return the configuration that trains the most steps/s here.

    It tries the agent's own number of environments, and then repeatedly four times as many, as long
    as they fit. Hyperparameters and the length of the training are the defaults for each number.
    How much an agent learns from a step depends on the number of environments, so this is only a
    suggestion.

    Args:
        env: the environment's name.
        agent: the agent's name.
        memory_limit: bytes that may be used; by default what the machine has left.
        seconds: about how long all of it may take.
        verbose: print the results.

    Raises:
        UnknownNameError: there is no such environment or agent.
        InvalidArgumentError: the agent can't act there, or nothing fits into memory.
    """
    say = printer(verbose=verbose)
    end = time.perf_counter() + seconds
    best: AutotuneResult | None = None
    for config in _sizes(env, agent):
        needed = state_size(config).bytes(config.num_envs)
        is_late = time.perf_counter() > end
        if best is not None and (is_late or needed > available_bytes(memory_limit)):
            break
        try:
            result = autotune(
                config, verbose=False, memory_limit=memory_limit, seconds=min(BUDGET_S, seconds / 4)
            )
        except InvalidArgumentError:
            if best is None:
                raise
            break  # The state fits, but the programs do not.
        say(
            f"{config.num_envs:>9,} environments: {result.steps_per_s:>15,.0f} steps/s, "
            f"chunk {result.scan_chunk_size}"
        )
        if best is None or result.steps_per_s > best.steps_per_s:
            best = result
    assert best is not None, "the first size either has a result or raises"
    return make_config(env, agent, best.config.num_envs, scan_chunk_size=best.scan_chunk_size)


def _sizes(env: str, agent: str) -> Iterator[TrainingConfig]:
    """Yield configurations of ever more environments, each long enough to time."""
    num_envs = make_config(env, agent).num_envs
    while num_envs <= _MOST_ENVS:
        yield make_config(env, agent, num_envs, STEPS_PER_ENV)
        num_envs *= 4
