"""Run one function of a suite in a process of its own, with a limit on its memory and its time.

    reply = run("benchmarks.memory_profile:peak_of", {"env": "cartpole-control"}, timeout_s=60)

The function takes the request's items as keyword arguments, calls what it imports from myriad, and
returns a JSON object. A new process has its own peak memory, its own XLA options and nothing
compiled; one that hangs or takes too much costs its own row and no other. What it prints goes to
stderr, and the last line of that is what its death is explained by.
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from benchmarks.harness.parent import end_with_parent

ROOT = Path(__file__).resolve().parents[2]
_LOOK_S = 0.25  # between two looks at the memory: seldom enough not to disturb what is measured
_PARENT_FIELD, _RSS_FIELD = 1, 21  # of /proc/<pid>/stat, from behind the command's name
# Of what a machine has left: the rest is for the system, and for what starts meanwhile.
_SHARE_OF_MEMORY = 0.9

Reply = dict[str, Any]


class ChildError(Exception):
    """A child gave no answer; `status` and the message are those of its row: `refused`, `failed` or `not installed`."""

    def __init__(self, status: str, reason: str):
        super().__init__(reason)
        self.status = status


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
        memory_limit_bytes: of resident memory; None takes nine tenths of what the machine has left.
        **environ: environment variables beside this process's own.

    Raises:
        ChildError: it refused, died, hung, or took more memory than it may.
    """
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log:
        answer = Path(folder) / "reply.json"
        command = [
            sys.executable,
            "-m",
            "benchmarks.harness.child_process",
            target,
            json.dumps(request),
            str(answer),
        ]
        code = watched(
            command, log, timeout_s=timeout_s, memory_limit_bytes=memory_limit_bytes, **environ
        )
        if not answer.exists():
            log.seek(0)
            raise ChildError("failed", _last_words(code, log.read()))
        reply = json.loads(answer.read_text(encoding="utf-8"))
    if "failure" in reply:
        raise ChildError(**reply["failure"])
    return reply


def watched(
    command: Sequence[str],
    log: IO[str],
    *,
    timeout_s: float,
    memory_limit_bytes: int | None = None,
    **environ: str,
) -> int:
    """Run a command in a session of its own and return its exit code; nothing that it started outlives this call.

    Args:
        command: what runs.
        log: takes what it writes.
        timeout_s: how long it may take, in seconds.
        memory_limit_bytes: of resident memory, all its processes together; None takes nine tenths
            of what is left.
        **environ: environment variables beside this process's own.

    Raises:
        ChildError: it took more time or memory than it may.
    """
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=without_users_cache(os.environ) | {"PYTHONPATH": path} | environ,
        start_new_session=True,  # so that what it started ends with it
    )
    try:
        _watch(process, timeout_s, memory_limit_bytes or _most_bytes())
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode


def without_users_cache(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without JAX's own compilation cache, which would make compiling look like nothing."""
    return {name: value for name, value in environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}


def _most_bytes() -> int:
    from myriad.hardware import host_memory

    _, left = host_memory()
    return sys.maxsize if left is None else int(_SHARE_OF_MEMORY * left)


def _watch(process: subprocess.Popen[bytes], timeout_s: float, limit: int) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_S)
            return
        held = _resident_bytes(process.pid)
        if held > limit:
            raise ChildError(
                "refused", f"out of memory: it held {held:,} bytes and may hold {limit:,}"
            )
        if time.monotonic() > deadline:
            raise ChildError("failed", f"no answer within {timeout_s:g} s")


def _resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and all it started, 0 where the system does not tell it."""
    processes = {int(folder.name): _stat(folder) for folder in Path("/proc").glob("[0-9]*")}
    total, left = 0, [pid]
    while left:
        parent = left.pop()
        total += processes.get(parent, (0, 0))[1]
        left += [child for child, (its_parent, _) in processes.items() if its_parent == parent]
    return total * os.sysconf("SC_PAGE_SIZE")


def _stat(folder: Path) -> tuple[int, int]:
    """Return a process's parent and its resident pages; zeros where it has ended meanwhile."""
    try:
        # The command's name, in parentheses, may hold spaces; fields count from behind it.
        fields = (
            (folder / "stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
    except OSError:
        return 0, 0
    return int(fields[_PARENT_FIELD]), int(fields[_RSS_FIELD])


def _last_words(code: int, log: str) -> str:
    lines = log.strip().splitlines()
    ending = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"the process {ending}: {lines[-1] if lines else 'no message'}"


def main() -> None:
    """Be the child: call the function and leave its reply, whole, in the file that the parent reads."""
    end_with_parent()
    target, request, answer = sys.argv[1:]
    module, _, name = target.partition(":")
    try:
        reply = getattr(importlib.import_module(module), name)(**json.loads(request))
    except NotImplementedError as error:
        reply = _failure("refused", error)
    except ImportError as error:
        reply = _failure("not installed", error)
    except (
        RuntimeError,
        MemoryError,
        ValueError,
    ) as error:  # JAX's own, out of memory included, and Myriad's
        reply = _failure("failed", error)
    part = Path(f"{answer}.part")
    part.write_text(json.dumps(reply), encoding="utf-8")
    part.replace(answer)


def _failure(status: str, error: Exception) -> Reply:
    return {
        "failure": {
            "status": status,
            "reason": (str(error).strip() or type(error).__name__).splitlines()[0],
        }
    }


if __name__ == "__main__":
    main()
