"""The autotuner: the chunk size of the training that will run, timed on that training, remembered for this machine."""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import jax

from myriad.autotune import cache as keys
from myriad.autotune.cache import ProfileCache
from myriad.autotune.search import Candidate, Found, search
from myriad.envs import ENVIRONMENTS
from myriad.errors import InvalidArgumentError
from myriad.hardware import Hardware, fingerprint
from myriad.training.config import TrainingConfig, make_config
from myriad.training.memory import (
    StateSize,
    available_bytes,
    most_bytes,
    program_bytes,
    state_size,
    stated_bytes_within,
)
from myriad.training.programs import CompiledTraining

__all__ = [
    "AutotuneResult",
    "Candidate",
    "ProfileCache",
    "autotune",
    "suggest_config",
    "suggest_scan_chunk_size",
]

# Long enough that evaluations, not the training's end, bound a window, and the annealing is that of
# a long run.
_STEPS_PER_ENV = 10_000
_SECONDS = 12.0
# More rounds than this many seconds hold make no better answer.
_MOST_TIMING_S = 4.0

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class AutotuneResult:
    """What the autotuner chose for a configuration, and why.

    Attributes:
        config: the resolved configuration with the chunk chosen; nothing that changes what is
            learned is changed.
        scan_chunk_size: the chunk chosen, in steps of every environment.
        steps_per_s: steps/s of all environments in training with it, evaluations left out.
        steps_per_s_low: the lower end of its 95% interval.
        steps_per_s_high: the upper end.
        memory_bytes: the most that the programs hold at once, by what the compiler states.
        candidates: every chunk considered, with its verdict.
        seconds: how long this took.
        from_cache: whether the answer was known.
    """

    config: TrainingConfig
    scan_chunk_size: int
    steps_per_s: float
    steps_per_s_low: float
    steps_per_s_high: float
    memory_bytes: int
    candidates: tuple[Candidate, ...]
    seconds: float
    from_cache: bool

    def __str__(self) -> str:
        """Draw a table of the candidates, the chosen one marked."""
        rows = [f"{'chunk':>7}  {'steps/s':>15}  against the chosen one"]
        rows += [f"{c.chunk_size:>7,}  {c.steps_per_s:>15,.0f}  {c.why}" for c in self.candidates]
        rows.append(
            f"{self.steps_per_s:,.0f} steps/s ({self.steps_per_s_low:,.0f} to {self.steps_per_s_high:,.0f}), "
            f"{_readable(self.memory_bytes)} of memory, {'from the cache' if self.from_cache else 'measured'} in "
            f"{self.seconds:.2f} s"
        )
        return "\n".join(rows)


def suggest_scan_chunk_size(
    num_envs: int,
    env: str,
    agent: str,
    buffer_size: int | None = None,
    force_revalidate: bool = False,  # noqa: FBT001, FBT002 (the documented signature)
    verbose: bool = True,  # noqa: FBT001, FBT002
    *,
    memory_limit: int | None = None,
) -> int:
    """Return the smallest chunk size, in steps, that trains no more than 2% slower than the best.

    Args:
        num_envs: environments in parallel.
        env: the environment's name.
        agent: the agent's name.
        buffer_size: transitions of its replay buffer; by default the agent's own.
        force_revalidate: measure again what is known.
        verbose: say on standard output what is done and found.
        memory_limit: bytes that may be used; by default what the machine has left.

    Raises:
        UnknownNameError: no such environment or agent.
        InvalidArgumentError: the agent can't act there, or nothing fits into memory.

    Example:
        >>> suggest_scan_chunk_size(1_000, "cartpole-control", "random", verbose=False)  # doctest: +SKIP
        16
    """
    config = make_config(env, agent, num_envs, _STEPS_PER_ENV, buffer_size=buffer_size)
    result = autotune(
        config, force_revalidate=force_revalidate, verbose=verbose, memory_limit=memory_limit
    )
    return result.scan_chunk_size


