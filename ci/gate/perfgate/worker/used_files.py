"""Which files a worker's benchmarks have imported or opened, and whether anybody else ran for them.

Python's audit hooks tell what is opened and which processes start. So a module is known even if it
has removed itself from `sys.modules`: its cache of bytecode was opened.
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

# What starts another process or interpreter: what runs there is not seen.
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
    """Note from now on what this process opens and starts. Nobody can stop that again."""
    if not _listening:
        _listening.append(True)
        sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        # It may be no path, but a descriptor, or nothing at all where anybody else has said it.
        with contextlib.suppress(IndexError, TypeError, ValueError, OSError):
            _opened.add(_absolute(os.fsdecode(arguments[0])))
    elif event in _STARTS:
        _started.append(event)


def _absolute(path: str) -> str:
    """Return a path that holds in any working directory. Links in it stay."""
    return os.path.abspath(path)  # noqa: PTH100 - Path.resolve would follow links


def count_started() -> int:
    """Return how many other processes were started so far."""
    return len(_started)


def has_children() -> bool:
    """Tell whether a process that was started before still runs."""
    tasks = Path("/proc/self/task").glob("*/children")
    with contextlib.suppress(OSError):
        return any(task.read_text().strip() for task in tasks)
    return False


def has_any_process_run() -> bool:
    """Tell whether this process may have started another. It may where it has not listened."""
    # Compiled code starts processes that Python doesn't hear of.
    has_awaited = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0
    return not _listening or bool(_started) or has_awaited or has_children()


def used_below(root: Path) -> set[str]:
    """Return the files that were imported or opened, as far as a change of them may matter.

    Those of the checkout are relative to its root. Python files from elsewhere are absolute, but
    for those of the interpreter and its packages, which a version tells.
    """
    modules = [listing.file_of(module) for module in list(sys.modules.values())]
    # A module may claim anything.
    files = {each for each in modules if isinstance(each, str) and each.startswith(os.sep)}
    places = (_place(file, root) for file in files | _opened)
    return {place for place in places if place}


@functools.cache
def _place(file: str, root: Path) -> str | None:
    """Return a file's name for the record; None where the record does without it."""
    source = _source_of(file)
    real = os.path.realpath(source)
    for path, folder in ((source, root), (real, root.resolve())):
        if path.startswith(f"{folder}{os.sep}"):
            return path.removeprefix(f"{folder}{os.sep}")
    is_installed = real.startswith(_installed())
    return real if real.endswith(".py") and not is_installed else None


def _source_of(file: str) -> str:
    """Return the module whose bytecode a file holds; any other file itself."""
    folder, name = os.path.split(file)
    if not name.endswith(".pyc"):
        return file
    # pytest adds its own version to the name
    plain = f"{name.partition('.')[0]}.{_TAG}.pyc"
    try:
        return source_from_cache(f"{folder}{os.sep}{plain}")
    except ValueError:  # it lies in no folder of caches, and is imported itself
        return file


@functools.cache
def _installed() -> tuple[str, ...]:
    folders = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    folders |= {*site.getsitepackages()}
    return tuple(f"{os.path.realpath(folder)}{os.sep}" for folder in folders)


_listening: list[bool] = []
_started: list[str] = []
_opened: set[str] = set()
