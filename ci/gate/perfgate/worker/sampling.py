"""One sample of a benchmark, by asv's own means and, where sides share a core, by another clock than the wall's."""

import contextlib
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# What asv hands to the interpreter of a timeraw_ statement, but for the clock.
_RAW = """
from timeit import timeit
clock = {{}}
exec(open(OWN_TIME).read(), clock)
print(repr(timeit(stmt=\"\"\"{stmt}\"\"\", setup=\"\"\"{setup}\"\"\", number={number}, timer=clock["OwnTime"]().timer)))
"""


def sample(benchmark: Any, calls: int, clock: Any = None) -> float:
    """Return the seconds of a call as asv itself would time them, teardown and setup between the calls included.

    A `clock` of `own_time` takes the place of the benchmark's own for this sample.
    """
    benchmark.repeat, benchmark.number = 1, max(1, calls)
    benchmark.warmup_time, benchmark.min_run_count = 0, 1
    with contextlib.nullcontext() if clock is None else _timed_by(benchmark, clock):
        return float(benchmark.do_run()["samples"][0])


def is_raw(benchmark: Any) -> bool:
    """Tell whether every sample of a benchmark is a statement in an interpreter of its own."""
    return type(benchmark).__name__ == "TimerawBenchmark"


def has_the_walls_clock(benchmark: Any) -> bool:
    """Tell whether a benchmark is timed by the wall's clock, and not by one that its author chose."""
    return is_raw(benchmark) or getattr(benchmark, "timer", None) is timeit.default_timer


@contextlib.contextmanager
def _timed_by(benchmark: Any, clock: Any) -> Iterator[None]:
    """Let a clock time a benchmark; a statement in an interpreter of its own has one such over there."""
    name, value = (
        ("_get_timer", _raw_timer(benchmark)) if is_raw(benchmark) else ("timer", clock.timer)
    )
    before = getattr(benchmark, name)
    setattr(benchmark, name, value)
    try:
        yield
    finally:
        setattr(benchmark, name, before)


def _raw_timer(benchmark: Any) -> Callable[..., Any]:
    # asv's own
    make, source = benchmark._get_timer, repr(str(Path(__file__).with_name("own_time.py")))  # noqa: SLF001

    def timer(*params: Any) -> Any:
        made = make(*params)
        made.subprocess_tmpl = _RAW.replace(
            "OWN_TIME", source.replace("{", "{{").replace("}", "}}")
        )
        return made

    return timer
