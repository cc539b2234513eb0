"""Count the instructions of one call with valgrind, for machines without counters.

`--instructions valgrind` runs two workers on valgrind's simulated processor, which counts all
instructions of each. The workers do the same, but one leaves the calls out. So the difference is
the calls' alone, without their setup. This needs no clock, and a busy machine changes nothing.
"""

import contextlib
import dataclasses
import math
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from perfgate.errors import UsageError
from perfgate.measure.workers import Say, TimeSpentError
from perfgate.process import protocol
from perfgate.process.channel import Worker, WorkerError
from perfgate.source.sides import Side, Sides
from perfgate.stages import Inspected

_VALGRIND = (
    "valgrind",
    "--tool=cachegrind",
    "--cache-sim=no",
    "--cachegrind-out-file=/dev/null",
)
_TOTAL = re.compile(r"I\s+refs:\s+([\d,]+)")
_SLOWER = 50  # work takes about this many times as long under valgrind
# Seconds of calls to count: enough that the worker's other work hardly matters.
_CALLS_S = 0.02
_MOST_CALLS = 1_000


def check_installed() -> None:
    """Look for valgrind.

    Raises:
        UsageError: valgrind is not on PATH.
    """
    if shutil.which("valgrind") is None:
        raise UsageError(
            "--instructions valgrind needs valgrind, which is not installed; install it with your "
            "system's package manager."
        )


def with_instructions(row: Inspected, sides: Sides, say: Say, deadline: float) -> Inspected:
    """Count the instructions of one call on both sides.

    Nothing is counted if both sides hold the same code, if the row runs in interpreters of its own,
    or if valgrind can't run it. The row stays as it is then.

    Raises:
        TimeSpentError: the count was not complete at `deadline`.
    """
    seconds = row.head.seconds
    if sides.same_code or not row.is_comparable or row.benchmark.kind != "time" or not seconds:
        return row
    say(f"counting the instructions of {row.name}")
    calls = min(_MOST_CALLS, max(1, math.ceil(_CALLS_S / seconds)))
    target = row.benchmark.target
    requests = [protocol.Repeat(*target, calls, left_out) for left_out in (False, True)]
    wanted = [(side, request) for side in (sides.base, sides.head) for request in requests]
    try:
        limit_s = min(_SLOWER * row.benchmark.timeout_s, deadline - time.monotonic())
        base, base_without, head, head_without = _totals(wanted, sides, limit_s)
    except WorkerError:
        if time.monotonic() >= deadline:
            raise TimeSpentError from None
        return row
    counts = {"base": (base - base_without) / calls, "head": (head - head_without) / calls}
    if min(counts.values()) <= 0:
        return row
    for name, run in row.sides.items():
        assert isinstance(run.ran, protocol.FirstRun)
        ran = dataclasses.replace(run.ran, cpu_instructions=round(counts[name]))
        row = row.with_side(name, dataclasses.replace(run, ran=ran))
    return row


def _totals(
    wanted: Sequence[tuple[Side, protocol.Repeat]], sides: Sides, limit_s: float
) -> list[int]:
    """Return the instructions of whole workers, each given by its side and its request.

    All of them run at once, since neighbours don't change a count.

    Raises:
        WorkerError: valgrind could not run one.
    """
    with contextlib.ExitStack() as stack:
        place = tempfile.TemporaryDirectory(prefix="valgrind-", dir=sides.folder)
        folder = Path(stack.enter_context(place))
        workers = []
        for number, (side, request) in enumerate(wanted):
            within = (*_VALGRIND, f"--log-file={folder / str(number)}")
            launch = dataclasses.replace(sides.launch(side), within=within)
            worker = stack.enter_context(Worker(launch))
            worker.send(request)
            workers.append((worker, request))
        for worker, request in workers:
            worker.receive(request, limit_s)
            worker.finish(limit_s)
        return [_read_total(folder / str(number)) for number in range(len(wanted))]


def _read_total(log: Path) -> int:
    found = _TOTAL.search(log.read_text(errors="replace"))
    if found is None:
        raise WorkerError("valgrind did not print the number of instructions", alive=False)
    return int(found[1].replace(",", ""))
