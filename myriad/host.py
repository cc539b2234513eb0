"""The machine as the operating system describes it: processor, cores, and this process's memory.

On Linux this is read from `/proc` and `/sys`, so that a container's limits count. Functions take
the root of the file system as `root`, for tests.
"""

import contextlib
import ctypes
import gc
import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")
# Fields of `/proc/self/statm`, in pages.
_MAPPED, _RESIDENT, _DATA = 0, 1, 5


def core_numbers() -> list[int]:
    """Return the numbers of the logical cores that this process may run on, in their order."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def usable_cores(root: Path = _ROOT) -> int:
    """Return the logical cores that this process may run on.

    A container's quota counts in whole cores.
    """
    cores = len(core_numbers())
    for group in _control_groups("cpu", root):
        quota, period = (_read(group / "cpu.max") or "max 0").split()
        quota = _read(group / "cpu.cfs_quota_us") or quota
        period = _read(group / "cpu.cfs_period_us") or period
        if quota not in ("max", "-1"):
            cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def cpu_name(root: Path = _ROOT) -> str:
    """Return the name that the processor gives itself."""
    name = re.search(r"^model name\s*:\s*(.+)$", _read(root / "proc/cpuinfo") or "", re.MULTILINE)
    if name:
        return name[1]
    if platform.system() == "Darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603  (fixed)
    return platform.processor() or platform.machine()


def has_512_bit_vectors(root: Path = _ROOT) -> bool:
    """Return whether the processor has AVX-512."""
    cpuinfo = _read(root / "proc/cpuinfo") or ""
    return re.search(r"^flags\s*:.*\bavx512f\b", cpuinfo, re.MULTILINE) is not None


def host_memory(root: Path = _ROOT) -> tuple[int | None, int | None]:
    """Return the total and the available bytes of RAM, None where they are unknown.

    Both are at most what the process's control groups allow. Available memory is also at most what
    `ulimit -v` and `ulimit -d` leave.
    """
    lines = re.findall(r"^(\w+):\s+(\d+) kB$", _read(root / "proc/meminfo") or "", re.MULTILINE)
    meminfo = {name: int(kib) * 1024 for name, kib in lines}
    if not meminfo:
        # macOS tells how much there is, but not how much is free.
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), None
    total = meminfo["MemTotal"]
    available = meminfo["MemAvailable"]
    for group in _control_groups("memory", root):
        limit = _read(group / "memory.max") or _read(group / "memory.limit_in_bytes")
        if limit is None or limit == "max":
            continue
        total = min(total, int(limit))
        available = min(available, max(0, int(limit) - _held_bytes(group)))
    return total, min([available, *_left_by_ulimit(root)])


def resident_bytes(root: Path = _ROOT) -> int:
    """Return the bytes of memory that this process holds, or the most it ever held if unknown."""
    statm = _read(root / "proc/self/statm")
    if statm is not None:
        return int(statm.split()[_RESIDENT]) * os.sysconf("SC_PAGE_SIZE")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def release_freed_memory() -> None:
    """Have the C library return freed memory to the system.

    By itself it keeps most of it, such as 270 MB after PPO's programs are compiled.
    """
    # Only glibc has this function, and only glibc needs it.
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's garbage collector where it would find nothing, as timeit does."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _left_by_ulimit(root: Path) -> Iterator[int]:
    """Yield the bytes that each of this process's own limits leaves."""
    statm = _read(root / "proc/self/statm")
    if statm is None:
        return
    pages = [int(field) for field in statm.split()]
    for kind, held in ((resource.RLIMIT_AS, _MAPPED), (resource.RLIMIT_DATA, _DATA)):
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY:
            yield max(0, limit - pages[held] * os.sysconf("SC_PAGE_SIZE"))


def _held_bytes(group: Path) -> int:
    """Return the bytes that a control group holds and can't give back."""
    used = _read(group / "memory.current") or _read(group / "memory.usage_in_bytes") or "0"
    lines = (_read(group / "memory.stat") or "").splitlines()
    stat = {name: int(count) for name, count in (line.split(maxsplit=1) for line in lines)}
    # With version 1, names without `total_` leave out the groups inside.
    total = "total_" if "total_inactive_file" in stat else ""
    mapped = stat.get("total_mapped_file" if total else "file_mapped", 0)
    # File pages can be reclaimed when memory is needed, but mapped code pages would be read again.
    active = max(0, stat.get(f"{total}active_file", 0) - mapped)
    return int(used) - stat.get(f"{total}inactive_file", 0) - active


def _control_groups(controller: str, root: Path) -> Iterator[Path]:
    """Yield the folders of the process's control groups, innermost first. Each can set a limit.

    A machine may use one version of control groups for some controllers and the other version for
    the rest, so both are checked. Inside a container the path may be the host's. Then its folders
    don't exist, and only the root of the mount remains.
    """
    mounts = root / "sys/fs/cgroup"
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            bases = [mounts, mounts / "unified"]
        elif controller in controllers.split(","):
            bases = [mounts / controllers, mounts / controller]
        else:
            continue
        for base in bases:
            group = base / path.lstrip("/")
            yield from (
                folder
                for folder in (group, *group.parents)
                if folder.is_relative_to(base) and folder.is_dir()
            )


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