def autotune(
    config: TrainingConfig,
    *,
    force_revalidate: bool = False,
    verbose: bool = True,
    memory_limit: int | None = None,
    seconds: float = _SECONDS,
    cache: ProfileCache | None = None,
) -> AutotuneResult:
    """Choose `scan_chunk_size` for a training by timing that training: its environment, agent, buffer and sizes.

    Args:
        config: any configuration; its own chunk size, where it has one, is one of the candidates.
        force_revalidate: measure again what is known.
        verbose: say on standard output what is done and found.
        memory_limit: bytes that may be used; by default what the machine has left.
        seconds: what all of it may take, compilation included; the least that evidence needs is
            taken even so.
        cache: where answers are kept; by default `~/.myriad/autotune_profiles.json`, or below
            `MYRIAD_HOME`.

    Raises:
        InvalidArgumentError: nothing fits into memory; the message says what would.
    """
    start, say = time.perf_counter(), _say if verbose else _silent
    cache = ProfileCache() if cache is None else cache
    resolved, hardware = (
        config.model_copy(update={"env": ENVIRONMENTS.resolve(config.env)}).resolve(),
        fingerprint(),
    )
    spelled_out = keys.details(resolved, hardware)
    key = keys.key(resolved, hardware, spelled_out)
    known = None if force_revalidate else cache.get("chunk_size_configs", key)
    if known is not None and known["memory_bytes"] <= available_bytes(memory_limit, hardware):
        result = _result(resolved, known, time.perf_counter() - start, from_cache=True)
        say(f"{key}: cached")
        say(str(result))
        return result
    _profile(cache, resolved, hardware, say)
    size = state_size(resolved)
    _refuse(resolved, size, available_bytes(memory_limit, hardware))
    training = CompiledTraining(resolved)
    training.compile()
    programs = program_bytes(training)
    say(
        f"program: {'loaded from the cache' if training.from_cache else 'compiled'} in {training.compile_s:.1f} s"
    )
    _refuse(resolved, size, available_bytes(memory_limit), programs)
    default = config.model_copy(update={"scan_chunk_size": None}).resolve().scan_chunk_size or 1
    left = max(0.0, seconds - (time.perf_counter() - start))
    found = search(
        training, {default, config.scan_chunk_size or default}, min(_MOST_TIMING_S, left)
    )
    entry = _entry(found, most_bytes(programs), spelled_out)
    cache.update("chunk_size_configs", key, lambda _: entry)
    result = _result(resolved, entry, time.perf_counter() - start, from_cache=False)
    say(str(result))
    return result


def suggest_config(
    env: str,
    agent: str,
    *,
    memory_limit: int | None = None,
    seconds: float = 60.0,
    verbose: bool = True,
) -> TrainingConfig:
    """Return the configuration that trains the most steps/s here, among powers of ten of environments that fit.

    An on-policy agent's batch of an update is kept: more environments, shorter rollouts. So are the
    steps of all environments together. What is learned per step still changes with the number of
    environments, so this is a suggestion to try, never applied unasked.

    Args:
        env: the environment's name.
        agent: the agent's name.
        memory_limit: bytes that may be used; by default what the machine has left.
        seconds: what all of it may take, about.
        verbose: say on standard output what is found.

    Raises:
        UnknownNameError: no such environment or agent.
        InvalidArgumentError: the agent can't act there, or nothing fits into memory.
    """
    say, end = _say if verbose else _silent, time.perf_counter() + seconds
    own = make_config(env, agent).resolve()
    best: AutotuneResult | None = None
    for config in _sizes(own):
        size = state_size(config)
        if best is not None and (
            time.perf_counter() > end
            or size.bytes(config.num_envs or 1) > available_bytes(memory_limit)
        ):
            break
        try:
            result = autotune(
                config, verbose=False, memory_limit=memory_limit, seconds=min(_SECONDS, seconds / 4)
            )
        except InvalidArgumentError:
            if best is None:
                raise
            break  # the state fits, but not the programs
        say(
            f"{config.num_envs:>9,} environments: {result.steps_per_s:>15,.0f} steps/s, chunk {result.scan_chunk_size}"
        )
        if best is None or result.steps_per_s > best.steps_per_s:
            best = result
    assert best is not None
    total, num_envs = (own.num_envs or 1) * (own.steps_per_env or 1), best.config.num_envs or 1
    return best.config.model_copy(update={"steps_per_env": math.ceil(total / num_envs)}).resolve()


