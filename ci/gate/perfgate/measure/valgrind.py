"""Instructions of one call on a machine without counters, by valgrind: `--instructions valgrind`.

valgrind runs a worker on a processor that it simulates, and says at its end how many instructions
that took. Two workers do the same, but one of them leaves the calls out. The difference is theirs
alone, without their setup. That needs no clock, and a busy machine changes nothing.
"""

import contextlib
import dataclasses
import math
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from perfgate.errors import UsageError
from perfgate.measure.workers import Say
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
_SLOWER = 50  # times: how much longer work takes there, about
_CALLS_S = 0.02  # seconds of calls, so that what else a worker does matters little
_MOST_CALLS = 1_000


def check_installed() -> None:
    """Look for valgrind.

    Raises:
        UsageError: it is not on the path.
    """
    if shutil.which("valgrind") is None:
        raise UsageError("--instructions valgrind needs valgrind, which is not installed.")


def with_instructions(rows: Sequence[Inspected], sides: Sides, say: Say) -> list[Inspected]:
    """Count the instructions of one call of each row on both sides.

    A row stays as it is where both sides hold the same code, where it runs in interpreters of its
    own, or where valgrind can't run it: nothing is counted there.
    """
    return [_with_instructions(row, sides, say) for row in rows]


def _with_instructions(row: Inspected, sides: Sides, say: Say) -> Inspected:
    seconds = row.head.seconds
    if sides.same_code or not row.is_comparable or row.benchmark.kind != "time" or not seconds:
        return row
    say(f"counting the instructions of {row.name}")
    calls = min(_MOST_CALLS, max(1, math.ceil(_CALLS_S / seconds)))
    target = row.benchmark.target
    requests = [protocol.Repeat(*target, calls, left_out) for left_out in (False, True)]
    wanted = [(side, request) for side in (sides.base, sides.head) for request in requests]
    try:
        base, base_without, head, head_without = _totals(wanted, sides, row.benchmark.timeout_s)
    except WorkerError:
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
    wanted: Sequence[tuple[Side, protocol.Repeat]], sides: Sides, timeout_s: float
) -> list[int]:
    """Return the instructions of whole workers, each of a side and what it is asked.

    All of them run at once, since a count minds no neighbours.

    Raises:
        WorkerError: valgrind could not run one.
    """
    limit_s = _SLOWER * timeout_s
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
        raise WorkerError("valgrind said nothing of its instructions", alive=False)
    return int(found[1].replace(",", ""))
