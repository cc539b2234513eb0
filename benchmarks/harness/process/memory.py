"""Read this process's peak memory. Standard library only, because peers run it without Myriad."""

import resource
import sys
from pathlib import Path


def peak_resident_bytes() -> int:
    """Return this process's peak memory in bytes since its program began.

    On Linux this is the program's own high-water mark. `getrusage` would include the process that
    started it, which may have been far larger.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
            1 if sys.platform == "darwin" else 1024
        )


def peak_bytes() -> int:
    """Return this process's peak bytes, in the device's memory or in the CPU's."""
    if jax := sys.modules.get("jax"):
        device = jax.devices()[0]
        if device.platform != "cpu":
            return device.memory_stats()["peak_bytes_in_use"]
    return peak_resident_bytes()
