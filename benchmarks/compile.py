"""Measure the seconds to compile, with and without the persistent cache, and program sizes.

    python benchmarks/compile.py                         the quick tier of suite.toml
    python benchmarks/compile.py --full                  more agents, more launches
    python benchmarks/compile.py --agent pqn --env snake

An asv suite and a command line. Every compilation runs in a new process, because an earlier one
would speed it up.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import argparse
import functools
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.harness import package
from benchmarks.harness.command_line import (
    Parser,
    command_of,
    guarded,
    readable,
    report,
    resolved_agent,
    resolved_env,
)
from benchmarks.harness.process.child_process import Reply, run
from benchmarks.harness.process.failures import ChildError
from benchmarks.harness.programs import (
    TIMEOUT_S,
    machine,
    program,
    request_of,
    skip_unless_compilable,
)
from benchmarks.harness.results import ResultsFile, Row, machine_columns, markdown, new_row
from benchmarks.harness.workloads import Workload, load, tier_from_environment

_SCRIPT = "benchmarks/compile.py"
QUICK_LAUNCHES = 3
FULL_LAUNCHES = 6
_USE_COMPILATION_CACHE = "myriad.xla:use_compilation_cache"


class Compile:
    """Seconds to compile in a new process without a cache, and how large the programs are."""

    params: ClassVar = list(load().select("compile", tier_from_environment()))
    param_names: ClassVar = ["workload"]
    version = "2"
    timeout = 600

    def setup(self, workload: str) -> None:
        """Have asv skip what this commit or machine can't run."""
        declared = load().workloads["compile"][workload]
        skip_unless_compilable(declared)
        package.find(_USE_COMPILATION_CACHE)
        self.request = request_of(declared)

    def track_compile_s(self, workload: str) -> float:
        """Return what one launch took; the gate launches again where a value is suspect."""
        return self._compiled_once()["compile_s"]

    def track_instructions(self, workload: str) -> int:
        """Return the instructions of the optimised programs."""
        return self._compiled_once()["instructions"]

    def _compiled_once(self) -> Reply:
        """Compile in a child, once for all benchmarks of this workload in this process."""
        return _launched_once(json.dumps(self.request))

    track_compile_s.unit = "seconds"  # type: ignore[attr-defined]
    track_instructions.unit = "instructions"  # type: ignore[attr-defined]


def _compiled_in_child(**request: Any) -> Reply:
    """Compile in this process, with the cache that its environment names."""
    # All suites import inside functions. asv imports each suite to list its benchmarks, and
    # importing JAX takes a second.
    import jax

    import myriad
    from myriad import settings

    use_compilation_cache = package.find(_USE_COMPILATION_CACHE)

    myriad.configure()
    # Otherwise a user's own cache would serve the cold launch.
    jax.config.update("jax_compilation_cache_dir", None)
    if (folder := settings.compilation_cache()) is not None:
        use_compilation_cache(folder)
    compiled = program(**request)
    return {
        "columns": machine_columns(),
        "scan_chunk_size": compiled.scan_chunk_size,
        "compile_s": compiled.compile_s,
        "instructions": sum(report.instructions for report in compiled.reports),
        "code_bytes": sum(report.generated_code_bytes for report in compiled.reports),
    }


@functools.cache
def _launched_once(request: str) -> Reply:
    return _launch(json.loads(request), "off")


