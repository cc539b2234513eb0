"""`autotune`: from a configuration to a chunk size, by the cache or by timing the training."""

import dataclasses
import time

from myriad.autotune import keys
from myriad.autotune.cache import Entry, ProfileCache
from myriad.autotune.fits import readable_bytes, require_fit
from myriad.autotune.profiles import Say, record_profiles
from myriad.autotune.search import Candidate, Found, search
from myriad.envs import ENVIRONMENTS
from myriad.hardware import fingerprint
from myriad.training.config import ResolvedConfig, TrainingConfig
from myriad.training.memory import available_bytes, most_bytes, program_bytes, state_size
from myriad.training.programs import CompiledTraining

BUDGET_S = 12.0
# More rounds than fit into so many seconds make no better answer.
_MOST_TIMING_S = 4.0


@dataclasses.dataclass(frozen=True)
class AutotuneResult:
    """What the autotuner chose for a training, and why.

    Attributes:
        resolved: the training with the chunk chosen. Nothing that changes what is learned is
            changed.
        scan_chunk_size: the chunk chosen, in steps of every environment.
        steps_per_s: steps/s of all environments in training with it, evaluations left out.
        steps_per_s_low: the lower end of its 95% interval.
        steps_per_s_high: the upper end.
        memory_bytes: the most that the programs hold at once, by what the compiler states.
        candidates: every chunk considered, with its verdict, smallest first.
        seconds: how long this took.
        from_cache: whether the answer was known.
    """

    resolved: ResolvedConfig
    scan_chunk_size: int
    steps_per_s: float
    steps_per_s_low: float
    steps_per_s_high: float
    memory_bytes: int
    candidates: tuple[Candidate, ...]
    seconds: float
    from_cache: bool

    @property
    def config(self) -> TrainingConfig:
        """The configuration with the chunk chosen and every default filled in."""
        return self.resolved.config

    def __str__(self) -> str:
        """Draw a table of the candidates, the chosen one marked."""
        rows = [f"{'chunk':>7}  {'steps/s':>15}  against the chosen one"]
        rows += [f"{c.chunk_size:>7,}  {c.steps_per_s:>15,.0f}  {c.why}" for c in self.candidates]
        interval = f"{self.steps_per_s_low:,.0f} to {self.steps_per_s_high:,.0f}"
        source = "from the cache" if self.from_cache else "measured"
        rows.append(
            f"{self.steps_per_s:,.0f} steps/s ({interval}), "
            f"{readable_bytes(self.memory_bytes)} of memory, {source} in {self.seconds:.2f} s"
        )
        return "\n".join(rows)


def autotune(
    config: TrainingConfig,
    *,
    force_revalidate: bool = False,
    verbose: bool = True,
    memory_limit: int | None = None,
    seconds: float = BUDGET_S,
    cache: ProfileCache | None = None,
) -> AutotuneResult:
    """Choose `scan_chunk_size` for a training by timing that training.

    Args:
        config: any configuration. If it has a chunk size, that is one of the candidates.
        force_revalidate: measure again what is known.
        verbose: print what is done and found.
        memory_limit: bytes that may be used; by default what the machine has left.
        seconds: what all of it may take, compilation included. The least that evidence needs is
            taken even so.
        cache: the file of answers; by default `~/.myriad/autotune_profiles.json`, or below
            `MYRIAD_HOME`.

    Raises:
        InvalidArgumentError: nothing fits into memory. The message says what would.
    """
    start = time.perf_counter()
    say = printer(verbose=verbose)
    cache = ProfileCache() if cache is None else cache
    # An alias is answered with what is known of the environment's own name.
    config = config.model_copy(update={"env": ENVIRONMENTS.resolve(config.env)})
    resolved = config.resolve()
    hardware = fingerprint()
    spelled_out = keys.details(resolved.config, hardware)
    key = keys.key(resolved.config, hardware, spelled_out)
    known = None if force_revalidate else cache.get("chunk_size_configs", key)
    if known is not None and known["memory_bytes"] <= available_bytes(memory_limit, hardware):
        result = _result(resolved, known, time.perf_counter() - start, from_cache=True)
        say(f"{key}: cached")
        say(str(result))
        return result
    record_profiles(cache, resolved, hardware, say)
    # What could never fit is refused before anything compiles, and the rest before it runs.
    size = state_size(resolved)
    require_fit(resolved, size, available_bytes(memory_limit, hardware))
    training = CompiledTraining(resolved)
    training.compile()
    programs = program_bytes(training)
    how = "loaded from the cache" if training.from_cache else "compiled"
    say(f"program: {how} in {training.compile_s:.1f} s")
    require_fit(resolved, size, available_bytes(memory_limit), programs)
    untuned = resolved.untuned_chunk_size
    left = max(0.0, seconds - (time.perf_counter() - start))
    found = search(
        training, {untuned, config.scan_chunk_size or untuned}, min(_MOST_TIMING_S, left)
    )
    entry = _entry(found, most_bytes(programs), spelled_out)
    cache.update("chunk_size_configs", key, lambda _: entry)
    result = _result(resolved, entry, time.perf_counter() - start, from_cache=False)
    say(str(result))
    return result


def printer(*, verbose: bool) -> Say:
    """Return what prints a line at once, or nothing."""

    def say(line: str) -> None:
        if verbose:
            print(line, flush=True)

    return say


def _entry(found: Found, memory_bytes: int, spelled_out: Entry) -> Entry:
    return {
        "optimal_chunk_size": found.chunk_size,
        "throughput_steps_per_s": found.steps_per_s,
        "throughput_low": found.steps_per_s_low,
        "throughput_high": found.steps_per_s_high,
        "memory_bytes": memory_bytes,
        "validated_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "candidates": {str(c.chunk_size): dataclasses.asdict(c) for c in found.candidates},
        "details": spelled_out,
    }


def _result(
    resolved: ResolvedConfig, entry: Entry, seconds: float, *, from_cache: bool
) -> AutotuneResult:
    candidates = [Candidate(**candidate) for candidate in entry["candidates"].values()]
    return AutotuneResult(
        resolved=resolved.with_chunk(entry["optimal_chunk_size"]),
        scan_chunk_size=entry["optimal_chunk_size"],
        steps_per_s=entry["throughput_steps_per_s"],
        steps_per_s_low=entry["throughput_low"],
        steps_per_s_high=entry["throughput_high"],
        memory_bytes=entry["memory_bytes"],
        candidates=tuple(sorted(candidates, key=lambda candidate: candidate.chunk_size)),
        seconds=seconds,
        from_cache=from_cache,
    )
