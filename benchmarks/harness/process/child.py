"""Child processes that answer JSON lines: one for each request, or one for a whole function.

    reply = run("benchmarks.memory_profile:peak_of", {"env": "cartpole-control"}, timeout_s=60)

A new process has its own peak memory, its own XLA options and nothing compiled. A function takes
the request's items as keyword arguments and returns a JSON object. If it hangs or takes too much
memory, only its own row is lost. If it returns a call beside the object, the parent can time that
call again and again, in turns with others:

    with TimedGroup("benchmarks.devices:prepare", [request], [{}], timeout_s=300) as group:
        group.prepared()
        group.seconds()
"""

import contextlib
import importlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

from benchmarks.harness.process.clock import seconds_of
from benchmarks.harness.process.failures import ChildError, end_with_parent, failure_of
from benchmarks.harness.process.supervisor import LOOK_S, Supervised, available_bytes

Reply = dict[str, Any]


class Conversation:
    """A running command that replies in JSON lines. Leaving the `with` block ends it.

    Args:
        command: the command.
        environ: environment variables in addition to this process's own.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]):
        self._child = Supervised(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, environ=environ
        )
        self._replies: queue.Queue[str] = queue.Queue()
        # A thread reads the replies, so that the parent can stop waiting.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._reader.join()
        self._child.__exit__()

    def end(self) -> None:
        """End the process and those that it started. They hold nothing that must be saved."""
        self._child.end()

    def ask(self, request: dict[str, Any], timeout_s: float) -> Reply:
        """Send `request` and return its reply."""
        self.send(request)
        return self.reply(timeout_s)

    def send(self, request: dict[str, Any]) -> None:
        """Send `request`. `reply` returns its reply."""
        # the missing reply will show that the process is dead
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self._child.process.stdin, flush=True)

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
                    timeout=left if memory_limit_bytes is None else min(left, LOOK_S)
                )
            except queue.Empty:
                if memory_limit_bytes is not None:
                    self._child.require_within(memory_limit_bytes)
                if time.monotonic() >= deadline:
                    raise ChildError("failed", f"no answer within {timeout_s:g} s") from None
        if not line:
            raise ChildError("failed", self._child.last_words())
        reply = json.loads(line)
        if "failure" in reply:
            raise ChildError(**reply["failure"])
        return reply

    def _read(self) -> None:
        for line in self._child.process.stdout or ():
            self._replies.put(line)
        self._replies.put("")


def _started(target: str, request: dict[str, Any], environ: Mapping[str, str]) -> Conversation:
    command = [sys.executable, "-m", __name__, target, json.dumps(request)]
    return Conversation(command, environ)


def run(
    target: str,
    request: dict[str, Any],
    *,
    timeout_s: float,
    memory_limit_bytes: int | None = None,
    **environ: str,
) -> Reply:
    """Call `target` in a new process and return its reply.

    Args:
        target: `package.module:function`.
        request: its keyword arguments, as JSON can write them.
        timeout_s: seconds that it may take, including its imports.
        memory_limit_bytes: limit on its memory; None means nine tenths of the machine's free
            memory.
        **environ: environment variables in addition to this process's own.

    Raises:
        ChildError: it refused, died, hung, or exceeded its memory.
    """
    with _started(target, request, environ) as child:
        return child.reply(timeout_s, memory_limit_bytes or available_bytes())


class TimedGroup:
    """A call that several processes make together, such as one training.

    Args:
        target: `package.module:function`, which returns a JSON object and the call.
        requests: the keyword arguments of each process, as JSON can write them.
        environs: each process's environment variables, in addition to this one's own.
        timeout_s: how long preparing and each call may take, in seconds.
    """

    def __init__(
        self,
        target: str,
        requests: Sequence[dict[str, Any]],
        environs: Sequence[Mapping[str, str]],
        *,
        timeout_s: float,
    ):
        self._timeout_s = timeout_s
        with contextlib.ExitStack() as stack:
            self._processes = [
                stack.enter_context(_started(target, request, environ))
                for request, environ in zip(requests, environs, strict=True)
            ]
            self._open = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def prepared(self) -> list[Reply]:
        """Wait until all are prepared, and return the function's object from each process.

        Raises:
            ChildError: the function refused in one, or one died or did not answer.
        """
        return [process.reply(self._timeout_s) for process in self._processes]

    def seconds(self) -> float:
        """Return the seconds of one more call, which last as long as the slowest process.

        Raises:
            ChildError: a process died or did not answer.
        """
        for process in self._processes:
            process.send({})
        return max(process.reply(self._timeout_s)["seconds"] for process in self._processes)


def main() -> None:
    """Run as the child: call the function, reply, and time its call for each line of stdin."""
    end_with_parent()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print anything to stdout
    target, request = sys.argv[1:]
    module, _, name = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)(**json.loads(request))
        reply, *calls = found if isinstance(found, tuple) else (found,)
        print(json.dumps(reply), file=replies, flush=True)
        for _ in sys.stdin if calls else ():
            print(json.dumps({"seconds": seconds_of(*calls)}), file=replies, flush=True)
    # JAX raises RuntimeError, also if memory runs out. Myriad raises ValueError.
    except (NotImplementedError, ImportError, RuntimeError, MemoryError, ValueError) as error:
        print(json.dumps({"failure": failure_of(error)}), file=replies, flush=True)


if __name__ == "__main__":
    main()
