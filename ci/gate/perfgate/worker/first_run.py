"""Run a benchmark for the first time, in a worker: its value, or its first calls and program."""

import dataclasses
import hashlib
import math
import os
import sys
from pathlib import Path
from typing import Any

from ..process import protocol
from . import compiled, counters, inputs, listing, own_time, sampling, used_files
from .suite import LoadedSuite


def inspect(
    suite: LoadedSuite, target: protocol.Inspect
) -> protocol.FirstRun | protocol.Value | protocol.Skipped:
    """Run a benchmark for the first time."""
    used_files.listen()  # this must come before any import
    first = compiled.Compilations()
    compiled.import_jax_for(suite.folder)
    worked, waited = own_time.scheduled()
    with first.counted():
        benchmark, setup_s = inputs.timed(lambda: suite.prepare(target))
        if benchmark is None:
            return protocol.Skipped()
        if benchmark.type != "time":
            return _value(suite, benchmark)
        sampling.sample(benchmark, 1)
    # The sides are inspected on different cores. Time that a neighbour took from one core must not
    # count as compile time.
    worked_now, waited_now = own_time.scheduled()
    share = _share(worked_now - worked, waited_now - waited)
    with (again := compiled.Compilations()).counted():
        second_s = sampling.own_s(benchmark)
    # the footprint is added after the teardown, which may import something too
    found = protocol.FirstRun(
        seconds=sampling.quickest(benchmark, second_s),
        compile_s=first.seconds * share,
        compilations=first.count,
        second_call_compilations=again.count if "jax" in sys.modules else None,
        cpu_instructions=_instructions(benchmark),
        program=_program(benchmark, suite.exchange, target.row),
        footprint=None,
        inputs_differ=inputs.differ(benchmark, setup_s),
    )
    suite.release(target.row)
    return dataclasses.replace(found, footprint=_footprint(suite))


def time_first_calls(
    suite: LoadedSuite, target: protocol.TimeFirstCalls
) -> protocol.Seconds | protocol.Skipped:
    """Set up a benchmark that was inspected before, and time its first calls again."""
    benchmark = suite.prepare(target)
    if benchmark is None:
        return protocol.Skipped()
    sampling.sample(benchmark, 1)
    seconds = sampling.quickest(benchmark, sampling.own_s(benchmark))
    suite.release(target.row)
    return protocol.Seconds(seconds)


def _share(worked: int, waited: int) -> float:
    """Return the share of the time with a core, of all time in which the process wanted one."""
    return worked / (worked + waited) if worked > 0 else 1.0


def _instructions(benchmark: Any) -> int | None:
    if not counters.can_count():
        return None
    instructions = counters.Counter()
    sampling.call_within(benchmark, instructions.counted())
    return instructions.count


def _value(suite: LoadedSuite, benchmark: Any) -> protocol.Value | protocol.Skipped:
    value = benchmark.do_run()
    if benchmark.type == "peakmemory":
        value = _peak_bytes() or value
    benchmark.do_teardown()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return protocol.Skipped()
    if not isinstance(value, (int, float)) and not hasattr(value, "__float__"):
        raise TypeError(f"the benchmark returned {type(value).__name__}, which is not a number")
    if math.isinf(value):
        raise ValueError(f"the benchmark returned {value}, which can't be compared")
    return protocol.Value(float(value), _footprint(suite))


def _footprint(suite: LoadedSuite) -> protocol.Footprint:
    return protocol.Footprint(suite.imported(), suite.has_all_imports())


def _peak_bytes() -> int | None:
    """Return this program's peak memory. getrusage would include the peak of its parent process."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def _program(benchmark: Any, exchange: Path, row: str) -> protocol.ProgramFiles | None:
    """Write the texts of the program that the benchmark's class offers to files."""
    owner = listing.owner_of(benchmark)
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
