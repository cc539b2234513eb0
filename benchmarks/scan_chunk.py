"""Measure steps/s, memory and seconds to compile over the size of the scan chunk.

    python benchmarks/scan_chunk.py                                a few sizes, 1,000 environments
    python benchmarks/scan_chunk.py --full --num-envs 100000       1 to 1,024
    python benchmarks/scan_chunk.py --agent dqn

An asv suite and a command line. All sizes are timed in one process, in rounds of random order, so
that a disturbance of the machine affects all of them. A timed call makes the same number of steps
for each size. memory_profile.py measures the memory of a process.
"""

import functools
import math
import random
import statistics
import sys
from collections.abc import Sequence
from typing import ClassVar

from benchmarks.harness import process
from benchmarks.harness.alternation import in_turns
from benchmarks.harness.asv_suite import AsvSuite, names_of
from benchmarks.harness.process import Reply
from benchmarks.harness.programs import TIMEOUT_S, machine, program, request_of, stated
from benchmarks.harness.results import LEAST_SAMPLES, Row, machine_columns, spread
from benchmarks.harness.tables import between, markdown, readable
from benchmarks.harness.worker import ChildError, failure_of, seconds_of
from benchmarks.harness.workload import Workload
from benchmarks.runner import Run, Script, agent, count, environment, switch, text, whole

_QUICK_CHUNKS = (1, 16, 128, 1_024)
_FULL_CHUNKS = tuple(2**power for power in range(11))
# Rounds, and the seconds that they may take. The rounds that an interval needs are always run.
_QUICK = (11, 10.0)
_FULL = (21, 300.0)
_CALL_S = 0.005  # the shortest call of the fastest size


class ScanChunk(AsvSuite):
    """Seconds of the same number of steps, in one compiled call or in many."""

    suite = "scan_chunk"
    params: ClassVar = names_of(suite)
    version = "1"

    def prepare(self, declared: Workload) -> None:
        self.num_steps = declared.num_steps or declared.scan_chunk_size
        self.compiled = program(**request_of(declared))
        self.compiled.start()
        self.compiled.run(self.num_steps)

    def time_steps(self, workload: str) -> None:
        """Run the steps."""
        self.compiled.run(self.num_steps)


def _timed(
    chunks: Sequence[int], num_rounds: int, max_s: float, env: str, agent: str, num_envs: int
) -> dict[str, list[Reply] | Row]:
    """Time every chunk size in this process. A size that fails gives its reason."""
    found = {}
    programs = {}
    draw = random.Random(0)  # noqa: S311  (an order, no secret)
    # The first compilation of a process is slower than the others, so one is made and thrown away.
    # The others come in random order.
    program(env, agent, num_envs, chunks[0])
    for chunk in draw.sample(list(chunks), len(chunks)):
        try:
            built = program(env, agent, num_envs, chunk)
            # two sizes become one if both round up to the same number of updates
            if built.scan_chunk_size not in found:
                built.start()
                built.run(built.scan_chunk_size)
                programs[built.scan_chunk_size] = built
                found[built.scan_chunk_size] = {
                    "scan_chunk_size": built.scan_chunk_size,
                    "compile_s": built.compile_s,
                    **{name: stated(built)[name] for name in ("argument_bytes", "temp_bytes")},
                }
        except (RuntimeError, MemoryError, ValueError) as error:
            found[chunk] = {"scan_chunk_size": chunk, "failure": failure_of(error)["reason"]}
    if programs:
        num_steps = common_steps(list(programs))
        fastest_s = min(seconds_of(built.run, num_steps) for built in programs.values())
        if fastest_s < _CALL_S:
            num_steps *= math.ceil(1.2 * _CALL_S / fastest_s)
        samplers = {
            chunk: functools.partial(seconds_of, built.run, num_steps)
            for chunk, built in programs.items()
        }
        budget = {"least_rounds": LEAST_SAMPLES, "budget_s": max_s}
        for chunk, seconds in in_turns(samplers, num_rounds, **budget).items():
            found[chunk] |= {"num_steps": num_steps, "seconds": seconds}
    return {"columns": machine_columns(), "chunks": [found[chunk] for chunk in sorted(found)]}


def common_steps(chunks: Sequence[int]) -> int:
    """Return the fewest steps that are whole chunks of every size, or else the largest size."""
    shared = math.lcm(*chunks)
    largest = max(chunks)
    return shared if shared <= 4 * largest else largest


def _measure(run: Run) -> None:
    options = run.options
    described: Row = {"env": options.env, "agent": options.agent}
    described["num_envs"] = options.num_envs
    columns = machine()["columns"]
    chunks = options.scan_chunk_sizes or (_FULL_CHUNKS if options.full else _QUICK_CHUNKS)
    rounds, max_s = _FULL if options.full else _QUICK
    request = described | {"chunks": chunks, "num_rounds": rounds, "max_s": max_s}
    # The cache is off, because programs would be loaded instead of compiled.
    limits = {"timeout_s": TIMEOUT_S, "MYRIAD_COMPILATION_CACHE": "off"}
    try:
        reply = process.run("benchmarks.scan_chunk:_timed", request, **limits)
    except ChildError as error:
        lost = columns | described | error.columns
        run.file.add([lost | {"scan_chunk_size": chunk} for chunk in chunks], request)
        return
    rows = [
        _columns_of(found, options.num_envs) | reply["columns"] | described
        for found in reply["chunks"]
    ]
    run.file.add(rows, reply)
    headers = ["scan chunk", "M steps/s (95% interval)", "of the best"]
    headers += ["compiling, s", "arguments", "temporaries"]
    best = max((row["steps_per_s"] for row in rows if "steps_per_s" in row), default=1.0)
    print(f"{described['env']} with {described['agent']}, {options.num_envs:,} environments\n")
    print(markdown(headers, [_line(row, best) for row in rows]))


def _columns_of(found: Reply, num_envs: int) -> Row:
    """Return the columns of one size."""
    if "failure" in found:
        size = {"scan_chunk_size": found["scan_chunk_size"]}
        return size | {"status": "failed", "reason": found["failure"]}
    kept = {name: value for name, value in found.items() if name != "seconds"}
    rates = [num_envs * found["num_steps"] / seconds for seconds in found["seconds"]]
    return kept | spread(rates, "steps_per_s") | {"run_s": statistics.median(found["seconds"])}


def _line(row: Row, best: float) -> list[str]:
    chunk = f"{row['scan_chunk_size']:,}"
    if "steps_per_s" not in row:
        return [chunk, row["status"], "-", "-", "-", "-"]
    millions = {name: row[name] / 1e6 for name in row if name.startswith("steps_per_s")}
    return [
        chunk,
        between(millions, "steps_per_s", ",.3g"),
        f"{row['steps_per_s'] / best:.2f}",
        f"{row['compile_s']:.2f}",
        *(readable(row[name]) for name in ("argument_bytes", "temp_bytes")),
    ]


SCRIPT = Script(
    "scan_chunk",
    __doc__,
    _measure,
    {
        "--env": text("environment, or package.module:Class", "cartpole", type=environment),
        "--agent": text("agent (default: random)", "random", type=agent),
        "--num-envs": whole("number of parallel environments (default: 1,000)", 1_000),
        "--scan-chunk-sizes": text(
            "sizes to measure (default: some from 1 to 1,024)", type=count, nargs="+", metavar="N"
        ),
        "--full": switch("measure every power of two from 1 to 1,024, in more rounds"),
    },
    suite="scan_chunk",
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
