"""The driver's end of a worker: start it, ask it, outlive it.

A worker may hang, die, fork or print what it likes: each of that becomes a `WorkerError` with one
sentence, and no process of its session outlives `close`.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

WORKER_FILE = Path(__file__).parents[1] / "worker" / "main.py"
_FAREWELL_S = 1.0
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class WorkerError(Exception):
    """A worker could not answer; the message says why. `alive` is False where the process is lost."""

    def __init__(self, reason: str, *, alive: bool):
        super().__init__(reason)
        self.alive = alive


@dataclass(frozen=True)
class Launch:
    """How the workers of one side start.

    Attributes:
        python: the interpreter.
        suite: the folder of benchmarks in the side's checkout.
        caches: where this side's setup_cache results lie.
        exchange: where it may write.
        environment: its environment variables.
        core: the core it is pinned to; None leaves it free.
    """

    python: str
    suite: Path
    caches: Path
    exchange: Path
    environment: dict[str, str] = field(default_factory=dict)
    core: int | None = None

    def command(self, requests: int, replies: int) -> list[str]:
        """Return the command line of a worker that reads and writes these descriptors."""
        pipes = ["--requests", str(requests), "--replies", str(replies)]
        folders = [
            "--suite",
            str(self.suite),
            "--caches",
            str(self.caches),
            "--exchange",
            str(self.exchange),
        ]
        pinned = [] if self.core is None else ["--core", str(self.core)]
        # -P: the folder of worker.py must not become a place that the suite imports from.
        return [self.python, "-P", str(WORKER_FILE), *pipes, *folders, *pinned]


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold back what would stop the gate: stopped halfway through a launch, it would leave a process behind."""
    came: list[int] = []
    # Masking would not do: another thread of this process, such as one of BLAS, would take the
    # signal. One that is ignored, as SIGINT is in a job that a shell has put into the background,
    # must stay ignored.
    held = [each for each in _STOPPING if signal.getsignal(each) is not signal.SIG_IGN]
    handlers = {each: signal.signal(each, lambda number, _: came.append(number)) for each in held}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


class Worker:
    """A live worker; use it in a `with` block.

    `strays` holds the rows whose benchmark forked a child that came back out of it.
    """

    def __init__(self, launch: Launch):
        self.strays: set[str] = set()
        self._next_id, self._unread = 0, b""
        self._asked_about: str | None = None
        request_read, self._requests = os.pipe()
        self._replies, reply_write = os.pipe()
        self._log = launch.exchange / f"stderr-{time.monotonic_ns()}.txt"
        try:
            with self._log.open("wb") as log, _interrupts_held():
                self._process = subprocess.Popen(
                    launch.command(request_read, reply_write),
                    env=launch.environment,
                    pass_fds=(request_read, reply_write),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    # so that its children can be ended with it, and Ctrl-C is ours alone
                    start_new_session=True,
                    cwd=launch.exchange,
                )
        except (
            KeyboardInterrupt
        ):  # one that was held: the process is there, and nobody else knows it
            self.close()
            raise
        os.close(request_read)
        os.close(reply_write)

    def ask(self, do: str, timeout_s: float, **request: Any) -> dict[str, Any]:
        """Send one request and return its reply.

        Raises:
            WorkerError: the benchmark raised, the worker died or took longer than `timeout_s`.
        """
        self.send(do, **request)
        return self.receive(timeout_s)

    def send(self, do: str, **request: Any) -> None:
        """Send a request; `receive` waits for its reply."""
        self._next_id += 1
        self._asked_about = request.get("row")
        line = json.dumps(request | {"do": do, "id": self._next_id}) + "\n"
        with contextlib.suppress(BrokenPipeError):  # the missing reply says it
            os.write(self._requests, line.encode())

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """Return the reply to the last request.

        Raises:
            WorkerError: the benchmark raised, the worker died or took longer than `timeout_s` from
                now.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            reply = self._read(deadline, timeout_s)
            if reply.get("stray") is not None:
                self.strays.add(reply["stray"])
                if reply["stray"] == self._asked_about:
                    raise WorkerError(
                        reply["error"], alive=False
                    )  # which of the two answers next is anybody's guess
            elif reply.get("id") == self._next_id:
                break
        if "error" in reply:
            raise WorkerError(reply["error"], alive=True)
        return reply

    def _read(self, deadline: float, timeout_s: float) -> dict[str, Any]:
        while b"\n" not in self._unread:
            # A forked child may hold the pipe open after its parent's death, so the process is
            # watched too.
            readable, _, _ = select.select(
                [self._replies], [], [], min(0.2, max(0.0, deadline - time.monotonic()))
            )
            if readable:
                chunk = os.read(self._replies, 1 << 16)
                if not chunk:
                    raise WorkerError(self._cause_of_death(), alive=False)
                self._unread += chunk
            elif self._process.poll() is not None:
                raise WorkerError(self._cause_of_death(), alive=False)
            elif time.monotonic() >= deadline:
                raise WorkerError(f"no answer within {timeout_s:g} s", alive=False)
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError:
            raise WorkerError(
                "it wrote into the pipe that belongs to the gate", alive=False
            ) from None

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

    def close(self) -> None:
        """End the worker and every process of its session; strays that have spoken up meanwhile are noted."""
        with contextlib.suppress(WorkerError):
            while True:
                stray = self._read(time.monotonic(), 0).get("stray")
                self.strays |= {stray} if stray else set()
        for descriptor in (self._requests, self._replies):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with contextlib.suppress(OSError):
            self._log.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
