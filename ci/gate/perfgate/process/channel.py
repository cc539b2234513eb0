"""The gate's end of a worker: start it, send it requests, and survive its failures.

Any failure of the worker becomes a `WorkerError` with a one-sentence message.
"""

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import asv_runner

from perfgate.process import protocol
from perfgate.process.supervisor import ChildError, Supervised

WORKER_FILE = Path(__file__).parents[1] / "worker" / "__main__.py"
# The folder with the gate's own asv_runner, for a suite's Python that has none.
RUNNER = Path(asv_runner.__file__).parents[1]
ESCAPED = "it forked, and the child returned from the benchmark instead of exiting"

R = TypeVar("R")


class WorkerError(Exception):
    """A worker could not answer; the message says why.

    `alive` is False if the worker is lost. With `by_runner`, the benchmark is not to blame.
    """

    def __init__(self, reason: str, *, alive: bool, by_runner: bool = False):
        super().__init__(reason)
        self.alive = alive
        self.by_runner = by_runner


@dataclass(frozen=True)
class Launch:
    """The settings with which one side's workers start.

    Attributes:
        python: the interpreter.
        suite: the folder of benchmarks in the side's checkout.
        caches: the folder of this side's setup_cache results.
        exchange: the folder in which a worker writes files for the gate.
        root: the root of the checkout. Files below it are named relative to it.
        environment: its environment variables.
        core: the core that a worker is pinned to; None leaves it free.
        within: the command that runs the worker, such as valgrind's; empty to run it directly.
        is_pytest: whether the suite consists of tests that use pytest-benchmark's fixture.
    """

    python: str
    suite: Path
    caches: Path
    exchange: Path
    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    core: int | None = None
    within: tuple[str, ...] = ()
    is_pytest: bool = False

    def command(self) -> list[str]:
        """Return a worker's command line, in the form that `Supervised` takes."""
        folders = {"--suite": self.suite, "--caches": self.caches, "--exchange": self.exchange}
        folders |= {"--root": self.root, "--runner": RUNNER}
        # With -P the worker's folder stays off the import path, so the suite can't import from it.
        words = [*self.within, self.python, "-P", str(WORKER_FILE)]
        words += ["--requests", "{requests}", "--replies", "{replies}"]
        for flag, folder in folders.items():
            words += [flag, str(folder)]
        words += ["--pytest"] if self.is_pytest else []
        return words if self.core is None else [*words, "--core", str(self.core)]


class Worker:
    """A live worker. Use it in a `with` block.

    Attributes:
        escaped: the rows whose benchmark forked a child that returned from it.
        hello: its first message; None until it has answered.
    """

    def __init__(self, launch: Launch):
        self.escaped: set[str] = set()
        self.hello: protocol.Hello | None = None
        self._number = 0
        self._is_pytest = launch.is_pytest
        self._asked: protocol.Request[Any] | None = None
        self._process = Supervised(launch.command(), launch.environment, launch.exchange)

    def ask(self, request: protocol.Request[R], timeout_s: float) -> R:
        """Send one request and return its reply.

        Raises:
            WorkerError: the benchmark raised, or the worker died or took longer than `timeout_s`.
        """
        self.send(request)
        return self.receive(request, timeout_s)

    def send(self, request: protocol.Request[Any]) -> None:
        """Send a request. `receive` waits for its reply."""
        self._number += 1
        self._asked = request
        self._process.write(protocol.encode(request, self._number))

    def receive(self, request: protocol.Request[R], timeout_s: float) -> R:
        """Return the reply to the last request.

        Raises:
            WorkerError: the benchmark raised, or the worker died or took longer than `timeout_s`
                from now.
        """
        deadline = time.monotonic() + timeout_s
        try:
            reply = self._reply(deadline)
            if isinstance(reply, protocol.Failed):
                raise WorkerError(reply.reason, alive=True, by_runner=reply.by_runner)
            return protocol.fitting(request, reply)
        except TimeoutError:
            limit = "timeout_s in gate.toml"
            if isinstance(request, protocol.Target) and not self._is_pytest:
                limit = "its `timeout`, or default_benchmark_timeout in asv.conf.json"
            raise WorkerError(
                f"no answer within {timeout_s:g} s; if it needs longer, raise {limit}", alive=False
            ) from None
        except (ChildError, protocol.ProtocolError) as error:
            raise WorkerError(str(error), alive=False) from None

    def _reply(self, deadline: float) -> object:
        while True:
            number, reply = self._read(deadline)
            if isinstance(reply, protocol.Escaped):
                self._note(reply)
                # parent and child share the pipe now, so the next answer may come from either
                if reply.row is not None and reply.row == getattr(self._asked, "row", None):
                    raise WorkerError(ESCAPED, alive=False)
            elif number == self._number:
                return reply

    def _read(self, deadline: float) -> tuple[int, object]:
        if self.hello is None:
            _, hello = protocol.decode(self._process.read(deadline), protocol.REPLIES)
            self.hello = protocol.check_version(hello)
        return protocol.decode(self._process.read(deadline), protocol.REPLIES)

    def _note(self, escaped: protocol.Escaped) -> None:
        if escaped.row is not None:
            self.escaped.add(escaped.row)

    def finish(self, timeout_s: float) -> None:
        """Let the worker finish and exit by itself.

        Raises:
            WorkerError: it did not exit within this time.
        """
        try:
            self._process.finish(timeout_s)
        except TimeoutError:
            raise WorkerError(f"it did not end within {timeout_s:g} s", alive=False) from None

    def close(self) -> None:
        """End the worker and everything it started, and note children that escaped meanwhile."""
        try:
            with contextlib.suppress(ChildError, TimeoutError, protocol.ProtocolError):
                while True:
                    _, reply = self._read(time.monotonic())
                    if isinstance(reply, protocol.Escaped):
                        self._note(reply)
        finally:
            self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
