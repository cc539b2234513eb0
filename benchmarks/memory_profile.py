"""Measure a compiled chunk's memory, as stated by the compiler and as held by a process.

    python benchmarks/memory_profile.py                   over numbers of environments
    python benchmarks/memory_profile.py --limit 1GiB      and the most of them that fit
    python benchmarks/memory_profile.py --profile scan --agent dqn

An asv suite and a command line. Every size runs in a new process, whose peak includes the libraries
and the compiler. If a size does not fit, only its own row is lost.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.harness import process
from benchmarks.harness.asv_suite import AsvSuite, names_of
from benchmarks.harness.process import Reply
from benchmarks.harness.programs import TIMEOUT_S, chunk_bytes, machine, program, request_of
from benchmarks.harness.results import Row, machine_columns, markdown, require_new
from benchmarks.harness.worker import ChildError, peak_bytes
from benchmarks.harness.workload import Workload
from benchmarks.runner import (
    Run,
    Script,
    agent,
    environment,
    readable,
    switch,
    text,
    whole,
)

_CHUNK = 128
_QUICK_SIZES = (1_000, 10_000, 100_000)
_FULL_SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
_QUICK_CHUNKS = (1, 32, 1_024)
_FULL_CHUNKS = tuple(2**power for power in range(11))
_QUICK_SCAN_ENVS = 1_000
_FULL_SCAN_ENVS = 100_000
# The share of free memory that a search may use. If it used all, the system would kill other
# processes.
_SHARE = 0.9
# Up to this limit the largest size is really run. Above it, filling the memory takes longer than a
# user wants to wait.
_MOST_VERIFIED = 4 << 30
_STEP = 64  # step of the search, because an agent's batch must divide into minibatches
_HEADERS = ("environments", "scan chunk", "arguments", "temporaries", "outputs", "code", "peak")
_BYTES = ("argument_bytes", "temp_bytes", "output_bytes", "code_bytes", "peak_bytes")
# A margin, since two launches differ, and so do compilations for few and for many environments.
_MARGIN = 32 << 20
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class Memory(AsvSuite):
    """Bytes that the compiler states for a chunk, and the peak of a process that runs it."""

    suite = "memory"
    params: ClassVar = names_of(suite)
    param_names: ClassVar = ["workload"]
    version = "1"

    def prepare(self, declared: Workload) -> None:
        self.compiled = program(**request_of(declared))  # nothing is allocated yet

    def track_argument_bytes(self, workload: str) -> int:
        """Return the bytes of the state that a chunk is given, on all devices."""
        return _stated(self.compiled)["argument_bytes"]

    def track_temp_bytes(self, workload: str) -> int:
        """Return the bytes that live only inside the chunk, on all devices."""
        return _stated(self.compiled)["temp_bytes"]

    def peakmem_chunk(self, workload: str) -> None:
        """Run one chunk."""
        self.compiled.start()
        self.compiled.run(self.compiled.scan_chunk_size)

    track_argument_bytes.unit = "bytes"  # type: ignore[attr-defined]
    track_temp_bytes.unit = "bytes"  # type: ignore[attr-defined]


def _stated(compiled: Any) -> Reply:
    return chunk_bytes(compiled) | {
        "output_bytes": compiled.num_devices * compiled.reports[0].output_bytes,
        "code_bytes": sum(each.generated_code_bytes for each in compiled.reports),
        "stated_bytes": compiled.stated_bytes,
    }


def _peak_of(**request: Any) -> Reply:
    """Run one chunk in this process, and return the stated and the held memory."""
    compiled = program(**request)
    compiled.start()
    compiled.run(compiled.scan_chunk_size)
    found = {
        "columns": machine_columns(),
        "scan_chunk_size": compiled.scan_chunk_size,
        "peak_bytes": peak_bytes(),
    }
    return found | _stated(compiled)


def _most_of(limit: int, overhead: int, **request: Any) -> Reply:
    """Find the most environments whose stated memory fits, without running anything."""
    stated: dict[int, int] = {}

    def needed(num_envs: int) -> int:
        stated[num_envs] = program(**request, num_envs=num_envs).stated_bytes
        return stated[num_envs] + overhead

    most = most_that_fit(needed, limit)
    return {"num_envs": most, "stated_bytes": stated.get(most, 0)}


# Each guess compiles a program, so there should be few. The search follows the line through the
# last two points until it overshoots, and only then bisects.
def most_that_fit(needed: Callable[[int], int], limit: int, step: int = _STEP) -> int:
    """Return the largest multiple of `step` that fits into `limit`, to within 2%, or 0 for none."""
    low = 0
    high = None
    below = 0
    guess = 1
    while high is None or high - low > max(1, low // 50):
        found = needed(guess * step)
        if found > limit:
            high = guess
        elif high is None:
            # Bytes grow linearly, so the next guess is just below the point where the line meets
            # the limit.
            per_step = max(1, (found - below) // (guess - low))
            low = guess
            below = found
            guess = low + max(1, low // 25, int(0.99 * (limit - found)) // per_step)
            continue
        else:
            low = guess
        guess = (low + high) // 2
        if guess == 0:
            break
    return low * step


def _measure(run: Run) -> None:
    options = run.options
    request = {"env": options.env, "agent": options.agent}
    profiles = ("envs", "scan") if options.profile == "both" else (options.profile,)
    outputs = [_output(options, profile) for profile in profiles]
    found = machine()
    limit = options.limit or int(_SHARE * (found["available_bytes"] or 0))
    for profile, output in zip(profiles, outputs, strict=True):
        run.open(f"memory_{profile}", output)
        measured = []
        lines = []
        for size in _sizes(profile, options):
            reply = _size(run, request | size, found["columns"])
            shown = ["-"] * 4 + [run.file.rows[-1]["status"]]
            if reply is not None:
                measured.append(reply)
                shown = [readable(reply[name]) for name in _BYTES]
            chunk = run.file.rows[-1]["scan_chunk_size"]
            lines.append([f"{size['num_envs']:,}", f"{chunk:,}", *shown])
        print(f"{request['env']} with {request['agent']}\n\n{markdown(_HEADERS, lines)}")
        if profile == "envs" and measured and limit:
            print(f"\n{_most(run, request, limit, measured)}")


def _output(options: argparse.Namespace, profile: str) -> Path | None:
    """Return where a profile's rows go. With both profiles, a named file becomes two files."""
    output: Path | None = options.output
    if output is None or output.suffix != ".csv" or options.profile != "both":
        return output
    output = output.with_stem(f"{output.stem}_{profile}")
    require_new(output, force=options.force)
    return output


