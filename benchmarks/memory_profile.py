"""Measure a compiled chunk's memory, as stated by the compiler and as held by a process.

    python benchmarks/memory_profile.py                   over numbers of environments
    python benchmarks/memory_profile.py --profile scan --agent dqn

An asv suite and a command line. Every size runs in a new process, whose peak includes the libraries
and the compiler. If a size does not fit, only its own row is lost.
"""

import argparse
import sys
from typing import ClassVar

from benchmarks.harness.asv_suite import AsvSuite, names_of
from benchmarks.harness.programs import compile_in_child, machine, program, request_of, stated
from benchmarks.harness.tables import markdown, readable
from benchmarks.harness.worker import ChildError
from benchmarks.harness.workload import Workload
from benchmarks.runner import Run, Script, agent, environment, switch, text, whole

_CHUNK = 128
_QUICK_SIZES = (1_000, 10_000, 100_000)
_FULL_SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
_QUICK_CHUNKS = (1, 32, 1_024)
_FULL_CHUNKS = tuple(2**power for power in range(11))
_QUICK_SCAN_ENVS = 1_000
_FULL_SCAN_ENVS = 100_000
_HEADERS = ("environments", "scan chunk", "arguments", "temporaries", "outputs", "code", "peak")
_BYTES = ("argument_bytes", "temp_bytes", "output_bytes", "code_bytes", "peak_bytes")
_KEPT = ("scan_chunk_size", "argument_bytes", "temp_bytes", "peak_bytes")


class Memory(AsvSuite):
    """Bytes that the compiler states for a chunk, and the peak of a process that runs it."""

    suite = "memory"
    params: ClassVar = names_of(suite)
    version = "1"

    def prepare(self, declared: Workload) -> None:
        self.compiled = program(**request_of(declared))  # nothing is allocated yet

    def track_argument_bytes(self, workload: str) -> int:
        """Return the bytes of the state that a chunk is given, on all devices."""
        return stated(self.compiled)["argument_bytes"]

    def track_temp_bytes(self, workload: str) -> int:
        """Return the bytes that live only inside the chunk, on all devices."""
        return stated(self.compiled)["temp_bytes"]

    def peakmem_chunk(self, workload: str) -> None:
        """Run one chunk."""
        self.compiled.start()
        self.compiled.run(self.compiled.scan_chunk_size)

    track_argument_bytes.unit = "bytes"  # type: ignore[attr-defined]
    track_temp_bytes.unit = "bytes"  # type: ignore[attr-defined]


def _measure(run: Run) -> None:
    options = run.options
    request = {"env": options.env, "agent": options.agent}
    run.open(f"memory_{options.profile}")
    columns = machine()["columns"]
    for profile in ("envs", "scan") if options.profile == "both" else (options.profile,):
        lines = []
        for size in _sizes(profile, options):
            row = columns | request | size | {"suite": f"memory_{profile}"}
            shown = ["-"] * len(_BYTES)
            try:
                reply = compile_in_child(request | size, runs=True)
            except ChildError as error:
                row |= error.columns
                shown[-1] = error.status
                reply = {}
            else:
                row |= {name: reply[name] for name in _KEPT}
                shown = [readable(reply[name]) for name in _BYTES]
            run.file.add([row], request | size | reply)
            lines.append([f"{size['num_envs']:,}", f"{row['scan_chunk_size']:,}", *shown])
        print(f"{request['env']} with {request['agent']}\n\n{markdown(_HEADERS, lines)}")


def _sizes(profile: str, options: argparse.Namespace) -> list[dict[str, int]]:
    if profile == "envs":
        sizes = _FULL_SIZES if options.full else _QUICK_SIZES
        if options.num_envs:
            sizes = (options.num_envs,)
        return [{"num_envs": num_envs, "scan_chunk_size": _CHUNK} for num_envs in sizes]
    num_envs = options.num_envs or (_FULL_SCAN_ENVS if options.full else _QUICK_SCAN_ENVS)
    chunks = _FULL_CHUNKS if options.full else _QUICK_CHUNKS
    return [{"num_envs": num_envs, "scan_chunk_size": chunk} for chunk in chunks]


SCRIPT = Script(
    "memory_profile",
    __doc__,
    _measure,
    {
        "--profile": text(
            "profile over environments, scan chunks, or both",
            "envs",
            choices=("envs", "scan", "both"),
        ),
        "--env": text("environment, or package.module:Class", "cartpole", type=environment),
        "--agent": text("agent (default: random)", "random", type=agent),
        "--num-envs": whole("profile only this number of environments"),
        "--full": switch("profile up to 1,000,000 environments, and chunks of 1 to 1,024"),
    },
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
