"""Start a process in its own session, limit its time and memory, and end all that it started.

child.py and run_all.py start every process of a benchmark here.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from benchmarks.harness.process.failures import ChildError

ROOT = Path(__file__).resolve().parents[3]
LOOK_S = 0.25  # seconds between checks of the memory, so rare that they don't disturb measurements
_PARENT_FIELD = 1  # fields of /proc/<pid>/stat, counted from after the command's name
_RSS_FIELD = 21
# The share of free memory. The rest is for the system, and for processes that start meanwhile.
_SHARE_OF_MEMORY = 0.9


class Supervised:
    """A running command. Leaving the `with` block ends it and every process that it started.

    Args:
        command: the command.
        log: the file for its stderr; None uses a temporary file.
        stdin: its input, which is empty unless this is `subprocess.PIPE`.
        stdout: where its output goes: `subprocess.PIPE`, or None for the log.
        environ: environment variables in addition to this process's own.

    Attributes:
        process: the process itself.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: IO[str] | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        environ: Mapping[str, str] | None = None,
    ):
        self._log = log or tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by `__exit__`)
        self._owns_log = log is None
        self._ended = False
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        # Otherwise a user's own compilation cache would make compiling seem to take no time.
        inherited = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
        self.process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=self._log if stdout is None else stdout,
            stderr=self._log,
            text=True,
            env={**inherited, "PYTHONPATH": path, **(environ or {})},
            start_new_session=True,  # so that processes it started end with it
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):  # closing would flush data that nobody reads
                if stream is not None:
                    stream.close()
        if self._owns_log:
            self._log.close()

    def end(self) -> None:
        """Kill the process and those that it started, and wait for it."""
        if self._ended:  # the system may have given its number to another process since
            return
        with contextlib.suppress(ProcessLookupError):  # all of them have ended already
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._ended = True

    def wait(self, timeout_s: float) -> int:
        """Wait for the command and return its exit code.

        Raises:
            ChildError: it took longer, or more than nine tenths of the machine's free memory.
        """
        limit = available_bytes()
        deadline = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.process.wait(LOOK_S)
            self.require_within(limit)
            if time.monotonic() > deadline:
                raise ChildError("failed", f"no answer within {timeout_s:g} s")

    def require_within(self, limit: int) -> None:
        """Raise a ChildError if all its processes together hold more than `limit` bytes."""
        held = _resident_bytes(self.process.pid)
        if held > limit:
            reason = f"out of memory: it held {held:,} bytes and may hold {limit:,}"
            raise ChildError("refused", reason)

    def last_words(self) -> str:
        """Wait for the process. Return how it ended, and the last line of its stderr."""
        code = self.process.wait()
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        ending = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"the process {ending}: {lines[-1] if lines else 'no message'}"


def available_bytes() -> int:
    """Return nine tenths of the machine's free memory."""
    from myriad.host import host_memory

    _, left = host_memory()
    return sys.maxsize if left is None else int(_SHARE_OF_MEMORY * left)


def _resident_bytes(pid: int) -> int:
    """Return the memory of a process and all that it started, or 0 if `/proc` is missing."""
    processes = {int(folder.name): _stat(folder) for folder in Path("/proc").glob("[0-9]*")}
    pages = 0
    left = [pid]
    while left:
        parent = left.pop()
        pages += processes.get(parent, (0, 0))[1]
        left += [child for child, (its_parent, _) in processes.items() if its_parent == parent]
    return pages * os.sysconf("SC_PAGE_SIZE")


def _stat(folder: Path) -> tuple[int, int]:
    """Return a process's parent and its pages in memory, or zeros if it has ended meanwhile."""
    try:
        text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0, 0
    # The command's name in parentheses may hold spaces, so fields are counted from after it.
    fields = text.rpartition(")")[2].split()
    return int(fields[_PARENT_FIELD]), int(fields[_RSS_FIELD])
