"""What a benchmark asks of Python, for a worker: the functions it calls, the packages it imports.

Counts, not times: they say which function is new, or is called more often, where no compiled
program can say it.
"""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_IMPORTED = re.compile(r"^import time: +\d+ \| +\d+ \| +([\w.]+)$", re.MULTILINE)
_LIBRARY = re.compile(r"^.*/(?:(?:site|dist)-packages|python3\.\d+)/")
_MOST = 2_000  # names in one answer


def counted(run: Callable[[], Any], root: Path) -> dict[str, int]:
    """Return how often `run` calls each function of this thread, in the order of their first calls.

    Functions below `root` are named `package/file.py:function`, all others by their module.
    """
    counts: dict[str, int] = {}
    names: dict[CodeType, str] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            code = frame.f_code
            name = names.get(code) or names.setdefault(code, _name_of(code, root))
        elif event == "c_call":
            module = getattr(argument, "__module__", None)
            name = f"{module}.{argument.__qualname__}" if module else argument.__qualname__
        else:
            return
        counts[name] = counts.get(name, 0) + 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return dict(list(counts.items())[:_MOST])


def _name_of(code: CodeType, root: Path) -> str:
    file = code.co_filename
    return f"{_LIBRARY.sub('', file).removeprefix(f'{root}{os.sep}')}:{code.co_qualname}"


def imported(statement: str, setup: str, environment: dict[str, str]) -> dict[str, int]:
    """Return how many modules of each package a new interpreter imports for a statement.

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
