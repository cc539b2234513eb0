"""A child process that answers JSON lines, with one reply for each request.

A thread reads the replies, so that the parent can stop waiting. interleave.py and timed_call.py use
it.
"""

import contextlib
import json
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Self

from benchmarks.harness.process.failures import ChildError
from benchmarks.harness.process.supervisor import Supervised


class Conversation:
    """A running command. Leaving the `with` block ends it.

    Args:
        command: the command.
        environ: environment variables in addition to this process's own.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]):
        self._child = Supervised(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, environ=environ
        )
        self._replies: queue.Queue[str] = queue.Queue()
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

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send `request` and return its reply."""
        self.send(request)
        return self.reply(timeout_s)

    def send(self, request: dict[str, Any]) -> None:
        """Send `request`. `reply` returns its reply."""
        # the missing reply will show that the side is dead
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self._child.process.stdin, flush=True)

    def reply(self, timeout_s: float) -> dict[str, Any]:
        """Return the next reply.

        Raises:
            ChildError: the process refused, died, or did not answer within `timeout_s` seconds.
        """
        try:
            line = self._replies.get(timeout=timeout_s)
        except queue.Empty:
            raise ChildError("failed", f"no answer within {timeout_s:g} s") from None
        if not line:
            raise ChildError("failed", self._child.last_words())
        reply = json.loads(line)
        if "status" in reply:
            raise ChildError(**reply)
        return reply

    def _read(self) -> None:
        for line in self._child.process.stdout or ():
            self._replies.put(line)
        self._replies.put("")