def _launch(request: dict[str, Any], cache: str) -> Reply:
    return run(
        "benchmarks.compile:_compiled_in_child",
        request,
        timeout_s=TIMEOUT_S,
        MYRIAD_COMPILATION_CACHE=cache,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return guarded(_run, argv)


def _run(argv: list[str]) -> bool:
    options = _parse(argv)
    file = ResultsFile("compile", options.output, command_of(_SCRIPT, argv))
    workloads = chosen(options)
    columns = machine()["columns"]
    lines = []
    for workload in workloads:
        launches, error = _launches(workload, FULL_LAUNCHES if options.full else QUICK_LAUNCHES)
        described = columns | {
            "agent": workload.agent,
            "env": workload.env,
            "num_envs": workload.num_envs,
        }
        described["scan_chunk_size"] = (
            launches[0]["scan_chunk_size"] if launches else workload.scan_chunk_size
        )
        file.add_rows(rows_of(launches, error, described, file.timestamp), launches)
        lines.append(_line(workload, launches, error))
    headers = [
        "environment",
        "agent",
        "environments",
        "cold, s (least to most)",
        "from the cache, s (least to most)",
    ]
    print(markdown([*headers, "instructions", "code", "in the cache"], lines))
    return report(file)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(_SCRIPT, __doc__)
    parser.add_argument(
        "--full",
        action="store_true",
        help="measure all of suite.toml, with more launches of each program",
    )
    parser.add_env(None)
    parser.add_agent(None)
    parser.add_num_envs()
    parser.add_output()
    return parser.parse_args(argv)


def chosen(options: argparse.Namespace) -> list[Workload]:
    """Return the workloads of suite.toml with the flags' values.

    Raises:
        UnknownNameError: there is no such environment or agent.
    """
    workloads = list(
        load().select("compile", "full" if options.full else tier_from_environment()).values()
    )
    if options.agent:
        agent = resolved_agent(options.agent)
        declared = [
            workload for workload in load().workloads["compile"].values() if workload.agent == agent
        ]
        workloads = declared[:1] or [replace(workloads[0], agent=agent)]
    given = {
        "env": resolved_env(options.env) if options.env else None,
        "num_envs": options.num_envs,
    }
    given = {name: value for name, value in given.items() if value}
    return [replace(workload, **given) for workload in workloads]


def _launches(workload: Workload, num_launches: int) -> tuple[list[Reply], ChildError | None]:
    """Launch a cold process and one with its cache in turn, until one fails."""
    launches: list[Reply] = []
    try:
        for _ in range(num_launches):
            with tempfile.TemporaryDirectory() as folder:
                cold = _launch(request_of(workload), folder)
                kept = set(Path(folder).iterdir())
                cold["cache_bytes"] = sum(path.stat().st_size for path in kept)
                cached = _launch(request_of(workload), folder)
                _check_cache(kept, set(Path(folder).iterdir()))
            launches.append(cold | {"cached_s": cached["compile_s"]})
    except ChildError as error:
        return launches, error
    return launches, None


def _check_cache(kept: set[Path], afterwards: set[Path]) -> None:
    """Check that a cached launch compiled nothing. A process keeps every program it compiles."""
    if not kept or afterwards != kept:
        raise ChildError("failed", "a filled cache did not hold every program")


def rows_of(
    launches: Sequence[Reply], error: ChildError | None, described: Row, timestamp: str
) -> list[Row]:
    """Return a row for cold launches and one for cached ones. A failure counts against both."""
    rows = []
    for suite, name in (("compile", "compile_s"), ("compile_cached", "cached_s")):
        if error is not None:
            rows.append(new_row(suite, timestamp, **described, **error.columns))
            continue
        median_s = statistics.median(launch[name] for launch in launches)
        measured = {"compile_s": median_s, "run_s": median_s, "samples": len(launches)}
        rows.append(new_row(suite, timestamp, **described, **measured))
    return rows


def _line(workload: Workload, launches: Sequence[Reply], error: ChildError | None) -> list[str]:
    where = [workload.env, workload.agent, f"{workload.num_envs:,}"]
    if error is not None:
        return [*where, error.status, "-", "-", "-", "-"]
    first = launches[0]
    sizes = [
        f"{first['instructions']:,}",
        readable(first["code_bytes"]),
        readable(first["cache_bytes"]),
    ]
    return [
        *where,
        *(_spread([launch[name] for launch in launches]) for name in ("compile_s", "cached_s")),
        *sizes,
    ]


def _spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"


if __name__ == "__main__":
    sys.exit(main())
