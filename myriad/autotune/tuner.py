"""Choose a chunk size for a training, from the cache or by timing it. Suggest one by names."""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Annotated, Any

import jax

from myriad import settings
from myriad.autotune.cache import Entry, ProfileCache, digest
from myriad.autotune.search import Found, choose, measure
from myriad.engine.machine import Hardware, fingerprint, is_configured, package_versions
from myriad.engine.memory import available_bytes, most_bytes, readable_bytes
from myriad.envs import ENVIRONMENTS, OBJECT
from myriad.files import announced
from myriad.ranges import Bytes, Integer, Seconds, checked
from myriad.training.compiled import (
    CompiledTraining,
    compile_within_memory,
    shortage_named,
    state_size,
)
from myriad.training.config import SHARED_WITH_AGENT, TrainingConfig, make_config
from myriad.xla import default_dtype, matmul_precision

Say = Callable[[str], None]

BUDGET_S = 5.0
# More rounds than fit into this many seconds don't improve the answer.
_MOST_TIMING_S = 2.0
# The training is so long that ten of the longest candidates fit between two of its 20 evaluations,
# and that the learning rate falls as in a long run.
STEPS_PER_ENV = 20 * 10 * 1_024

# Fields on which neither timings nor memory depend. The length of a schedule is a constant in the
# program, but costs nothing. How often a training evaluates only decides which timings it can use.
_IRRELEVANT = {
    "seed", "steps_per_env", "scan_chunk_size", "target_return", "checkpoint_every_s", "log_to",
    "eval_max_steps", "eval_frequency", "monitor_every", "film_every",
    "compile_mode", "wandb_project", "wandb_name", "wandb_tags", "seeds", "grid", "mapping",
}  # fmt: skip
_IRRELEVANT_OPTIONS = {"exploration_steps"}


@dataclasses.dataclass(frozen=True)
class AutotuneResult(Found):
    """The autotuner's choice for a training, and the reasons.

    Attributes:
        config: the training with the chosen chunk. What the agent learns stays the same.
        memory_bytes: the most bytes that the programs hold at once, as the compiler states.
        seconds: how long autotuning took.
        from_cache: whether the answer came from the cache.
        configured: whether the options of `myriad.configure` were set. The answer holds only for
            processes that have the same.
    """

    config: TrainingConfig
    memory_bytes: int
    seconds: float
    from_cache: bool
    configured: bool

    def __str__(self) -> str:
        """Draw a table of the candidates, the chosen one marked."""
        rows = [f"{'chunk':>7}  {'steps/s':>15}  against the chosen one"]
        rows += [f"{c.chunk_size:>7,}  {c.steps_per_s:>15,.0f}  {c.why}" for c in self.candidates]
        source = "from the cache" if self.from_cache else "measured"
        low, high = self.steps_per_s_low, self.steps_per_s_high
        interval = (
            f" ({low:,.0f} to {high:,.0f})" if low < high else ", too few timings for an interval"
        )
        rows.append(
            f"{self.steps_per_s:,.0f} steps/s{interval}, "
            f"{readable_bytes(self.memory_bytes)} of memory, {source} in {self.seconds:.2f} s"
        )
        if not self.configured:
            rows.append("configure() was not called: this holds only for processes without it")
        return "\n".join(rows)


@checked
def autotune(
    config: TrainingConfig,
    *,
    force_revalidate: bool = False,
    verbose: bool = True,
    memory_limit: Bytes | None = None,
    seconds: Seconds = BUDGET_S,
    cache: ProfileCache | None = None,
) -> AutotuneResult:
    """Choose `scan_chunk_size` for a training by timing that training.

    Args:
        config: any configuration. If it has a chunk size, that is timed as well.
        force_revalidate: measure again, even if the result is known.
        verbose: print progress and results.
        memory_limit: bytes that may be used; by default what the machine has left.
        seconds: how long all of it may take, including compilation. The minimum of evidence is
            taken even if it takes longer.
        cache: the file of answers; by default `~/.myriad/autotune_profiles.json`, or below
            `MYRIAD_HOME`.

    Raises:
        InvalidArgumentError: nothing fits into memory. The message says what would. Or the file of
            answers is not one.
    """
    start = time.perf_counter()
    say: Say = functools.partial(print, flush=True) if verbose else lambda line: None
    cache = ProfileCache() if cache is None else cache
    # Use the environment's own name in place of an alias, so that both share an answer.
    if not config.env.startswith(OBJECT):
        config = config.changed(env=ENVIRONMENTS.resolve(config.env))
    hardware = fingerprint()
    key, details = key_of(config, hardware)
    known = cache.get("chunk_size_configs", key)  # This also refuses a file that is not a cache.
    if (
        known is not None
        and not force_revalidate
        and min(map(int, known["rounds_s"])) <= config.eval_frequency
        and known["memory_bytes"] <= available_bytes(memory_limit)
    ):
        result = _result(config, known, time.perf_counter() - start, from_cache=True)
        say(f"{key}: cached")
        say(str(result))
        return result
    training = CompiledTraining(config.changed(compile_mode="aot"))
    with announced("compiling the training", say):
        stated = compile_within_memory(
            training,
            limit=memory_limit,
            subject=f"No valid chunk_size found for {config.num_envs:,} environments of "
            f"{config.env} with {config.agent}: they",
            meanwhile=lambda: record_profiles(cache, config, hardware, say),
        )
    # Time chunks as the training would run them, none beyond an evaluation.
    others = {
        min(chunk, config.eval_frequency)
        for chunk in (config.untuned_chunk_size, config.scan_chunk_size)
    }
    left = max(0.0, seconds - (time.perf_counter() - start))
    with shortage_named(), announced("timing chunks", say):
        steps, times = measure(training, others, min(_MOST_TIMING_S, left))
    found = choose(times, steps * config.num_envs)  # for a long training
    entry = {
        "optimal_chunk_size": found.scan_chunk_size,
        "throughput_steps_per_s": found.steps_per_s,
        "throughput_low": found.steps_per_s_low,
        "throughput_high": found.steps_per_s_high,
        "memory_bytes": most_bytes(stated),
        "validated_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "candidates": {str(c.chunk_size): dataclasses.asdict(c) for c in found.candidates},
        "stretch_steps": steps,
        # One line for each size, for people who read the file.
        "rounds_s": {
            str(size): " ".join(f"{sample:.6g}" for sample in samples)
            for size, samples in times.items()
        },
        "details": details,
    }
    cache.update("chunk_size_configs", key, entry)
    result = _result(config, entry, time.perf_counter() - start, from_cache=False)
    say(str(result))
    return result


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


