"""Sample a benchmark with asv's own timers, in a worker.

If the sides share a core, a clock of the process's own time replaces the wall clock.
"""

import contextlib
import math
import os
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from ..process import protocol
from . import own_time, used_files

_WORKER = os.getpid()
# A call that seems to sleep is checked this often: a host that takes the core away looks like it.
_AGAIN = 2
_START_S = 0.1  # roughly, of an interpreter
# asv's program for a timeraw_ statement's interpreter, with another clock.
_RAW = """
from timeit import timeit
clock = {{}}
exec(open(OWN_TIME).read(), clock)
timer = clock["OwnTime"]().timer
taken = timeit(stmt=\"\"\"{stmt}\"\"\", setup=\"\"\"{setup}\"\"\", number={number}, timer=timer)
print(repr(taken))
"""


class _OwnClock(own_time.OwnTime):
    """The clock of the process's own time. It also notes what the timed part opens or starts."""

    def __init__(self) -> None:
        super().__init__()
        self.is_quiet = True
        self._heard: int | None = None

    def timer(self) -> float:
        heard = used_files.num_heard()
        seconds = super().timer()  # which opens files of its own
        if self._heard is None:
            self._heard = used_files.num_heard()
        else:
            self.is_quiet &= heard == self._heard
            self._heard = None
        return seconds


class Clock(Protocol):
    """A clock that asv's timers ask before and after the timed statement."""

    def timer(self) -> float:
        """Return the seconds so far."""
        ...


def sample(benchmark: Any, calls: int, clock: Clock | None = None) -> float:
    """Return the seconds of a call, timed as asv would.

    A `clock` replaces the benchmark's own for this sample.
    """
    # asv takes one sample of `calls` calls without a warm-up, since the gate decides about both.
    number = benchmark.number  # of a benchmark that stays set up, the author's
    benchmark.repeat = 1
    benchmark.number = max(1, calls)
    benchmark.warmup_time = 0
    benchmark.min_run_count = 1
    try:
        with contextlib.nullcontext() if clock is None else _timed_by(benchmark, clock):
            seconds = float(benchmark.do_run()["samples"][0])
    finally:
        benchmark.number = number
    if os.getpid() != _WORKER:  # a child of the benchmark: it must not call it again
        raise ChildProcessError
    return seconds


def calibrate(benchmark: Any, target_s: float, first_s: float) -> protocol.Calibration:
    """Warm up a benchmark, and find how many calls last for `target_s`."""
    fixed = benchmark.number > 0  # the author has fixed the number of calls
    calls = max(1, int(benchmark.number))
    if not is_raw(benchmark):
        sample(benchmark, calls)
    elif first_s:  # it can't be warmed up, and its seconds are known
        return protocol.Calibration(calls, first_s, calls * first_s + _START_S, is_work=False)
    while True:
        clock = own_clock(benchmark)
        start = time.perf_counter()
        seconds = sample(benchmark, calls, clock)
        wall_s = time.perf_counter() - start
        # asv repeats setup before each call. If setup is the slow part, stop at ten times the
        # target.
        if fixed or seconds * calls >= target_s / 2 or wall_s >= 10 * target_s:
            is_work = clock is not None and _is_work(benchmark, calls, clock)
            return protocol.Calibration(calls, seconds, wall_s, is_work)
        calls = max(calls + 1, min(10 * calls, math.ceil(target_s / max(seconds, 1e-9))))


def call(benchmark: Any) -> tuple[float, bool]:
    """Return the seconds of a call, and whether it opened no file and started no process.

    The seconds leave out the waiting for a core, if the author chose no clock.
    """
    clock = own_clock(benchmark)
    seconds = sample(benchmark, 1, clock)
    return seconds, clock is not None and clock.is_quiet and not is_raw(benchmark)


def is_raw(benchmark: Any) -> bool:
    """Tell whether every sample of a benchmark runs in an interpreter of its own."""
    return type(benchmark).__name__ == "TimerawBenchmark"


def own_clock(benchmark: Any) -> _OwnClock | None:
    """Return a replacement for the wall clock; None if the author chose another clock."""
    has_the_walls = getattr(benchmark, "timer", None) is timeit.default_timer
    return _OwnClock() if is_raw(benchmark) or has_the_walls else None


def _is_work(benchmark: Any, calls: int, clock: _OwnClock) -> bool:
    """Tell whether calls only compute, by the clock of past calls or of a few more."""
    for _ in range(_AGAIN):
        if clock.is_work() or clock.wall_s > 1:
            break
        clock = _OwnClock()
        sample(benchmark, calls, clock)
    return clock.is_work()


@contextlib.contextmanager
def _timed_by(benchmark: Any, clock: Clock) -> Iterator[None]:
    """Time a benchmark with a clock. A statement in its own interpreter gets a clock there."""
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
