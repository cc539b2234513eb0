"""What runs inside a child: reply, report a failure, state the peak memory, time a call.

`python -m benchmarks.harness.worker TARGET REQUEST` is the child that harness/process.py starts.
Standard library only, because peers run this in a Python without Myriad.
"""

import importlib
import json
import math
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

_LOOK_S = 1.0
_MOST_UNITS = 1 << 20  # of a call that never lasts long enough


class ChildError(Exception):
    """A child gave no reply.

    Args:
        status: the status of its row: `refused`, `failed` or `not installed`.
        reason: one sentence for the row.
        error: the name of the exception's type in the child, if there was one.
    """

    def __init__(self, status: str, reason: str, error: str = ""):
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.error = error

    @property
    def columns(self) -> dict[str, str]:
        """The columns of a results row that describe the failure."""
        return {"status": self.status, "reason": self.reason}


def failure_of(error: BaseException, refusals: tuple[type[Exception], ...] = ()) -> dict[str, str]:
    """Return the arguments of the `ChildError` for an exception in a child.

    `refusals` are exceptions that mean a refusal, in addition to `NotImplementedError`.
    """
    status = "failed"
    if isinstance(error, (*refusals, NotImplementedError)):
        status = "refused"
    elif isinstance(error, ImportError):
        status = "not installed"
    kind = type(error).__name__
    reason = (str(error).strip() or kind).splitlines()[0]  # XLA appends its stack
    return {"status": status, "reason": reason, "error": kind}


def end_with_parent() -> None:
    """Start a thread that ends this process once its parent has ended."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def seconds_of(fn: Callable[..., Any], *args: Any) -> float:
    """Call `fn(*args)`, which waits for its own result, and return its seconds."""
    start = time.perf_counter()
    fn(*args)
    return time.perf_counter() - start


def calibrated(run: Callable[[int], Any], unit: int, least_s: float) -> int:
    """Return the multiple of `unit` for which `run` is to be called to last `least_s` seconds."""
    number = unit
    seconds = seconds_of(run, number)
    while seconds < least_s and number < _MOST_UNITS * unit:
        number = unit * math.ceil(max(2.0, 1.2 * least_s / seconds) * number / unit)
        # The least of several calls counts, because a disturbance can only prolong a call.
        seconds = min(seconds_of(run, number) for _ in range(2))
    return number


def peak_bytes() -> int:
    """Return this process's peak bytes, in the device's memory or in the CPU's."""
    if jax := sys.modules.get("jax"):
        device = jax.devices()[0]
        if device.platform != "cpu":
            return device.memory_stats()["peak_bytes_in_use"]
    return peak_resident_bytes()


def peak_resident_bytes() -> int:
    """Return this process's peak memory in bytes since its program began.

    On Linux this is the program's own high-water mark. `getrusage` would include the process that
    started it, which may have been far larger.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def answer(replies: Iterable[Any], refusals: tuple[type[Exception], ...] = ()) -> None:
    """Write each reply as a line of JSON to stdout, and a failure as the last one.

    Any failure that is not named here ends the process, and the parent reads its reason from
    stderr. Whatever libraries print goes to stderr as well. `refusals` are as in `failure_of`.
    """
    end_with_parent()
    stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        for reply in replies:
            print(json.dumps(reply), file=stdout, flush=True)
    # JAX raises RuntimeError, also if memory runs out. Myriad raises ValueError.
    except (
        *(*refusals, NotImplementedError),
        *(ImportError, RuntimeError, MemoryError, ValueError),
    ) as error:
        print(json.dumps({"failure": failure_of(error, refusals)}), file=stdout, flush=True)


def imported(target: str) -> Any:
    """Return what `module:name` names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _replies(target: str, request: str) -> Iterator[Any]:
    """Call the function, and time the call that it returned for each line of stdin."""
    found = imported(target)(**json.loads(request))
    reply, *calls = found if isinstance(found, tuple) else (found,)
    yield reply
    for _ in sys.stdin if calls else ():
        start_s = time.process_time()
        seconds = seconds_of(*calls)
        yield {"seconds": seconds, "processor_s": time.process_time() - start_s}


if __name__ == "__main__":
    answer(_replies(*sys.argv[1:]))
