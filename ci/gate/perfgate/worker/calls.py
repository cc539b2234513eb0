"""Record the functions that a benchmark calls and the packages that it imports, in a worker.

If no compiled program explains a slowdown, counts show which function is new or is called more
often.
"""

import contextlib
import itertools
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_IMPORTED = re.compile(r"^import time: +\d+ \| +\d+ \| +([\w.]+)$", re.MULTILINE)
_LIBRARY = re.compile(r"^.*/(?:(?:site|dist)-packages|python3\.\d+)/")
_MOST = 2_000  # names in one reply


@contextlib.contextmanager
def profiled(note: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """Report this thread's calls to `note` while the block runs, then restore the profiler."""
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


class CalledFunctions:
    """The functions that this thread calls while a block runs.

    Functions below `root` are named `package/file.py:function`, all others by their module.

    Attributes:
        counts: how often each was called, in the order of their first calls.
    """

    def __init__(self, root: Path):
        self.counts: dict[str, int] = {}
        self._root = root
        self._names: dict[CodeType, str] = {}

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count while the block runs."""
        with profiled(self._note):
            yield

    def first_counts(self) -> dict[str, int]:
        """Return the counts of as many functions as fit into one reply."""
        return dict(itertools.islice(self.counts.items(), _MOST))

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            code = frame.f_code
            name = self._names.get(code)
            if name is None:
                name = self._names[code] = _name_of(code, self._root)
        elif event == "c_call":
            module = getattr(argument, "__module__", None)
            name = f"{module}.{argument.__qualname__}" if module else argument.__qualname__
        else:
            return
        self.counts[name] = self.counts.get(name, 0) + 1


def _name_of(code: CodeType, root: Path) -> str:
    file = code.co_filename
    return f"{_LIBRARY.sub('', file).removeprefix(f'{root}{os.sep}')}:{code.co_qualname}"


def imported(statement: str, setup: str, environment: dict[str, str]) -> dict[str, int]:
    """Return how many modules of each package a statement imports in a new interpreter.

    The packages come in alphabetical order.
    """
    program = f"{textwrap.dedent(setup)}\n{textwrap.dedent(statement)}"
    command = [sys.executable, "-X", "importtime", "-c", program]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=True
    )
    counts: dict[str, int] = {}
    for module in _IMPORTED.findall(done.stderr):
        name = f"import {module.partition('.')[0]}"
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))
