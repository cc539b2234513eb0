"""Run a function of a suite in a new process, with limits on memory and time.

    reply = run("benchmarks.memory_profile:peak_of", {"env": "cartpole-control"}, timeout_s=60)

The function takes the request's items as keyword arguments and returns a JSON object. A new process
has its own peak memory, its own XLA options and nothing compiled. If it hangs or takes too much
memory, only its own row is lost. Its output goes to stderr, and the last line there explains how it
ended.
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
        timeout_s: seconds that it may take, including its imports.
        memory_limit_bytes: limit on its memory; None means nine tenths of the machine's free
            memory.
        **environ: environment variables in addition to this process's own.

    Raises:
        ChildError: it refused, died, hung, or exceeded its memory.
    """
    with tempfile.TemporaryDirectory() as folder:
        # The reply is a file, since libraries may print anything to stdout.
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
    """Run as the child: call the function and write its reply to the file that the parent reads."""
    end_with_parent()
    target, request, answer = sys.argv[1:]
    module, _, name = target.partition(":")
    try:
        reply = getattr(importlib.import_module(module), name)(**json.loads(request))
    # JAX raises RuntimeError, also if memory runs out. Myriad raises ValueError.
    except (NotImplementedError, ImportError, RuntimeError, MemoryError, ValueError) as error:
        reply = {"failure": failure_of(error)}
    write_text(Path(answer), json.dumps(reply))


if __name__ == "__main__":
    main()
