"""Profile a benchmark's call, or count the packages that a statement imports, in a worker.

If no compiled program explains a slowdown, the profile shows which function is new, is called more
often, or takes longer.
"""

import cProfile
import itertools
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from ..process import protocol
from . import sampling

_IMPORTED = re.compile(r"^import time: +\d+ \| +\d+ \| +([\w.]+)$", re.MULTILINE)
_LIBRARY = re.compile(r"^.*/(?:(?:site|dist)-packages|python3\.\d+)/")
_METHOD = re.compile(r"<method '(.+)' of '(.+)' objects>")
_BUILTIN = re.compile(r"<built-in method (.+)>")
_MOST = 2_000  # names in one reply


class _ProfileClock:
    """Turns a profile on when asv's timer starts, and off when it ends, after the statement."""

    def __init__(self, profile: cProfile.Profile):
        self._profile = profile
        self._is_on = False

    def timer(self) -> float:
        self._is_on = not self._is_on
        if self._is_on:
            self._profile.enable()
        else:
            self._profile.disable()
        return 0.0


def profiled(benchmark: Any, root: Path) -> protocol.Calls:
    """Profile one call without its setup, in the benchmark's own thread.

    Functions below `root` are named `package/file.py:function`, all others by their module. Their
    seconds include the libraries that they call.
    """
    profile = cProfile.Profile(builtins=True)
    try:
        sampling.sample(benchmark, 1, _ProfileClock(profile))
    finally:
        profile.disable()  # if the statement raised
    counts: dict[str, int] = {}
    seconds: dict[str, float] = {}
    ours = f"{root}{os.sep}"
    # By their time in all: a caller comes before its callees.
    for entry in sorted(profile.getstats(), key=lambda entry: -entry.totaltime):
        name = _name_of(entry.code, ours)
        counts[name] = counts.get(name, 0) + entry.callcount
        if not isinstance(entry.code, str) and entry.code.co_filename.startswith(ours):
            # of the functions that it calls, those of the checkout have their own entries
            others_s = sum(
                each.totaltime
                for each in entry.calls or ()
                if not isinstance(each.code, str) and each.code.co_filename.startswith(ours)
            )
            seconds[name] = seconds.get(name, 0.0) + entry.totaltime - others_s
    return protocol.Calls(dict(itertools.islice(counts.items(), _MOST)), seconds)


def _name_of(code: Any, ours: str) -> str:
    if isinstance(code, str):
        return _BUILTIN.sub(r"\1", _METHOD.sub(r"\2.\1", code))
    return f"{_LIBRARY.sub('', code.co_filename).removeprefix(ours)}:{code.co_qualname}"


def imported(statement: str, setup: str, environment: dict[str, str]) -> protocol.Calls:
    """Return how many modules of each package a statement imports in a new interpreter."""
    program = f"{textwrap.dedent(setup)}\n{textwrap.dedent(statement)}"
    command = [sys.executable, "-X", "importtime", "-c", program]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=True
    )
    counts: dict[str, int] = {}
    for module in _IMPORTED.findall(done.stderr):
        name = f"import {module.partition('.')[0]}"
        counts[name] = counts.get(name, 0) + 1
    return protocol.Calls(counts, {})
