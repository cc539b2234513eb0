"""Run a benchmark for the first time, in a worker: its value, or its first calls and program."""

import contextlib
import hashlib
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from ..process import protocol
from . import compiled, listing, own_time, profiling, sampling, used_files
from .suite import LoadedSuite

_MOST_CALLS = 6  # after the first one, as far as a tenth of a second allows
_CALLING_S = 0.1
_PROFILED_S = 0.5  # the functions that longer calls run are not counted


def inspect(suite: LoadedSuite, target: protocol.Inspect) -> protocol.FirstRun | protocol.Skipped:
    """Run a benchmark for the first time."""
    used_files.listen()  # this must come before any import
    first = compiled.Compilations()
    compiled.import_jax_for(suite.folder)
    worked, waited = own_time.scheduled()
    with first.counted():
        benchmark = suite.prepare(target)
        if benchmark.type != "time":
            return _value(suite, benchmark, target.row)
        very_first = sampling.call(benchmark)
    # The sides are inspected on different cores. Time that a neighbour took from one core must not
    # count as compile time.
    worked_now, waited_now = own_time.scheduled()
    wanted = worked_now - worked + waited_now - waited
    share = (worked_now - worked) / wanted if wanted > 0 else 1.0
    with (again := compiled.Compilations()).counted():
        taken = [very_first if sampling.is_raw(benchmark) else sampling.call(benchmark)]
    end = time.perf_counter() + _CALLING_S
    while len(taken) < _MOST_CALLS and time.perf_counter() + taken[-1][0] < end:
        taken.append(sampling.call(benchmark))
    seconds = min(seconds for seconds, _ in taken)
    numbers: dict[str, float] = {}
    if "jax" in sys.modules:
        numbers["second_call_compilations"] = float(again.count)
        numbers["compilations"] = float(first.count)
        numbers["compile_s"] = first.seconds * share
    if seconds < _PROFILED_S and not sampling.is_raw(benchmark):
        with contextlib.suppress(Exception):  # a benchmark may not bear a profiler
            found = profiling.profiled(benchmark, suite.root)
            numbers["own_calls"] = float(sum(found.counts.get(name, 0) for name in found.seconds))
    program = _program(benchmark, suite.exchange, target.row)
    used = suite.footprint(), listing.loaded_from()
    return protocol.FirstRun(
        seconds, None, numbers, program, *used, any(quiet for _, quiet in taken)
    )


def _value(suite: LoadedSuite, benchmark: Any, row: str) -> protocol.FirstRun | protocol.Skipped:
    value = benchmark.do_run()
    if benchmark.type == "peakmemory":
        value = _peak_bytes() or value
    suite.release(row)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return protocol.Skipped(f"the benchmark returned {value}")
    if not isinstance(value, (int, float)) and not hasattr(value, "__float__"):
        raise TypeError(f"the benchmark returned {type(value).__name__}, which is not a number")
    if math.isinf(value):
        raise ValueError(f"the benchmark returned {value}, which can't be compared")
    used = suite.footprint(), listing.loaded_from()
    return protocol.FirstRun(None, value=float(value), footprint=used[0], modules=used[1])


def _peak_bytes() -> int | None:
    """Return this program's peak memory. getrusage would include the peak of its parent process."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def _program(benchmark: Any, exchange: Path, row: str) -> protocol.ProgramFiles | None:
    """Write the texts of the program that the benchmark's class offers to files."""
    owner = getattr(benchmark.func, "__self__", benchmark.func)  # a plain function has no class
    offer = getattr(owner, "program", None)
    if offer is None:
        return None
    # the arguments that asv would pass
    offered = offer(*benchmark._build_params())  # noqa: SLF001
    if offered is None:
        return None
    lowered, executable = offered if isinstance(offered, tuple) else compiled.split_stages(offered)
    if executable is None and hasattr(lowered, "compile"):
        executable = lowered.compile()
    place = exchange / hashlib.sha256(f"{os.getpid()} {row}".encode()).hexdigest()[:20]
    return protocol.ProgramFiles(
        lowered=_written(lowered, place.with_suffix(".lowered")),
        optimised=_written(executable, place.with_suffix(".optimised")),
        context=compiled.context(),
        executable=compiled.numbers_of(executable),
        timed_is_program=bool(getattr(owner, "timed_is_program", False)),
    )


def _written(program: Any, file: Path) -> str | None:
    """Write a program's text and return its file; None if there is no text."""
    if program is None:
        return None
    text = program if isinstance(program, str) else program.as_text()
    if text is None:
        return None
    file.write_text(text)
    return str(file)
