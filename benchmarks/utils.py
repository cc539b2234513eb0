"""Two timing functions for authors of new benchmarks, built on `myriad.timing`.

    from benchmarks.utils import time_jitted_fn, warmup_jitted_fn

A module `__getattr__` provides them, because airspeed velocity treats every function named `time_*`
in a benchmark module as a benchmark. New code should use `myriad.timing.measure` and `compare`,
which return more.
"""

import functools
import statistics
from collections.abc import Callable
from typing import Any


def __getattr__(name: str) -> Any:
    try:
        return {"warmup_jitted_fn": _warmup_jitted_fn, "time_jitted_fn": _time_jitted_fn}[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def _warmup_jitted_fn(
    fn: Callable[..., Any], *args: Any, warmup_steps: int = 10, **kwargs: Any
) -> None:
    """Call `fn(*args, **kwargs)` `warmup_steps` times and wait for the results."""
    from myriad import timing

    for _ in range(warmup_steps):
        timing.warmup(functools.partial(fn, **kwargs), *args)


def _time_jitted_fn(
    fn: Callable[..., Any],
    *args: Any,
    num_runs: int = 100,
    warmup_steps: int = 10,
    measure_compile_time: bool = True,
    **kwargs: Any,
) -> dict[str, Any]:
    """Time calls of `fn(*args, **kwargs)`, each until its result is ready.

    Args:
        fn: the function, jitted or not.
        *args: its positional arguments. Donated ones survive.
        num_runs: samples to take.
        warmup_steps: samples to take first and discard.
        measure_compile_time: whether to report the seconds of compilation.
        **kwargs: its keyword arguments.

    Returns:
        Seconds per call: `mean, std, min, max, median`, the samples themselves under `all_times`,
        and the seconds of compilation under `compile_time`.

    Example:
        >>> from benchmarks.utils import time_jitted_fn
        >>> stats = time_jitted_fn(sorted, range(1000), num_runs=6, warmup_steps=1)
        >>> stats["min"] <= stats["median"] <= stats["max"]
        True
    """
    from myriad import timing

    # Without keyword arguments `measure` gets `fn` itself, because it inspects it.
    called = functools.partial(fn, **kwargs) if kwargs else fn
    measured = timing.measure(called, *args, num_samples=warmup_steps + num_runs)
    samples_s = measured.samples_s[warmup_steps:]
    stats = {
        "mean": statistics.fmean(samples_s),
        "std": statistics.pstdev(samples_s),
        "min": min(samples_s),
        "max": max(samples_s),
        "median": statistics.median(samples_s),
        "all_times": list(samples_s),
    }
    return stats | ({"compile_time": measured.compile_s} if measure_compile_time else {})
