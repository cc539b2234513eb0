"""Start workers, ask them, survive their failures, and end them with everything that they started.

A worker is a process in a session of its own that runs one side's benchmarks. It may hang, die or
fork. Each of these becomes a `WorkerError` with a one-sentence message. Nothing that it started
outlives `close`, and nothing outlives the gate (see `process/reaper.py`).
"""

import contextlib
import dataclasses
import json
import math
import os
import select
import signal
import subprocess
import tempfile
import time
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import asv_runner
from pydantic import TypeAdapter

from perfgate.process import protocol
from perfgate.process.protocol import Request
from perfgate.process.reaper import reaper
from perfgate.source.sides import Side, Sides

R = TypeVar("R")
WORKER_FILE = Path(__file__).parents[1] / "worker" / "__main__.py"
# The folder with the gate's own asv_runner, for a suite's Python that has none.
RUNNER = Path(asv_runner.__file__).parents[1]
_REPLIES = {each.__name__: TypeAdapter(each) for each in typing.get_args(protocol.Reply)}
_FAREWELL_S = 1.0


@dataclass(eq=False)
class WorkerError(Exception):
    """A worker could not answer.

    Attributes:
        reason: why, in one sentence.
        alive: whether the worker can still answer other requests.
        by_runner: whether the benchmark is not to blame.
        timed_out: whether it gave no answer in time.
    """

    reason: str
    alive: bool = False
    by_runner: bool = False
    timed_out: bool = False


class TimeSpentError(Exception):
    """The run has reached its end, so a worker was not asked or its answer not awaited."""