def _result(
    config: TrainingConfig, entry: Entry, seconds: float, *, from_cache: bool
) -> AutotuneResult:
    times = {
        int(size): [float(sample) for sample in samples.split()]
        for size, samples in entry["rounds_s"].items()
    }
    found = choose(times, entry["stretch_steps"] * config.num_envs, config.eval_frequency)
    return AutotuneResult(
        **vars(found),
        config=config.changed(scan_chunk_size=found.scan_chunk_size),
        memory_bytes=entry["memory_bytes"],
        seconds=seconds,
        from_cache=from_cache,
        configured=is_configured(),
    )


def key_of(config: TrainingConfig, hardware: Hardware) -> tuple[str, dict[str, Any]]:
    """Return the key of an answer, and everything that it depends on, whose hash ends the key.

    An example is `cartpole-control:dqn:100000:AMD-EPYC_24GB:configured:5a3c90ff`.
    """
    fields = {k: v for k, v in config.values().items() if k not in _IRRELEVANT}
    fields["agent_options"] = {
        name: v for name, v in fields["agent_options"].items() if name not in _IRRELEVANT_OPTIONS
    }
    versions = package_versions()
    details = {
        "config": fields,
        "device": {
            "kind": hardware.device_kind,
            "name": hardware.device_name,
            "count": jax.local_device_count(),
            "processes": jax.process_count(),
            "cores": hardware.cores,
            "memory_total_bytes": hardware.memory_total_bytes,
        },
        "versions": {name: versions.get(name) for name in ("myriad", "jax", "jaxlib")},
        "default_dtype": default_dtype(),
        "matmul_precision": matmul_precision(),
        "configured": is_configured(),
        "xla_flags": settings.xla_flags(),
    }
    configured = "configured" if is_configured() else "unconfigured"
    parts = (config.env, config.agent, config.num_envs, hardware.slug, configured)
    return ":".join(map(str, (*parts, digest(details)))), details


def record_profiles(
    cache: ProfileCache, config: TrainingConfig, hardware: Hardware, say: Say
) -> None:
    """Describe the machine, the environment and the agent, unless the cache already has them."""
    of_env = {"env": config.env, "env_options": config.env_options}
    sizes = {name: getattr(config, name) for name in SHARED_WITH_AGENT}
    of_agent = {"agent": config.agent, "agent_options": config.agent_options} | sizes | of_env

    def record(section: str, name: str, key: str, describe: Callable[[], Entry]) -> None:
        kind = section.removesuffix("_profiles")
        if cache.get(section, key) is not None:
            say(f"{kind} {name}: cached")
            return
        start = time.perf_counter()
        cache.update(section, key, describe())
        say(f"{kind} {name}: profiled in {time.perf_counter() - start:.2f} s")

    def env_profile() -> Entry:
        env = config.environment
        # Random actions need no state, so the whole state is the environment's.
        alone = make_config(env, "random")
        return of_env | {
            "observation": str(env.observation_space(env.default_params)),
            "action": str(env.action_space(env.default_params)),
            "bytes_per_env": state_size(alone)[1],
        }

    def agent_profile() -> Entry:
        fixed, per_env = state_size(config)
        return of_agent | {"fixed_bytes": fixed, "bytes_per_env": per_env}

    machine = {"devices": jax.local_device_count(), "platform": jax.default_backend()}
    machine |= dataclasses.asdict(hardware)
    record("hardware", hardware.slug, hardware.slug, lambda: machine)
    record("env_profiles", config.env, f"{config.env}:{digest(of_env)}", env_profile)
    key = f"{config.agent}:{digest(of_agent)}"
    record("agent_profiles", config.agent, key, agent_profile)
