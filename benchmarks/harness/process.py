"""Start the processes of a benchmark, limit their time and memory, and end all that they started.

    reply = run("benchmarks.memory_profile:_peak_of", {"env": "cartpole-control"}, timeout_s=60)

A new process has its own peak memory, its own XLA options and nothing compiled. If it hangs or
takes too much memory, only its own row is lost.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks.harness.worker import ChildError

ROOT = Path(__file__).resolve().parents[2]
Reply = dict[str, Any]
_LOOK_S = 0.25  # seconds between checks of the memory, so rare that they don't disturb measurements
_SESSION_FIELD = 3  # fields of /proc/<pid>/stat, counted from after the command's name
_RSS_FIELD = 21
# The share of free memory. The rest is for the system, and for processes that start meanwhile.
_SHARE_OF_MEMORY = 0.9


class Supervised:
    """A running command. Leaving the `with` block ends it and every process that it started.

    Args:
        stdin: its input, which is empty unless this is `subprocess.PIPE`.
        stdout: where its output goes: `subprocess.PIPE`, or None for the log of its stderr.
        environ: environment variables in addition to this process's own.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        environ: Mapping[str, str] | None = None,
    ):
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by `__exit__`)
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
                return self.process.wait(_LOOK_S)
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


class Conversation(Supervised):
    """A running command that answers requests in JSON lines."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]):
        pipe = subprocess.PIPE
        super().__init__(command, stdin=pipe, stdout=pipe, environ=environ)
        self._replies: queue.Queue[str] = queue.Queue()
        # A thread reads the replies, so that the parent can stop waiting.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __exit__(self, *_: object) -> None:
        self.end()
        self._reader.join()
        super().__exit__()

    def ask(self, request: dict[str, Any], timeout_s: float) -> Reply:
        """Send `request` and return its reply."""
        # the missing reply will show that the process is dead
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self.process.stdin, flush=True)
        return self.reply(timeout_s)

    def reply(self, timeout_s: float, memory_limit_bytes: int | None = None) -> Reply:
        """Return the next reply.

        Raises:
            ChildError: the process refused, died, took too much memory, or did not answer within
                `timeout_s` seconds.
        """
        deadline = time.monotonic() + timeout_s
        line = None
        while line is None:
            left = max(0.0, deadline - time.monotonic())
            try:
                line = self._replies.get(
                    timeout=left if memory_limit_bytes is None else min(left, _LOOK_S)
                )
            except queue.Empty:
                if memory_limit_bytes is not None:
                    self.require_within(memory_limit_bytes)
                if time.monotonic() >= deadline:
                    raise ChildError("failed", f"no answer within {timeout_s:g} s") from None
        if not line:
            raise ChildError("failed", self.last_words())
        reply = json.loads(line)
        if "failure" in reply:
            raise ChildError(**reply["failure"])
        return reply

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._replies.put(line)
        self._replies.put("")


def started(target: str, request: dict[str, Any], environ: Mapping[str, str]) -> Conversation:
    """Call a function in a new process.

    Its first reply is the JSON object that the function returned. If it returned a call beside the
    object, every further request has that call timed: the reply is its `seconds`.

    Args:
        target: `package.module:function`.
        request: its keyword arguments, as JSON can write them.
        environ: environment variables in addition to this process's own.
    """
    worker = [sys.executable, "-m", "benchmarks.harness.worker"]
    return Conversation([*worker, target, json.dumps(request)], environ)


def run(
    target: str,
    request: dict[str, Any],
    *,
    timeout_s: float,
    memory_limit_bytes: int | None = None,
    **environ: str,
) -> Reply:
    """Call `target` in a new process, as `started` does, and return its reply.

    `timeout_s` includes its imports. Its memory is limited to nine tenths of the machine's free
    memory, unless a limit is given.

    Raises:
        ChildError: it refused, died, hung, or exceeded its memory.
    """
    with started(target, request, environ) as child:
        return child.reply(timeout_s, memory_limit_bytes or available_bytes())


def available_bytes() -> int:
    """Return nine tenths of the machine's free memory."""
    from myriad.host import host_memory

    _, left = host_memory()
    return sys.maxsize if left is None else int(_SHARE_OF_MEMORY * left)


def _resident_bytes(session: int) -> int:
    """Return the memory of a session's processes, or 0 if `/proc` is missing."""
    pages = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            # The command's name in parentheses may hold spaces.
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[_SESSION_FIELD]) == session:
                pages += int(fields[_RSS_FIELD])
    return pages * os.sysconf("SC_PAGE_SIZE")
