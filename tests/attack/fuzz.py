"""Run cases in a worker, with a limit of time and memory, and see how each one ends."""

import contextlib
import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.attack import cases
from tests.attack.calls import call
from tests.attack.cases import Case, Outcome
from tests.attack.command_lines import command_line, configuration_file, settings_file

ROOT = Path(__file__).parents[2]
KINDS = {
    "command line": command_line,
    "file": configuration_file,
    "settings": settings_file,
    "call": call,
}
# What is allowed may be long. It is interrupted, and must end then.
INTERRUPT_S = 20.0
HANG_S = 60.0
_MOST_WAITS = 10


class Worker:
    """A process that runs one case after another. After a hang or a death another one starts."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._start()

    def run(self, case: Case) -> Outcome:
        """Run a case."""
        stdin = self._process.stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps({"kind": case.kind, "what": case.what}) + "\n")
            stdin.flush()
        try:
            answer = self._answer(INTERRUPT_S)
        except queue.Empty:
            self._process.send_signal(signal.SIGINT)
            if (last := self._last_answer()) is None:
                return self._lost(case, cases.HANG)
            answer = last
        if not answer:
            self._process.wait()
            return self._lost(case, cases.KILLED)
        ending, said = json.loads(answer)
        return Outcome(case, ending, said)

    def close(self) -> int:
        """End the process, and return its exit code."""
        self._process.kill()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        return self._process.wait()

    def _answer(self, seconds: float) -> str:
        return self._answers.get(timeout=seconds)

    def _last_answer(self) -> str | None:
        """Wait after an interrupt, by the processor, since the machine may be busy."""
        begin_s = self._processor_s()
        for _ in range(_MOST_WAITS):
            try:
                return self._answer(HANG_S)
            except queue.Empty:
                used_s = self._processor_s() - begin_s
                # A process that waits for nothing uses no processor at all.
                if used_s > HANG_S or used_s < 1:
                    return None
        return None

    def _processor_s(self) -> float:
        stat = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def _lost(self, case: Case, ending: str) -> Outcome:
        said = f"exit code {self.close()}"
        self._start()
        return Outcome(case, ending, said)

    def _start(self) -> None:
        cache = os.environ.get("MYRIAD_COMPILATION_CACHE", str(self._folder.parent / "cache"))
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.attack.worker", str(self._folder)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "MYRIAD_COMPILATION_CACHE": cache},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        answers: queue.Queue[str] = queue.Queue()
        self._answers = answers

        def read() -> None:
            assert process.stdout is not None
            with process.stdout as lines:
                for line in lines:
                    answers.put(line)
            answers.put("")

        threading.Thread(target=read, daemon=True).start()
        # However busy the machine is: only a process that has ended gives an empty answer.
        if self._answers.get() != "ready\n":
            raise RuntimeError(f"the worker ended with exit code {self.close()}.")


def attack(every: Iterable[Case]) -> Iterator[Outcome]:
    """Run cases in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(Path(folder) / "inside")
        try:
            for case in every:
                yield worker.run(case)
        finally:
            worker.close()


def repeated(case: Case) -> str:
    """Return a line that shows a case to a person who would run it."""
    if case.kind == "command line":
        return shlex.join(["myriad", *case.what])
    return case.what[0] if case.kind == "call" else repr(case.what[0])
