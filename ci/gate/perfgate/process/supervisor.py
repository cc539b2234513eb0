"""One child process and everything that it starts: its lines are read, its death is explained.

A child may hang, die or fork: each of that becomes a `ChildError` with one sentence. No process of
its group outlives `close`, and nothing that it started outlives this process.
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
    """The child gave no whole line; the message says why."""


class Supervised:
    """A process in a session of its own, with a pipe to it and one from it.

    Args:
        command: what to run; the words `{requests}` and `{replies}` in it become the descriptors
            of the child's ends.
        environment: its environment variables.
        folder: where it starts, and where its standard error is kept until it is closed.
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
                    # so that its children can be ended with it, and Ctrl-C is ours alone
                    start_new_session=True,
                    cwd=folder,
                )
                reaper().add_group(self._process.pid)
        except KeyboardInterrupt:
            # One that was held: the process is there, and nobody else knows it. Before it was,
            # nothing has started.
            if started is not None:
                self.close()
            raise
        os.close(request_read)
        os.close(reply_write)

    def write(self, line: bytes) -> None:
        """Send a line; where nobody reads it, the missing answer says so."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._requests, line)

    def read(self, deadline: float) -> bytes:
        """Return the next line.

        Args:
            deadline: how long to wait for it, on the clock of `time.monotonic`.

        Raises:
            ChildError: the child has ended or closed its pipe.
            TimeoutError: the deadline has passed.
        """
        while b"\n" not in self._unread:
            # A forked child may hold the pipe open after its parent's death, so the process is
            # watched too.
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
            hint = ", as the kernel does where memory runs out" if code == -signal.SIGKILL else ""
            return f"its process was ended by {signal.Signals(-code).name}{hint}"
        last = self._log.read_text(errors="replace").strip().splitlines()[-1:]
        return f"its process ended with exit code {code}" + (f": {last[0][:200]}" if last else "")

    def finish(self, timeout_s: float) -> None:
        """Hang up, and let the process come to its own end.

        Raises:
            TimeoutError: it did not within this time.
        """
        os.close(self._requests)
        self._requests = (
            -1
        )  # so that `close` leaves the number alone, which others may have by then
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None

    def close(self) -> None:
        """End the process and every other one of its session."""
        for descriptor in (self._requests, self._replies):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        # macOS refuses a signal to a group of which only ended processes are left
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        reaper().drop_group(self._process.pid)
        self._process.wait()
        with contextlib.suppress(OSError):
            self._log.unlink()


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold interrupts back: stopped halfway through a launch, the gate would leave a process."""
    came: list[int] = []
    # Masking would not do: another thread of this process, such as one of BLAS, would take the
    # signal. One that is ignored, as SIGINT is in a job that a shell has put into the background,
    # must stay ignored.
    held = [each for each in STOPPING if signal.getsignal(each) is not signal.SIG_IGN]
    handlers = {each: signal.signal(each, lambda number, _: came.append(number)) for each in held}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])