class Worker:
    """A live worker of one side. Use it in a `with` block.

    Args:
        sides: the two commits.
        side: the one whose benchmarks it runs.
        core: the core that it is pinned to; None leaves it free.
        suite: the folder of benchmarks or the file of tests, if that is not the side's.
        hash_seed: decides the order of sets.
        fresh: whether its cache of compiled programs is empty, and not shared by all workers.
    """

    def __init__(
        self,
        sides: Sides,
        side: Side,
        *,
        core: int | None = None,
        suite: Path | None = None,
        hash_seed: int = 0,
        fresh: bool = False,
    ):
        self._is_pytest = sides.is_pytest
        self._number = 0
        self._unread = b""
        place = sides.folder / f"exchange-{side.name}"
        caches = sides.folder / f"caches-{side.name}"
        programs = sides.folder / "programs"
        if fresh:
            programs = Path(tempfile.mkdtemp(prefix="programs-", dir=sides.folder))
        for folder in (caches, place, programs):
            folder.mkdir(exist_ok=True)
        request_read, self._requests = os.pipe()
        self._replies, reply_write = os.pipe()
        options = {
            "pipes": [request_read, reply_write],
            "folders": [*map(str, (suite or side.suite, caches, place, side.root))],
            "runner": str(RUNNER),
            "core": core,
            "pytest_args": sides.pytest_args,
        }
        # With -P the worker's folder stays off the import path, so the suite can't import from it.
        command = [side.python, "-P", str(WORKER_FILE), json.dumps(options)]
        self._log = place / f"stderr-{time.monotonic_ns()}.txt"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env=reaper().marked(side.environment(programs, hash_seed)),
                pass_fds=(request_read, reply_write),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                # its children can then be ended with it, and Ctrl-C only reaches this process
                start_new_session=True,
                cwd=place,
            )
        reaper().watch(self._process.pid)
        os.close(request_read)
        os.close(reply_write)

    def send(self, request: Request[Any]) -> None:
        """Send a request. `receive` waits for its reply."""
        self._number += 1
        # If nobody reads it, the missing answer will show that.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._requests, protocol.encode(request, self._number))

    def receive(self, request: Request[R], timeout_s: float) -> R:
        """Return the reply to the last request.

        Raises:
            WorkerError: the benchmark raised, or the worker died or took longer than `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        try:
            number, reply = self._read(deadline)
            while number != self._number:  # of a forked child that returned late
                number, reply = self._read(deadline)
        except TimeoutError:
            limit = "timeout_s in gate.toml"
            if isinstance(request, protocol.Target) and not self._is_pytest:
                limit = "its `timeout`, or default_benchmark_timeout in asv.conf.json"
            reason = f"no answer within {timeout_s:g} s; if it needs longer, raise {limit}"
            raise WorkerError(reason, timed_out=True) from None
        if isinstance(reply, protocol.Failed):
            alive = not reply.is_fatal
            raise WorkerError(reply.reason, alive=alive, by_runner=reply.by_runner)
        return typing.cast("R", reply)

    def _read(self, deadline: float) -> tuple[int, object]:
        """Return the next message and the number of the request that it answers.

        Raises:
            WorkerError: the worker has ended, closed its pipe, or written something else.
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
                    raise WorkerError(self._cause_of_death())
                self._unread += chunk
            elif self._process.poll() is not None:
                raise WorkerError(self._cause_of_death())
            elif time.monotonic() >= deadline:
                raise TimeoutError
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            number, kind, fields = json.loads(line)
            return number, _REPLIES[kind].validate_python(fields)
        except (ValueError, LookupError, TypeError):  # a benchmark may write anything
            raise WorkerError("it wrote into the pipe that belongs to the gate") from None

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

    def close(self) -> None:
        """End the worker and everything it started."""
        for descriptor in (self._requests, self._replies):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        # macOS refuses to signal a group in which every process has ended
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        reaper().watch(-self._process.pid)
        self._process.wait()
        with contextlib.suppress(OSError):
            self._log.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WorkerPool:
    """One worker per side, started on its first request and replaced when it dies.

    Use it in a `with` block. Both workers are pinned to `core`, or head's to `head_core` if given.
    No request outlasts `deadline`, which is on the clock of `time.monotonic`. If the pool is
    `fresh`, each worker begins with an empty cache of compiled programs.
    """

    def __init__(
        self,
        sides: Sides,
        core: int | None,
        *,
        head_core: int | None = None,
        hash_seed: int = 0,
        deadline: float = math.inf,
        fresh: bool = False,
    ):
        self.sides = sides
        self.fresh = fresh
        self.deadline = deadline
        self.hash_seed = hash_seed
        self.cores = {"base": core, "head": core if head_core is None else head_core}
        self._workers: dict[str, Worker] = {}

    def ask_sides(
        self, sides: Sequence[Side], request: Request[R], timeout_s: float, *, at_once: bool = True
    ) -> dict[str, R | WorkerError]:
        """Send these sides the same request, and return each reply or the error of its worker.

        Sides are asked one after the other if their workers share a core, since they would disturb
        each other, or without `at_once`. Then the second side is not asked if the first one fails.
        A worker that died is replaced on the next request.

        Raises:
            TimeSpentError: the deadline has passed.

        Args:
            sides: the sides to ask, in this order.
            request: the request. If it names no core, each worker stays on its own core.
            timeout_s: seconds to wait for one reply.
            at_once: send to both, then receive from both.
        """
        places = [self.cores[side.name] for side in sides]
        have_cores_of_their_own = None in places or len(set(places)) == len(places)
        groups = [sides] if at_once and have_cores_of_their_own else [[side] for side in sides]
        replies: dict[str, R | WorkerError] = {}
        for group in groups:
            if not at_once and any(isinstance(each, WorkerError) for each in replies.values()):
                break
            for side in group:
                self.check_time()
                core = self.cores[side.name] if request.core is None else request.core
                self._worker(side).send(dataclasses.replace(request, core=core))
            for side in group:
                left_s = max(0.0, self.deadline - time.monotonic())
                try:
                    reply = self._worker(side).receive(request, min(timeout_s, left_s))
                except WorkerError as error:
                    if not error.alive:
                        self.close(side.name)
                    if left_s < timeout_s and time.monotonic() >= self.deadline:
                        raise TimeSpentError from None
                    reply = error
                replies[side.name] = reply
        return replies

    def _worker(self, side: Side) -> Worker:
        if side.name not in self._workers:
            core, seed = self.cores[side.name], self.hash_seed
            worker = Worker(self.sides, side, core=core, hash_seed=seed, fresh=self.fresh)
            self._workers[side.name] = worker
        return self._workers[side.name]

    def check_time(self) -> None:
        """Raise a `TimeSpentError` if the deadline has passed."""
        if time.monotonic() >= self.deadline:
            raise TimeSpentError

    @property
    def live(self) -> list[Side]:
        """The sides that have a worker, base first."""
        both = (self.sides.base, self.sides.head)
        return [side for side in both if side.name in self._workers]

    def close(self, name: str) -> None:
        """End the worker of a side."""
        worker = self._workers.pop(name, None)
        if worker is not None:
            worker.close()

    def close_all(self) -> None:
        """End every worker."""
        for name in list(self._workers):
            self.close(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_all()
