"""The machine that the gate runs on."""

import os
import platform
import re
import time
from pathlib import Path

_WATCHING_S = 0.5


def pick_core() -> int | None:
    """Return the core to pin workers to: the idlest one. Of equally idle ones it is the last.

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
    """Return another core: `core` itself if there is no other, None if pinning isn't possible."""
    if core is None:
        return None
    return max(os.sched_getaffinity(0) - {core}, default=core)


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
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [f"model name: {platform.processor()}"]
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "cpu": next(models, "") or "unknown",
        "cores": str(os.cpu_count() or "unknown"),
        "system": f"{platform.system()} {platform.machine()}",
    }
