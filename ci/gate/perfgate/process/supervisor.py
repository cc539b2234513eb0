"""Run a child process, read its lines, explain its death, and end everything that it started.

A child may hang, die or fork. Each of these becomes a `ChildError` with a one-sentence message. No
process of its group outlives `close`, and nothing that it started outlives this process.
"""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from perfgate.options import STOPPING
from perfgate.process.reaper import reaper

_FAREWELL_S = 1.0


class ChildError(Exception):
    """The child sent no complete line. The message says why."""


class Supervised:
    """A process in a session of its own, with a pipe to it and one from it.

    Args:
        command: the command to run. The words `{requests}` and `{replies}` in it become the
            descriptors of the child's ends of the pipes.
        environment: its environment variables.
        folder: its working directory, which also keeps its standard error until it is closed.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path):
        self._unread = b""
        request_read, self._requests = os.pipe()
        self._replies, reply_write = os.pipe()
        ends = {"{requests}": str(request_read), "{replies}": str(reply_write)}
        self._log = folder / f"stderr-{time.monotonic_ns()}.txt"
        started = None
        try:
            with self._log.open("wb") as log, _interrupts_held():
                self._process = started = subprocess.Popen(
                    [ends.get(word, word) for word in command],
                    env=reaper().marked(environment),
                    pass_fds=(request_read, reply_write),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    # its children can then be ended with it, and Ctrl-C only reaches this process
                    start_new_session=True,
                    cwd=folder,
                )
                reaper().add_group(self._process.pid)
        except KeyboardInterrupt:
            # An interrupt that was held is raised after the launch. Nothing else knows the new
            # process, so it is closed here.
            if started is not None:
                self.close()
            raise
        os.close(request_read)
        os.close(reply_write)

    def write(self, line: bytes) -> None:
        """Send a line. If nobody reads it, the missing answer will show that."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._requests, line)

    def read(self, deadline: float) -> bytes:
        """Return the next line.

        Args:
            deadline: when to stop waiting, on the clock of `time.monotonic`.

        Raises:
            ChildError: the child has ended or closed its pipe.
            TimeoutError: the deadline has passed.
        """
        while b"\n" not in self._unread:
            # A forked child may hold the pipe open after its parent's death, so the parent is
            # polled too.
            wait_s = min(0.2, max(0.0, deadline - time.monotonic()))
            readable, _, _ = select.select([self._replies], [], [], wait_s)
            if readable:
                chunk = os.read(self._replies, 1 << 16)
                if not chunk:
                    raise ChildError(self._cause_of_death())
                self._unread += chunk
            elif self._process.poll() is not None:
                raise ChildError(self._cause_of_death())
            elif time.monotonic() >= deadline:
                raise TimeoutError
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _cause_of_death(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_FAREWELL_S)
        code = self._process.returncode
        if code is None:
            return "it closed the pipe to the gate"
        if code < 0:
            hint = ", which the kernel sends if memory runs out" if code == -signal.SIGKILL else ""
            return f"its process was ended by {signal.Signals(-code).name}{hint}"
        last = self._log.read_text(errors="replace").strip().splitlines()[-1:]
        return f"its process ended with exit code {code}" + (f": {last[0][:200]}" if last else "")

    def finish(self, timeout_s: float) -> None:
        """Close the pipe to the process, and wait until it exits by itself.

        Raises:
            TimeoutError: it did not exit within this time.
        """
        os.close(self._requests)
        # `close` must not close this number again: another file may have it by then.
        self._requests = -1
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None

    def close(self) -> None:
        """End the process and every other process of its session."""
        for descriptor in (self._requests, self._replies):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        # macOS refuses to signal a group in which every process has ended
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        reaper().drop_group(self._process.pid)
        self._process.wait()
        with contextlib.suppress(OSError):
            self._log.unlink()


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delay interrupts: if one stopped the gate in mid-launch, a process would be left over."""
    came: list[int] = []
    # Masking the signal is not enough: another thread of this process, such as one of BLAS, would
    # take it. A signal that is ignored must stay ignored, like SIGINT in a background job of a
    # shell.
    held = [each for each in STOPPING if signal.getsignal(each) is not signal.SIG_IGN]
    handlers = {each: signal.signal(each, lambda number, _: came.append(number)) for each in held}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])
