"""The machine that the gate runs on, and what the gate can't control there."""

import os
import platform
import re
import time
from dataclasses import dataclass
from pathlib import Path

_WATCHING_S = 0.5


def pick_core() -> int | None:
    """Return the core to pin pairs to: the idlest one. Of equally idle ones it is the last.

    The first core serves most interrupts. Returns None if pinning isn't possible.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    before = _idle_ticks()
    time.sleep(_WATCHING_S)
    after = _idle_ticks()
    return max(
        os.sched_getaffinity(0), key=lambda core: (after.get(core, 0) - before.get(core, 0), core)
    )


def other_core(core: int | None) -> int | None:
    """Return another core, on the same socket if there is one.

    Returns `core` itself if there is no other, and None if pinning isn't possible.
    """
    if core is None:
        return None
    return max(
        os.sched_getaffinity(0) - {core},
        key=lambda each: (_socket(each) == _socket(core), each),
        default=core,
    )


def _socket(core: int) -> str:
    file = Path(f"/sys/devices/system/cpu/cpu{core}/topology/physical_package_id")
    try:
        return file.read_text()
    except OSError:
        return ""


def _idle_ticks() -> dict[int, int]:
    """Return each core's idle time so far, in kernel ticks; empty if it can't be read."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return {}
    words = [line.split() for line in lines if re.match(r"cpu\d", line)]
    return {int(each[0].removeprefix("cpu")): int(each[4]) for each in words}


def describe() -> dict[str, str]:
    """Return the facts by which a reader can tell machines apart."""
    return {
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count() or "unknown"),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


@dataclass(frozen=True)
class Conditions:
    """The machine's load at one moment."""

    load: float | None
    steal: int
    ticks: int


def observe() -> Conditions:
    """Read the load, and the time that the hypervisor gave to other machines."""
    try:
        load = os.getloadavg()[0]
    except OSError:
        load = None
    try:
        ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    except (OSError, IndexError, ValueError):
        ticks = []
    return Conditions(load, ticks[7] if len(ticks) > 7 else 0, sum(ticks[:8]))


def uncontrolled(
    before: Conditions, after: Conditions, core: int | None, *, counts_instructions: bool
) -> list[str]:
    """Return a sentence for everything that may have disturbed the timing or could not be measured.

    Args:
        before: the machine's load when the run began.
        after: its load now.
        core: the core that pairs were pinned to.
        counts_instructions: whether workers could count the processor's instructions.
    """
    notes = []
    if core is None:
        notes.append("Processes can't be pinned to a core here, which makes timings much noisier.")
    if not counts_instructions:
        notes.append("The processor's instructions can't be counted here.")
    # `before` was read before the gate itself did any work.
    if before.load is not None and before.load > 0.5:
        notes.append(f"Other processes kept {before.load:.1f} cores busy when the run began.")
    stolen = (after.steal - before.steal) / max(1, after.ticks - before.ticks)
    if stolen > 0.005:
        notes.append(f"The hypervisor gave {stolen:.1%} of the time to other machines.")
    return notes


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        "unknown",
    )
