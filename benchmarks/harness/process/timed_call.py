"""Prepare a call in a new process, and time it there whenever the parent asks.

    with TimedCall("benchmarks.devices:prepare", request, timeout_s=300) as call:
        call.prepared()
        call.seconds()

The function takes the request's items as keyword arguments. It returns a JSON object that describes
the call, and the call itself. So you can alternate configurations that each need their own cores,
devices and XLA options. A `TimedGroup` times a call that several processes make together.
"""

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Self

from benchmarks.harness.process.clock import seconds_of
from benchmarks.harness.process.conversation import Conversation
from benchmarks.harness.process.failures import end_with_parent, failure_of


class TimedCall(Conversation):
    """A process with a prepared call.

    Args:
        target: `package.module:function`.
        request: its keyword arguments, as JSON can write them.
        timeout_s: how long preparing and each call may take, in seconds.
        **environ: environment variables beside this process's own.
    """

    def __init__(self, target: str, request: dict[str, Any], *, timeout_s: float, **environ: str):
        module = "benchmarks.harness.process.timed_call"
        super().__init__([sys.executable, "-m", module, target, json.dumps(request)], environ)
        self._timeout_s = timeout_s

    def prepared(self) -> dict[str, Any]:
        """Wait until the call is prepared, and return the function's description of it.

        Raises:
            ChildError: the function refused, or the process died or did not answer.
        """
        return self.reply(self._timeout_s)

    def seconds(self) -> float:
        """Return the seconds of one more call.

        Raises:
            ChildError: the process died or did not answer.
        """
        self.start()
        return self.finish()

    def start(self) -> None:
        """Begin one more call. `finish` waits for it."""
        self.send({})

    def finish(self) -> float:
        """Return the seconds of the call that `start` began.

        Raises:
            ChildError: the process died or did not answer.
        """
        return self.reply(self._timeout_s)["seconds"]


class TimedGroup:
    """A call that several processes make together, such as one training.

    Args:
        target: `package.module:function`.
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
        with contextlib.ExitStack() as stack:
            self._calls = [
                stack.enter_context(TimedCall(target, request, timeout_s=timeout_s, **environ))
                for request, environ in zip(requests, environs, strict=True)
            ]
            self._open = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def prepared(self) -> list[dict[str, Any]]:
        """Wait until all are prepared, and return the function's description from each process.

        Raises:
            ChildError: the function refused in one, or one died or did not answer.
        """
        return [call.prepared() for call in self._calls]

    def seconds(self) -> float:
        """Return the seconds of one more call, which last as long as the slowest process.

        Raises:
            ChildError: a process died or did not answer.
        """
        for call in self._calls:
            call.start()
        return max(call.finish() for call in self._calls)


def main() -> None:
    """Run as the child: prepare the call, and time it once for each line of stdin."""
    end_with_parent()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print anything to stdout
    target, request = sys.argv[1:]
    module, _, name = target.partition(":")
    try:
        prepared, call = getattr(importlib.import_module(module), name)(**json.loads(request))
        print(json.dumps(prepared), file=replies, flush=True)
        for _ in sys.stdin:
            print(json.dumps({"seconds": seconds_of(call)}), file=replies, flush=True)
    # JAX raises RuntimeError, also if memory runs out. Myriad raises ValueError.
    except (NotImplementedError, ImportError, RuntimeError, MemoryError, ValueError) as error:
        print(json.dumps(failure_of(error)), file=replies, flush=True)


if __name__ == "__main__":
    main()
