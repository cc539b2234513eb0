"""The worker's main loop: it answers the gate's requests one by one, over two private pipes.

A benchmark may print, close or break anything without disturbing the pipes. Any exception that it
raises becomes the reply.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from ..process import protocol
from . import first_run, listing, profiling, sampling
from .suite import LoadedSuite, SkippedError

_FORKED = "it forked, and the child returned from the benchmark instead of exiting"
_LAST_RESORT_KILLED = "800"  # if memory runs out, the kernel should kill the worker, not the gate


class Runner(MetaPathFinder):
    """Finds the gate's own asv_runner and pympler, if the suite's Python has none."""

    def __init__(self, folder: str):
        self._folder = folder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find a module in the folder if it is one of the two, or a part of them."""
        if name not in ("asv_runner", "pympler"):
            return None
        return PathFinder.find_spec(name, [self._folder])


def main() -> None:
    """Answer requests until the gate closes the pipe."""
    options = json.loads(sys.argv[1])
    if options["core"] is not None:
        # this comes before any import, because libraries size their thread pools by it
        os.sched_setaffinity(0, {options["core"]})
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_LAST_RESORT_KILLED)
    sys.meta_path.append(Runner(options["runner"]))
    from asv_runner.discovery import update_sys_path

    suite = LoadedSuite(*map(Path, options["folders"]), pytest_args=options["pytest_args"])
    if suite.folder.is_dir():  # pytest imports a file in its own way
        update_sys_path(str(suite.folder))
    for descriptor in options["pipes"]:
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - takes no keyword
    request_pipe, reply_pipe = options["pipes"]
    me = os.getpid()
    with os.fdopen(request_pipe) as requests:
        for line in requests:
            number, request = protocol.decode_request(line)
            os.write(reply_pipe, protocol.encode(_reply(suite, request), number))
            # This is a forked child that returned from a benchmark. It has reported itself, and the
            # next request is for its parent.
            if os.getpid() != me:
                os._exit(0)


def _reply(suite: LoadedSuite, request: protocol.Request[Any]) -> protocol.Reply:
    """Answer one request. Any exception of the benchmark's code becomes the reply."""
    me = os.getpid()
    row = getattr(request, "row", "")
    suite.enter(row)
    try:
        if request.core is not None:
            _pin(request.core)
        reply = _ANSWERS[type(request)](suite, request)
    # foreign code may raise anything, and then this benchmark loses its row
    except BaseException as error:  # noqa: BLE001
        reply = protocol.Failed(listing.sentence(error), isinstance(error, listing.RunnerError))
        if isinstance(error, SkippedError) or type(error).__name__ == "SkipNotImplemented":
            said = str(error) if isinstance(error, SkippedError) else listing.sentence(error)
            reply = protocol.Skipped(said)
            if not isinstance(request, protocol.Inspect):
                reply = protocol.Failed(f"{protocol.SKIPPED_NOW}: {said}")
    suite.leave(row)
    if os.getpid() != me:
        return protocol.Failed(_FORKED, is_fatal=True)  # parent and child share the pipes now
    return reply


def _sample(suite: LoadedSuite, request: protocol.Sample) -> protocol.Seconds:
    benchmark = suite.ready.get(request.row) or suite.prepare(request)
    clock = sampling.own_clock(benchmark) if request.own_time else None
    return protocol.Seconds(sampling.sample(benchmark, request.calls, clock))


def _watch(suite: LoadedSuite, request: protocol.Watch) -> protocol.Calls:
    """Profile a call, or count a statement's imports."""
    benchmark = suite.ready.get(request.row) or suite.prepare(request)
    if sampling.is_raw(benchmark):
        # the arguments that asv would pass
        code = benchmark.func(*benchmark._build_params())  # noqa: SLF001
        statement, setup = code if isinstance(code, tuple) else (code, "")
        variables = getattr(benchmark, "_timeraw_env", None) or {}
        return profiling.imported(statement, setup, variables)
    sampling.sample(benchmark, 1)
    return profiling.profiled(benchmark, suite.root)


_ANSWERS: dict[type, Callable[[LoadedSuite, Any], protocol.Reply]] = {
    protocol.Discover: lambda suite, _: suite.listed(),
    protocol.Inspect: first_run.inspect,
    protocol.Watch: _watch,
    protocol.Calibrate: lambda suite, it: sampling.calibrate(
        suite.ready.get(it.row) or suite.prepare(it), it.target_s, it.first_s
    ),
    protocol.Sample: _sample,
    protocol.Release: lambda suite, request: suite.release(request.row),
}


def _pin(core: int) -> None:
    """Move this worker to a core, with all its threads and the processes that it has started.

    Processes that these start later inherit the core.
    """
    if os.sched_getaffinity(0) == {core}:
        return
    session = os.getsid(0)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile, or belongs to somebody else
            if os.getsid(int(process.name)) == session:
                for thread in (process / "task").iterdir():
                    os.sched_setaffinity(int(thread.name), {core})
    os.sched_setaffinity(0, {core})
