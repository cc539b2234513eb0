"""Samples of a benchmark, for a worker, by asv's own means.

Where sides share a core, another clock than the wall's times them.
"""

import contextlib
import math
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from ..process import protocol
from . import own_time

# times it is looked at whether calls only work: a host that took the core away leaves the same
# trace as sleep
_AGAIN = 2
# What asv hands to the interpreter of a timeraw_ statement, but for the clock.
_RAW = """
from timeit import timeit
clock = {{}}
exec(open(OWN_TIME).read(), clock)
timer = clock["OwnTime"]().timer
taken = timeit(stmt=\"\"\"{stmt}\"\"\", setup=\"\"\"{setup}\"\"\", number={number}, timer=timer)
print(repr(taken))
"""


class Clock(Protocol):
    """What asv's timers ask for the time, right before and right after what they time."""

    def timer(self) -> float:
        """Return the seconds so far."""
        ...


class _Around:
    """A clock that enters a context where timing starts and leaves it where timing ends.

    What setup and teardown do stays outside of the context.
    """

    def __init__(self, context: AbstractContextManager[Any]):
        self._context = context
        self._is_inside = False

    def timer(self) -> float:
        if self._is_inside:
            self._context.__exit__(None, None, None)
        else:
            self._context.__enter__()
        self._is_inside = not self._is_inside
        return 0.0


def call_within(benchmark: Any, context: AbstractContextManager[Any]) -> None:
    """Call a benchmark once, its timed statement alone inside of the context.

    A statement that runs in an interpreter of its own never enters it.
    """
    sample(benchmark, 1, _Around(context))


def sample(benchmark: Any, calls: int, clock: Clock | None = None) -> float:
    """Return the seconds of a call as asv itself would time them.

    A `clock` takes the place of the benchmark's own for this sample.
    """
    # asv then takes one sample of so many calls, and warms nothing up. The gate decides both.
    benchmark.repeat = 1
    benchmark.number = max(1, calls)
    benchmark.warmup_time = 0
    benchmark.min_run_count = 1
    with contextlib.nullcontext() if clock is None else _timed_by(benchmark, clock):
        return float(benchmark.do_run()["samples"][0])


def calibrate(benchmark: Any, target_s: float) -> protocol.Calibration:
    """Warm a benchmark up, and find how many calls last for `target_s`."""
    fixed = benchmark.number > 0  # the author's own number of calls
    calls = max(1, int(benchmark.number))
    sample(benchmark, calls)
    while True:
        clock = _own_clock(benchmark)
        start = time.perf_counter()
        seconds = sample(benchmark, calls, clock)
        wall_s = time.perf_counter() - start
        # Where the set-up that asv repeats before each call is the slow part, ten times the target
        # is enough.
        if fixed or seconds * calls >= target_s / 2 or wall_s >= 10 * target_s:
            is_work = clock is not None and _is_work(benchmark, calls, clock)
            return protocol.Calibration(calls, fixed, seconds, wall_s, is_work)
        calls = max(calls + 1, min(10 * calls, math.ceil(target_s / max(seconds, 1e-9))))


def own_s(benchmark: Any) -> float:
    """Return the seconds of one call; on the wall's clock those of waiting are left out."""
    return sample(benchmark, 1, _own_clock(benchmark))


def quickest(benchmark: Any, seconds: float) -> float:
    """Return the seconds of the quickest of up to five more calls, or these `seconds`.

    The calls end after a tenth of a second.
    """
    end = time.perf_counter() + 0.1
    for _ in range(5):
        if time.perf_counter() + seconds > end:
            break
        seconds = min(seconds, own_s(benchmark))
    return seconds


def is_raw(benchmark: Any) -> bool:
    """Tell whether every sample of a benchmark is a statement in an interpreter of its own."""
    return type(benchmark).__name__ == "TimerawBenchmark"


def _own_clock(benchmark: Any) -> own_time.OwnTime | None:
    """Return a clock in the place of the wall's; None where the author chose another one."""
    has_the_walls = getattr(benchmark, "timer", None) is timeit.default_timer
    return own_time.OwnTime() if is_raw(benchmark) or has_the_walls else None


def _is_work(benchmark: Any, calls: int, clock: own_time.OwnTime) -> bool:
    """Tell whether calls do nothing but work, by this clock of some, or of a few more."""
    for _ in range(_AGAIN):
        if clock.is_work() or clock.wall_s > 1:
            break
        clock = own_time.OwnTime()
        sample(benchmark, calls, clock)
    return clock.is_work()


@contextlib.contextmanager
def _timed_by(benchmark: Any, clock: Clock) -> Iterator[None]:
    """Let a clock time a benchmark; a statement in an interpreter of its own has one over there."""
    name = "_get_timer" if is_raw(benchmark) else "timer"
    before = getattr(benchmark, name)
    setattr(benchmark, name, _raw_timer(benchmark) if is_raw(benchmark) else clock.timer)
    try:
        yield
    finally:
        setattr(benchmark, name, before)


def _raw_timer(benchmark: Any) -> Callable[..., Any]:
    make = benchmark._get_timer  # noqa: SLF001 - asv's own
    source = repr(str(Path(__file__).with_name("own_time.py")))

    def timer(*params: Any) -> Any:
        made = make(*params)
        # asv calls `format` on the template, so braces in the path are doubled.
        made.subprocess_tmpl = _RAW.replace(
            "OWN_TIME", source.replace("{", "{{").replace("}", "}}")
        )
        return made

    return timer
