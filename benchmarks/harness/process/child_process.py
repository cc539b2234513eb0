"""Run one function of a suite in a process of its own, with a limit on its memory and its time.

    reply = run("benchmarks.memory_profile:peak_of", {"env": "cartpole-control"}, timeout_s=60)

The function takes the request's items as keyword arguments, calls what it imports from myriad, and
returns a JSON object. A new process has its own peak memory, its own XLA options and nothing
compiled. A process that hangs or takes too much memory costs its own row and no other. What it
prints goes to stderr, and the last line of that explains how it ended.
"""

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness.files import write_text
from benchmarks.harness.process.failures import ChildError, end_with_parent, failure_of
from benchmarks.harness.process.supervisor import Supervised

Reply = dict[str, Any]


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
        timeout_s: how long it may take, its imports included, in seconds.
        memory_limit_bytes: of process memory; None takes nine tenths of what the machine has left.
        **environ: environment variables beside this process's own.

    Raises:
        ChildError: it refused, died, hung, or took more memory than it may.
    """
    with tempfile.TemporaryDirectory() as folder:
        # The reply is a file, since libraries print to stdout whatever they like.
        answer = Path(folder) / "reply.json"
        module = "benchmarks.harness.process.child_process"
        command = [sys.executable, "-m", module, target, json.dumps(request), str(answer)]
        with Supervised(command, environ=environ) as child:
            child.wait(timeout_s, memory_limit_bytes)
            if not answer.exists():
                raise ChildError("failed", child.last_words())
        reply = json.loads(answer.read_text(encoding="utf-8"))
    if "failure" in reply:
        raise ChildError(**reply["failure"])
    return reply


def main() -> None:
    """Be the child: call the function and write its reply to the file that the parent reads."""
    end_with_parent()
    target, request, answer = sys.argv[1:]
    module, _, name = target.partition(":")
    try:
        reply = getattr(importlib.import_module(module), name)(**json.loads(request))
    # RuntimeError is JAX's own, out of memory included; ValueError is Myriad's.
    except (NotImplementedError, ImportError, RuntimeError, MemoryError, ValueError) as error:
        reply = {"failure": failure_of(error)}
    write_text(Path(answer), json.dumps(reply))


if __name__ == "__main__":
    main()