def size_of(text: str) -> int:
    """Parse a flag that is a number of bytes, such as 4GiB, 500MB or 1000000."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", text, re.IGNORECASE)
    value = (
        int(float(match[1]) * (1024 if match[3] else 1000) ** _UNITS[match[2].upper()])
        if match
        else 0
    )
    if value < 1:
        raise argparse.ArgumentTypeError(
            f"must be a number of bytes such as 4GiB or 500MB, but got {text!r}"
        )
    return value


def _sizes(profile: str, options: argparse.Namespace) -> list[dict[str, int]]:
    if profile == "envs":
        sizes = _FULL_SIZES if options.full else _QUICK_SIZES
        if options.num_envs:
            sizes = (options.num_envs,)
        return [{"num_envs": num_envs, "scan_chunk_size": _CHUNK} for num_envs in sizes]
    num_envs = options.num_envs or (_FULL_SCAN_ENVS if options.full else _QUICK_SCAN_ENVS)
    return [
        {"num_envs": num_envs, "scan_chunk_size": c}
        for c in (_FULL_CHUNKS if options.full else _QUICK_CHUNKS)
    ]


def _size(
    run: Run, request: dict[str, Any], columns: Row, limit: int | None = None, **suite: str
) -> Reply | None:
    """Run one size in a child and save its row. Return its reply, or None for a failure."""
    try:
        reply = process.run(
            "benchmarks.memory_profile:_peak_of", request, **_limits(limit, columns)
        )
        if limit and reply["peak_bytes"] > limit:  # the child's memory is only checked now and then
            raise _refusal(f"it held {reply['peak_bytes']:,} bytes", limit)
    except ChildError as error:
        run.file.add([columns | request | error.columns | suite], request)
        return None
    names = ("scan_chunk_size", "argument_bytes", "temp_bytes", "peak_bytes")
    described = columns | reply["columns"] | request | {name: reply[name] for name in names}
    run.file.add([described | suite], request | reply)
    return reply


def _limits(limit: int | None, columns: Row) -> dict[str, Any]:
    """Return the options of `run` that limit a child's memory, on a CPU or on a device."""
    # The cache is off, because the peak depends on whether anything is compiled.
    always = {"timeout_s": TIMEOUT_S, "MYRIAD_COMPILATION_CACHE": "off"}
    if limit is None:
        return always
    if columns["device"] == "cpu":
        return always | {"memory_limit_bytes": limit}
    share = min(0.95, limit / (columns["memory_total_bytes"] or limit))
    return always | {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{share:.4f}"}


def _refusal(what: str, limit: int) -> ChildError:
    return ChildError("refused", f"{what} and may hold {limit:,}")


def _most(run: Run, request: dict[str, Any], limit: int, measured: Sequence[Reply]) -> str:
    """Find the most environments that fit, run them if that is quick, and save the row."""
    columns = measured[0]["columns"]
    # The search's row is not part of the scaling, since it may have no peak.
    suite = {"suite": "memory_limit"}
    # A process also holds memory that the compiler does not state: the interpreter, libraries and
    # the compiler itself.
    overhead = _MARGIN + max(reply["peak_bytes"] - reply["stated_bytes"] for reply in measured)
    request = request | {"scan_chunk_size": _CHUNK}
    search = request | {"limit": limit, "overhead": overhead}
    try:
        found = process.run("benchmarks.memory_profile:_most_of", search, **_limits(None, columns))
        if not found["num_envs"]:
            raise _refusal(
                f"not even {_STEP} environments fit: the process alone needs {overhead:,} bytes",
                limit,
            )
    except ChildError as error:
        run.file.add([columns | request | {"num_envs": 0} | error.columns | suite], search)
        return f"within {readable(limit)}: {error.status}"
    request["num_envs"] = found["num_envs"]
    says = f"{found['num_envs']:,} environments are the most that fit into {readable(limit)}"
    if limit > _MOST_VERIFIED:
        note = (
            "stated by the compiler and not run, "
            f"as the limit of {limit:,} bytes is above {_MOST_VERIFIED:,}"
        )
        run.file.add([columns | request | suite | {"reason": note}], search | found)
        return f"{says} ({note})"
    reply = _size(run, request, columns, limit, **suite)
    if reply is None:
        status = run.file.rows[-1]["status"]
        return f"{says} by what the compiler states, but running them was {status}"
    return f"{says} (run: they held {readable(reply['peak_bytes'])} at most)"


def _refuses(options: argparse.Namespace) -> str | None:
    if options.limit and options.profile == "scan":
        return "--limit searches over environments, so it needs --profile envs or both"
    return None


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
        "--limit": text(
            "find the most environments that fit into BYTES, such as 4GiB",
            type=size_of,
            metavar="BYTES",
        ),
        "--full": switch("profile up to 1,000,000 environments, and chunks of 1 to 1,024"),
    },
    refuses=_refuses,
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
