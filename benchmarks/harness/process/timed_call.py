"""A call that is prepared in a process of its own, and timed there whenever the parent asks.

    with TimedCall("benchmarks.devices:prepare", request, timeout_s=300) as call:
        call.prepared()
        call.seconds()

The function takes the request's items as keyword arguments. It returns a JSON object, which says
what was prepared, and the call. So configurations that need cores, devices and XLA options of their
own can be timed in turns.
"""

import importlib
import json
import os
import sys
from typing import Any

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
        """Wait until the call is prepared, and return what the function says of it.

        Raises:
            ChildError: the function refused, or the process died or did not answer.
        """
        return self.reply(self._timeout_s)

    def seconds(self) -> float:
        """Return the seconds of one more call.

        Raises:
            ChildError: the process died or did not answer.
        """
        return self.ask({}, self._timeout_s)["seconds"]


def main() -> None:
    """Be the child: prepare the call, and time it once for each line of stdin."""
    end_with_parent()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print to stdout whatever they like
    target, request = sys.argv[1:]
    module, _, name = target.partition(":")
    try:
        prepared, call = getattr(importlib.import_module(module), name)(**json.loads(request))
        print(json.dumps(prepared), file=replies, flush=True)
        for _ in sys.stdin:
            print(json.dumps({"seconds": seconds_of(call)}), file=replies, flush=True)
    # RuntimeError is JAX's own, out of memory included; ValueError is Myriad's.
    except (NotImplementedError, ImportError, RuntimeError, MemoryError, ValueError) as error:
        print(json.dumps(failure_of(error)), file=replies, flush=True)


if __name__ == "__main__":
    main()