def _sizes(own: TrainingConfig) -> list[TrainingConfig]:
    """Return the agent's own size, then powers of ten above it, batch of an update kept, each long enough to time."""
    num_envs = own.num_envs or 1
    sizes = [num_envs, *(10**k for k in range(2, 8) if 10**k > num_envs)]
    if own.rollout_steps is None:
        return [
            own.model_copy(update={"num_envs": n, "steps_per_env": _STEPS_PER_ENV}).resolve()
            for n in sizes
        ]
    batch = num_envs * own.rollout_steps
    return [
        own.model_copy(
            update={"num_envs": n, "rollout_steps": batch // n, "steps_per_env": _STEPS_PER_ENV}
        ).resolve()
        for n in sizes
        if batch % n == 0
    ]


def _profile(cache: ProfileCache, config: TrainingConfig, hardware: Hardware, say: Say) -> None:
    """Describe machine, environment and agent, each once, for those who read the file."""
    of_env = {"env": config.env, "env_options": config.env_options}
    sizes = config.model_dump(include={"buffer_size", "rollout_steps", "batch_size"})
    of_agent = {"agent": config.agent, "agent_options": config.agent_options} | sizes | of_env
    for section, name, key, describe in (
        (
            "hardware",
            hardware.slug,
            hardware.slug,
            lambda: dataclasses.asdict(hardware) | _devices(),
        ),
        (
            "env_profiles",
            config.env,
            f"{config.env}:{keys.digest(of_env)}",
            lambda: of_env | _env_profile(config),
        ),
        (
            "agent_profiles",
            config.agent,
            f"{config.agent}:{keys.digest(of_agent)}",
            lambda: of_agent | _size(config),
        ),
    ):
        if cache.get(section, key) is not None:
            say(f"{section.removesuffix('_profiles')} {name}: cached")
            continue
        start = time.perf_counter()
        entry = describe()
        cache.update(section, key, lambda _, entry=entry: entry)
        say(
            f"{section.removesuffix('_profiles')} {name}: profiled in {time.perf_counter() - start:.2f} s"
        )


def _devices() -> dict[str, Any]:
    return {"devices": jax.local_device_count(), "platform": jax.default_backend()}


def _env_profile(config: TrainingConfig) -> dict[str, Any]:
    env = config.make_env()
    spaces = {"observation": env.observation_space, "action": env.action_space}
    described = {name: str(space(env.default_params)) for name, space in spaces.items()}
    alone = make_config(config.env, "random", env_options=config.env_options)
    return described | {"bytes_per_env": state_size(alone).per_env}


def _size(config: TrainingConfig) -> dict[str, Any]:
    size = state_size(config)
    return {"env": config.env, "fixed_bytes": size.fixed, "bytes_per_env": size.per_env}


def _refuse(
    config: TrainingConfig, size: StateSize, room: int, programs: int | None = None
) -> None:
    """Refuse what does not fit into `room` bytes, before it runs, and say what would.

    `programs` are the bytes that the compiler states; None before that, when the state's are known
    alone.
    """
    num_envs = config.num_envs or 1
    state = size.bytes(num_envs)
    stated = state if programs is None else programs
    needed = most_bytes(stated)
    if needed <= room:
        return
    # Programs need this much more than the state; a hundredth is left for what doesn't grow with
    # it.
    share = 1.01 * max(1.0, stated / state)
    fits = int(stated_bytes_within(room) / share)
    fewer = size.most_envs(fits)
    at_most = "at most about" if programs is not None else "fewer than"
    help_ = (
        [f"{at_most} {fewer:,} environments fit"] if fewer else ["not even one environment fits"]
    )
    if config.buffer_size is not None and size.fixed > fits / 2:
        left = max(0, fits - size.per_env * num_envs)
        help_.append(
            f"or a buffer_size of about {config.buffer_size * left // max(1, size.fixed):,}"
        )
    raise InvalidArgumentError(
        f"No valid chunk_size found for {num_envs:,} environments of {config.env} with {config.agent}: they need "
        f"{_readable(needed)} of memory, and {_readable(max(0, room))} are free; "
        f"{', '.join(help_)}."
    )


def _entry(found: Found, memory: int, spelled_out: dict[str, Any]) -> dict[str, Any]:
    return {
        "optimal_chunk_size": found.chunk_size,
        "throughput_steps_per_s": found.steps_per_s,
        "throughput_low": found.steps_per_s_low,
        "throughput_high": found.steps_per_s_high,
        "memory_bytes": memory,
        "validated_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "candidates": {str(c.chunk_size): dataclasses.asdict(c) for c in found.candidates},
        "details": spelled_out,
    }


def _result(
    config: TrainingConfig, entry: dict[str, Any], seconds: float, *, from_cache: bool
) -> AutotuneResult:
    candidates = sorted(
        (Candidate(**c) for c in entry["candidates"].values()), key=lambda c: c.chunk_size
    )
    chunk = entry["optimal_chunk_size"]
    return AutotuneResult(
        config.model_copy(update={"scan_chunk_size": chunk}).resolve(),
        chunk,
        entry["throughput_steps_per_s"],
        entry["throughput_low"],
        entry["throughput_high"],
        entry["memory_bytes"],
        tuple(candidates),
        seconds,
        from_cache,
    )


def _readable(num_bytes: int) -> str:
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes / (1 << 20):,.0f} MiB"


def _say(line: str) -> None:
    print(line, flush=True)


def _silent(line: str) -> None:
    pass
