"""End everything that a gate started once the gate itself has ended, for whatever reason.

The gate starts this file as a process of its own and holds the only write end of a pipe to it.
Nobody can catch SIGKILL, but the system closes the pipe even then. A worker could not watch the
gate itself: a benchmark may keep its interpreter busy for an hour, and processes that it has
started outlive it.

The reaper finds a process by a mark in its environment, which children inherit, or by its process
group. The group also works if the system lists no environments (macOS) or a child has cleared its
own.
"""

import atexit
import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

MARK = "PERFGATE_STARTED_BY"
# then give up: a process that waits for a disk ignores even SIGKILL, maybe for ever
_SWEEPING_S = 30.0
_AGAIN_S = 0.01


class Reaper:
    """The gate's end of the pipe to the process that outlives it."""

    def __init__(self) -> None:
        # always of one length, since the environment's size moves the stack and so changes timings
        self._mark = uuid.uuid4().hex
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, self._mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            # a terminal's Ctrl-C must not end it before the gate
            start_new_session=True,
            cwd="/",
        )

    def marked(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return an environment for something that must not outlive this process."""
        # If a gate's benchmark runs another gate, its workers carry both marks.
        marks = [*filter(None, [environment.get(MARK)]), self._mark]
        return {**environment, MARK: ",".join(marks)}

    def watch(self, group: int) -> None:
        """Watch over a process group, or forget it if the number is negative.

        Forget a group before you wait for its leader, which frees its number.
        """
        assert self._process.stdin is not None
        # The reaper may have been killed. The gate still closes its workers itself then.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{group}\n".encode())

    def close(self) -> None:
        """End everything that carries the mark, and wait until that is done."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@functools.cache
def reaper() -> Reaper:
    """Return the reaper of this process, started on first use."""
    started = Reaper()
    atexit.register(started.close)
    return started


def _main(mark: str) -> None:
    groups: set[int] = set()
    for group in map(int, sys.stdin):  # the pipe ends when the gate does
        groups = groups | {group} if group > 0 else groups - {-group}
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    # A process that was just killed may have started another one before.
    deadline = time.monotonic() + _SWEEPING_S
    while _kill_marked(mark.encode()) and time.monotonic() < deadline:
        time.sleep(_AGAIN_S)


def _kill_marked(mark: bytes) -> bool:
    """Kill every process whose environment holds the mark, and tell whether there was any."""
    found = False
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile, or belongs to another user
            if mark in (process / "environ").read_bytes():
                found = True
                os.kill(int(process.name), signal.SIGKILL)
    return found


if __name__ == "__main__":
    _main(sys.argv[1])
