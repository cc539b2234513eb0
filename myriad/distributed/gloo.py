"""The threads of Gloo, by which CPU devices of several processes exchange arrays.

Such a thread polls without a pause while a message is there that its process doesn't wait for yet.
Linux lets it have the core for a whole slice, 3 ms, though the process computes and would then take
the message. A batch thread has to give way.
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
# The thread may be between two calls when it is looked at. JAX starts one.
_LOOKS = 50


def give_way() -> list[int]:
    """Make Gloo's threads in this process batch threads, and return their numbers.

    It does nothing where there are none, or where the system doesn't tell what a thread does.
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
        with contextlib.suppress(OSError):  # it may have ended, or we may not look
            call, *arguments = (task / "syscall").read_text().split()
            asked = [int(each, 16) for each in arguments[2:4]]
            if call in calls and asked == [_EVENTS, _TIMEOUT_MS]:
                found.append(int(task.name))
    return found
