"""Record the files that benchmarks import or open, and whether they start processes, in a worker.

Python's audit hooks report opened files and started processes. So a module is recorded even if it
has removed itself from `sys.modules`, because its bytecode cache was opened.
"""

import contextlib
import functools
import os
import resource
import site
import sys
import sysconfig
from importlib.util import source_from_cache
from pathlib import Path
from typing import Any

from . import listing

# Events that start another process or interpreter, whose files can't be recorded.
_STARTS = {
    "subprocess.Popen",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "os.exec",
    "cpython.PyInterpreterState_New",
}
_TAG = sys.implementation.cache_tag


def listen() -> None:
    """Record from now on what this process opens and starts. An audit hook can't be removed."""
    if not _listening:
        _listening.append(True)
        sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        _heard[0] += 1
        # The argument may be a descriptor instead of a path. If other code raised the event, it may
        # be missing.
        with contextlib.suppress(IndexError, TypeError, ValueError, OSError):
            # Path.resolve would follow links
            _opened.add(os.path.abspath(os.fsdecode(arguments[0])))  # noqa: PTH100
    elif event in _STARTS:
        _heard[1] += 1


def num_heard() -> int:
    """Return how often something opened a file or started a process since `listen`."""
    return sum(_heard)


def has_any_process_run() -> bool:
    """Tell whether this process may have started another one. Without `listen` it may have."""
    # Compiled code can start processes without an audit event.
    has_awaited = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0
    if not _listening or _heard[1] or has_awaited:
        return True
    with contextlib.suppress(OSError):
        tasks = Path("/proc/self/task").glob("*/children")
        return any(task.read_text().strip() for task in tasks)
    return False


def used_below(root: Path) -> set[str]:
    """Return the files that were imported or opened and whose changes may matter.

    Those of the checkout are relative to its root. Python files from elsewhere have absolute paths.
    Those of the interpreter and its packages are left out, since versions cover them.
    """
    modules = [listing.file_of(module) for module in list(sys.modules.values())]
    # A module may set `__file__` to anything.
    files = {each for each in modules if isinstance(each, str) and each.startswith(os.sep)}
    places = (_place(file, root) for file in files | _opened)
    return {place for place in places if place}


@functools.cache
def _place(file: str, root: Path) -> str | None:
    """Return a file's name for the record; None if the record leaves it out."""
    source = _source_of(file)
    real = os.path.realpath(source)
    for path, folder in ((source, root), (real, root.resolve())):
        if path.startswith(f"{folder}{os.sep}"):
            return path.removeprefix(f"{folder}{os.sep}")
    is_installed = real.startswith(_installed())
    return real if real.endswith(".py") and not is_installed else None


def _source_of(file: str) -> str:
    """Return the source of a bytecode file. Any other file is returned as it is."""
    folder, name = os.path.split(file)
    if not name.endswith(".pyc"):
        return file
    # pytest adds its own version to the name of its caches
    plain = f"{name.partition('.')[0]}.{_TAG}.pyc"
    try:
        return source_from_cache(f"{folder}{os.sep}{plain}")
    except ValueError:  # it lies outside of a cache folder, so it is imported itself
        return file


@functools.cache
def _installed() -> tuple[str, ...]:
    folders = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    folders |= {*site.getsitepackages()}
    return tuple(f"{os.path.realpath(folder)}{os.sep}" for folder in folders)


_listening: list[bool] = []
_heard = [0, 0]  # opened files, started processes
_opened: set[str] = set()
