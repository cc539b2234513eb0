"""The threads of Gloo, by which CPU devices of several processes exchange arrays.

While a message is there for which its process doesn't wait yet, such a thread polls without a
pause. Linux gives it the core for a whole time slice of 3 ms, although the process needs the core
to compute and would then take the message. A batch thread has to give way.
"""

import contextlib
import os
import sys
from pathlib import Path

_TASKS = Path("/proc/self/task")
# The numbers of `epoll_wait` and `epoll_pwait`. Gloo's loop calls one of them with these: the most
# events, and the milliseconds to wait.
_EPOLL_CALLS = {"x86_64": ("232", "281"), "aarch64": ("22",)}
_EVENTS, _TIMEOUT_MS = 64, 10
# Look several times, since the thread may be between two calls. JAX starts one such thread.
_LOOKS = 50


def give_way() -> list[int]:
    """Make Gloo's threads in this process batch threads, and return their numbers.

    It does nothing if there are none, or if the system doesn't tell what a thread is doing.
    """
    if sys.platform != "linux":
        return []
    found = next(filter(None, (_polling() for _ in range(_LOOKS))), [])
    with contextlib.suppress(OSError):
        for task in found:
            os.sched_setscheduler(task, os.SCHED_BATCH, os.sched_param(0))
    return found


def _polling() -> list[int]:
    calls = _EPOLL_CALLS.get(os.uname().machine, ())
    found = []
    for task in _TASKS.iterdir():
        with contextlib.suppress(OSError):  # It may have ended, or reading may be forbidden.
            call, *arguments = (task / "syscall").read_text().split()
            asked = [int(each, 16) for each in arguments[2:4]]
            if call in calls and asked == [_EVENTS, _TIMEOUT_MS]:
                found.append(int(task.name))
    return found
