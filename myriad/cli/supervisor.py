"""Run one of a training's processes in a child, explain a bad end, and restart it.

When the process that hosts JAX's coordination service is gone, JAX aborts the others from within
and dumps their stacks. Only another process can then say in a sentence what happened and restart.
"""

import collections
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from myriad.files import say
from myriad.launch import LOST, REFUSED, Launch, how_to_resume

# Wait until all processes have noticed that one was killed, and have ended.
_RESTART_S = 12.0
_LINES = 200


def supervise(
    argv: Sequence[str],
    launch: Launch,
    run_folder: Path | None,
    restarts: int,
) -> int:
    """Run a command in a child process until it ends, and return its exit code.

    Args:
        argv: the command's arguments.
        launch: which process this is.
        run_folder: the folder in which the training is saved, if it is known.
        restarts: how many times to start the command again after a process was lost.
    """
    folder = None if run_folder is None else run_folder.absolute()
    # A run that is already in the folder is a different one, and a restart must not continue it.
    # If the arguments resume that run, the restarted command does so by itself.
    was_there = _is_run(folder)
    attempt = 0
    while True:
        goes_on = attempt > 0 and not was_there and _is_run(folder)
        child = _Child(argv, folder if goes_on else None)
        code = child.wait()
        if code < 0:
            code = _explained(child, -code, launch, folder)
        if code != LOST or child.was_told_to_end:
            return code
        if attempt >= restarts:
            if restarts:
                say(f"process {launch.process_id}: all {restarts} restarts are used up")
            return code
        attempt += 1
        say(f"process {launch.process_id}: restart {attempt} of {restarts}")
        time.sleep(_RESTART_S)


class _Child:
    """The process that trains. It gets this process's signals, and its C++ output is kept."""

    def __init__(self, argv: Sequence[str], run_folder: Path | None):
        self.was_told_to_end = False
        self.lines: collections.deque[str] = collections.deque(maxlen=_LINES)
        reading, writing = os.pipe()
        # In a group of its own, so that Ctrl-C reaches it once: through this process.
        self._process = subprocess.Popen(  # noqa: S603 (this program itself)
            [
                *(sys.executable, "-m", "myriad.cli.worker"),
                *(str(writing), str(os.getpid()), str(run_folder or ""), *argv),
            ],
            pass_fds=[writing],
            process_group=0,
        )
        os.close(writing)
        printed = os.fdopen(reading, errors="replace")
        self._reader = threading.Thread(target=self._read, args=[printed], daemon=True)
        self._reader.start()

    def wait(self) -> int:
        """Return the exit code, negative for a signal."""
        handlers = {
            number: signal.signal(number, self._forward)
            for number in (signal.SIGINT, signal.SIGTERM)
            if signal.getsignal(number) != signal.SIG_IGN
        }
        try:
            code = self._process.wait()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        self._reader.join(1)
        return code

    def _forward(self, number: int, _: object) -> None:
        self.was_told_to_end = True
        self._process.send_signal(number)

    def _read(self, printed: IO[str]) -> None:
        with printed:
            self.lines.extend(printed)


def _explained(child: _Child, number: int, launch: Launch, folder: Path | None) -> int:
    """Say why a signal ended the child, and return the exit code that stands for it."""
    if number in (signal.SIGTERM, signal.SIGINT):
        return 128 + number  # It has saved and said so, or had nothing to save yet.
    printed = "".join(line for line in child.lines if not line.startswith("[Gloo]"))
    me = f"process {launch.process_id} of {launch.num_processes}"
    goes_on = how_to_resume(folder) if _has_saved(folder) else ""
    if "JAX distributed service detected fatal errors" not in printed:
        by_whom = ", by somebody or by the system, which does so when memory runs out"
        hint = by_whom if number == signal.SIGKILL else ""
        if number != signal.SIGKILL:
            sys.stderr.write(printed)
        say(f"{me} was ended by {signal.Signals(number).name}{hint}{goes_on}")
        return LOST
    if found := re.search(r"(\d+) unexpectedly tried to connect", printed):
        say(
            f"process_id must be different in each process: a second process {found[1]} came to "
            f"{launch.coordinator}, so {me} ends, too{goes_on}"
        )
        return LOST
    if "RegisterTask" not in printed:
        say(f"process 0 of {launch.num_processes} was lost, so {me} ends, too{goes_on}")
        return LOST
    found = re.search(r"absl::Status: (.*)", printed)
    why = found[1] if found else ""
    if "Unexpected task" in why:
        say(
            f"num_processes must be the same in all processes: process 0 at {launch.coordinator} "
            f"expects fewer, but this is {me}."
        )
    elif "ALREADY_EXISTS" in why or "incarnation" in why:
        say(
            f"process_id must be different in each process: two have {launch.process_id} at "
            f"{launch.coordinator}."
        )
    else:
        say(
            f"{me} did not meet all the others at {launch.coordinator} in time: start all "
            f"{launch.num_processes}, each with its own number."
        )
    return REFUSED


def _is_run(folder: Path | None) -> bool:
    """Return whether a training has made the folder."""
    return folder is not None and (folder / "config.toml").exists()


def _has_saved(folder: Path | None) -> bool:
    """Return whether there is a checkpoint to resume from."""
    return folder is not None and any(path.name.isdigit() for path in folder.glob("checkpoints/*"))
