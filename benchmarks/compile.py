"""Measure the seconds to compile, with and without the persistent cache, and program sizes.

    python benchmarks/compile.py                         the quick tier of suite.toml
    python benchmarks/compile.py --full                  more agents, more launches
    python benchmarks/compile.py --agent pqn --env snake

An asv suite and a command line. Every compilation runs in a new process, because an earlier one
would speed it up.
"""

import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.harness.asv_suite import AsvSuite, names_of
from benchmarks.harness.process import Reply
from benchmarks.harness.programs import compile_in_child, machine, request_of
from benchmarks.harness.results import Row
from benchmarks.harness.tables import markdown, median_of, readable
from benchmarks.harness.worker import ChildError
from benchmarks.harness.workload import Workload
from benchmarks.harness.workloads import load, tier_from_environment
from benchmarks.runner import AGENT, ENV, NUM_ENVS, Run, Script, switch

QUICK_LAUNCHES = 3
FULL_LAUNCHES = 6


class Compile(AsvSuite):
    """Seconds to compile in a new process without a cache, and how large the programs are."""

    suite = "compile"
    params: ClassVar = names_of(suite)
    param_names: ClassVar = ["workload"]
    version = "2"
    timeout = 600
    launched: ClassVar[dict[str, Reply]] = {}  # one launch for all benchmarks of a workload

    def prepare(self, declared: Workload) -> None:
        self.request = request_of(declared)

    def track_compile_s(self, workload: str) -> float:
        """Return what one launch took; the gate launches again where a value is suspect."""
        return self.launch(workload)["compile_s"]

    def track_instructions(self, workload: str) -> int:
        """Return the instructions of the optimised programs."""
        return self.launch(workload)["instructions"]

    def launch(self, workload: str) -> Reply:
        """Compile in a child, once in this process."""
        if workload not in self.launched:
            self.launched[workload] = compile_in_child(self.request, "off")
        return self.launched[workload]

    track_compile_s.unit = "seconds"  # type: ignore[attr-defined]
    track_instructions.unit = "instructions"  # type: ignore[attr-defined]


def _measure(run: Run) -> None:
    workloads = chosen(run.options)
    columns = machine()["columns"]
    lines = []
    for workload in workloads:
        launches, error = _launches(workload, FULL_LAUNCHES if run.options.full else QUICK_LAUNCHES)
        described = columns | request_of(workload)
        if launches:
            described["scan_chunk_size"] = launches[0]["scan_chunk_size"]
        run.file.add(rows_of(launches, error, described), launches)
        lines.append(_line(workload, launches, error))
    headers = ["environment", "agent", "environments", "cold, s (least to most)"]
    headers += ["from the cache, s (least to most)", "instructions", "code", "in the cache"]
    print(markdown(headers, lines))


def chosen(options: Any) -> list[Workload]:
    """Return the workloads of suite.toml with the flags' values."""
    every = load().of("compile")
    tier = "full" if options.full else tier_from_environment()
    workloads = [each for each in every.values() if tier in each.tiers]
    if options.agent:
        of_agent = [each for each in every.values() if each.agent == options.agent]
        workloads = of_agent[:1] or [replace(workloads[0], agent=options.agent)]
    given = {"env": options.env, "num_envs": options.num_envs}
    given = {name: value for name, value in given.items() if value}
    return [replace(workload, **given) for workload in workloads]


def _launches(workload: Workload, num_launches: int) -> tuple[list[Reply], ChildError | None]:
    """Launch a cold process and one with its cache in turn, until one fails."""
    launches: list[Reply] = []
    try:
        for _ in range(num_launches):
            with tempfile.TemporaryDirectory() as folder:
                cold = compile_in_child(request_of(workload), folder)
                kept = set(Path(folder).iterdir())
                cold["cache_bytes"] = sum(path.stat().st_size for path in kept)
                cached = compile_in_child(request_of(workload), folder)
                # A process keeps every program that it compiles.
                if not kept or set(Path(folder).iterdir()) != kept:
                    return [], ChildError("failed", "a filled cache did not hold every program")
            launches.append(cold | {"cached_s": cached["compile_s"]})
    except ChildError as error:
        return launches, error
    return launches, None


def rows_of(launches: Sequence[Reply], error: ChildError | None, described: Row) -> list[Row]:
    """Return a row for cold launches and one for cached ones. A failure counts against both."""
    rows = []
    for suite, name in (("compile", "compile_s"), ("compile_cached", "cached_s")):
        row = described | {"suite": suite}
        if error is not None:
            rows.append(row | error.columns)
            continue
        median_s = statistics.median(launch[name] for launch in launches)
        rows.append(row | {"compile_s": median_s, "run_s": median_s, "samples": len(launches)})
    return rows


def _line(workload: Workload, launches: Sequence[Reply], error: ChildError | None) -> list[str]:
    where = [workload.env, workload.agent, f"{workload.num_envs:,}"]
    if error is not None:
        return [*where, error.status, "-", "-", "-", "-"]
    first = launches[0]
    names = ("compile_s", "cached_s")
    seconds = [median_of([each[name] for each in launches]) for name in names]
    sizes = [readable(first["code_bytes"]), readable(first["cache_bytes"])]
    return [*where, *seconds, f"{first['instructions']:,}", *sizes]


SCRIPT = Script(
    "compile",
    __doc__,
    _measure,
    {
        "--full": switch("measure all of suite.toml, with more launches of each program"),
        "--env": ENV,
        "--agent": AGENT,
        "--num-envs": NUM_ENVS,
    },
    suite="compile",
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
