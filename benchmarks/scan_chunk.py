"""Measure steps/s, memory and seconds to compile over the size of the scan chunk.

    python benchmarks/scan_chunk.py                                a few sizes, 1,000 environments
    python benchmarks/scan_chunk.py --full --num-envs 100000       1 to 1,024
    python benchmarks/scan_chunk.py --agent dqn

An asv suite and a command line. All sizes are timed in one process, in rounds of random order, so
that a disturbance of the machine affects all of them. A timed call makes the same number of steps
for each size. memory_profile.py measures the memory of a process.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from benchmarks.harness.command_line import (
    Parser,
    command_of,
    count,
    guarded,
    readable,
    report,
    resolved_agent,
    resolved_env,
)
from benchmarks.harness.process.child_process import Reply, run
from benchmarks.harness.process.clock import seconds_of
from benchmarks.harness.process.failures import ChildError, failure_of
from benchmarks.harness.programs import (
    TIMEOUT_S,
    chunk_bytes,
    machine,
    program,
    request_of,
    skip_unless_compilable,
)
from benchmarks.harness.results import (
    LEAST_SAMPLES,
    ResultsFile,
    Row,
    machine_columns,
    markdown,
    new_row,
    spread,
)
from benchmarks.harness.workloads import load, tier_from_environment

_SCRIPT = "benchmarks/scan_chunk.py"
_QUICK_CHUNKS = (1, 16, 128, 1_024)
_FULL_CHUNKS = tuple(2**power for power in range(11))
_QUICK_ROUNDS = 11
_FULL_ROUNDS = 21
# Seconds of timed rounds. The rounds that an interval needs are always run.
_QUICK_S = 10.0
_FULL_S = 300.0
_CALL_S = 0.005  # the shortest call of the fastest size


class ScanChunk:
    """Seconds of the same number of steps, in one compiled call or in many."""

    params: ClassVar = list(load().select("scan_chunk", tier_from_environment()))
    param_names: ClassVar = ["workload"]
    version = "1"
    timeout = 300
    prepared = ""

    def setup(self, workload: str) -> None:
        """Compile and warm up, once: asv calls this before every sample."""
        if self.prepared != workload:
            declared = load().workloads["scan_chunk"][workload]
            skip_unless_compilable(declared)
            self.num_steps = declared.num_steps or declared.scan_chunk_size
            self.compiled = program(**request_of(declared))
            self.compiled.start()
            self.compiled.run(self.num_steps)
            self.prepared = workload

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
                } | chunk_bytes(built)
        except (RuntimeError, MemoryError, ValueError) as error:
            found[chunk] = {"scan_chunk_size": chunk, "failure": failure_of(error)["reason"]}
    if programs:
        for chunk, timed in _rounds(programs, num_rounds, max_s).items():
            found[chunk] |= timed
    return {"columns": machine_columns(), "chunks": [found[chunk] for chunk in sorted(found)]}


def _rounds(programs: dict[int, Any], num_rounds: int, max_s: float) -> dict[int, Reply]:
    """Time the same steps with every program in each round, in an order drawn anew."""
    num_steps = common_steps(list(programs))
    fastest_s = min(seconds_of(built.run, num_steps) for built in programs.values())
    if fastest_s < _CALL_S:
        num_steps *= math.ceil(1.2 * _CALL_S / fastest_s)
    seconds: dict[int, list[float]] = {chunk: [] for chunk in programs}
    order = list(programs)
    draw = random.Random(0)  # noqa: S311  (an order, no secret)
    start = time.perf_counter()
    for done in range(num_rounds):
        if done >= LEAST_SAMPLES and time.perf_counter() - start > max_s:
            break
        draw.shuffle(order)
        for chunk in order:
            seconds[chunk].append(seconds_of(programs[chunk].run, num_steps))
    return {chunk: {"num_steps": num_steps, "seconds": taken} for chunk, taken in seconds.items()}


def common_steps(chunks: Sequence[int]) -> int:
    """Return the fewest steps that are whole chunks of every size, or else the largest size."""
    shared = math.lcm(*chunks)
    largest = max(chunks)
    return shared if shared <= 4 * largest else largest


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return guarded(_run, argv)


def _run(argv: list[str]) -> bool:
    options = _parse(argv)
    described = {"env": resolved_env(options.env), "agent": resolved_agent(options.agent)}
    described["num_envs"] = options.num_envs
    file = ResultsFile("scan_chunk", options.output, command_of(_SCRIPT, argv))
    columns = machine()["columns"]
    chunks = options.scan_chunk_sizes or (_FULL_CHUNKS if options.full else _QUICK_CHUNKS)
    rounds, max_s = (_FULL_ROUNDS, _FULL_S) if options.full else (_QUICK_ROUNDS, _QUICK_S)
    request = described | {"chunks": chunks, "num_rounds": rounds, "max_s": max_s}
    try:
        # The cache is off, because programs would be loaded instead of compiled.
        reply = run(
            "benchmarks.scan_chunk:_timed",
            request,
            timeout_s=TIMEOUT_S,
            MYRIAD_COMPILATION_CACHE="off",
        )
    except ChildError as error:
        lost = columns | described | error.columns
        rows = [lost | {"scan_chunk_size": chunk} for chunk in chunks]
        file.add_rows([new_row("scan_chunk", file.timestamp, **row) for row in rows], request)
        return report(file)
    rows = [
        _columns_of(found, options.num_envs) | reply["columns"] | described
        for found in reply["chunks"]
    ]
    file.add_rows([new_row("scan_chunk", file.timestamp, **row) for row in rows], reply)
    headers = [
        "scan chunk",
        "M steps/s (95% interval)",
        "of the best",
        "compiling, s",
        "arguments",
        "temporaries",
    ]
    best = max((row["steps_per_s"] for row in rows if "steps_per_s" in row), default=1.0)
    print(f"{described['env']} with {described['agent']}, {options.num_envs:,} environments\n")
    print(markdown(headers, [_line(row, best) for row in rows]))
    return report(file)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(_SCRIPT, __doc__)
    parser.add_env("cartpole")
    parser.add_agent("random")
    parser.add_num_envs(1_000)
    parser.add_argument(
        "--scan-chunk-sizes",
        type=count,
        nargs="+",
        metavar="N",
        help="sizes to measure (default: some from 1 to 1,024)",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="measure every power of two from 1 to 1,024, in more rounds",
    )
    parser.add_output()
    return parser.parse_args(argv)


def _columns_of(found: Reply, num_envs: int) -> Row:
    """Return the columns of one size."""
    if "failure" in found:
        return {
            "scan_chunk_size": found["scan_chunk_size"],
            "status": "failed",
            "reason": found["failure"],
        }
    kept = {name: value for name, value in found.items() if name != "seconds"}
    rates = [num_envs * found["num_steps"] / seconds for seconds in found["seconds"]]
    return kept | spread(rates, "steps_per_s") | {"run_s": statistics.median(found["seconds"])}


def _line(row: Row, best: float) -> list[str]:
    chunk = f"{row['scan_chunk_size']:,}"
    if "steps_per_s" not in row:
        return [chunk, row["status"], "-", "-", "-", "-"]
    rate, low, high = (row[f"steps_per_s{end}"] / 1e6 for end in ("", "_low", "_high"))
    bytes_ = [readable(row[name]) for name in ("argument_bytes", "temp_bytes")]
    return [
        chunk,
        f"{rate:,.3g} ({low:,.3g} to {high:,.3g})",
        f"{row['steps_per_s'] / best:.2f}",
        f"{row['compile_s']:.2f}",
        *bytes_,
    ]


if __name__ == "__main__":
    sys.exit(main())
