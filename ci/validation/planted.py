"""A small project whose benchmarks slow down by the ratio that one asks for.

A slowdown is more of the same work, never a sleep. A sleeping process gives its core away, but a
slower one does not.
"""

import dataclasses
import math
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

WORK = '''"""Work in units; each function does so many."""

import numpy as np

TABLE = {number: number for number in range(8192)}
BLOCK = bytearray(1 << 18)
VALUES = np.arange(1, 20_001, dtype=np.float64)


def arithmetic(units):
    value = 1.0
    for _ in range(units):
        value = value * 1.0000001 + 1e-9
    return value


def lookups(units):
    total = 0
    for number in range(units):
        total += TABLE[number & 8191]
    return total


def copies(units):
    for _ in range(units):
        block = bytes(BLOCK)
    return block


def sums(units):
    total = 0.0
    for _ in range(units):
        total += float(np.sqrt(VALUES).sum())
    return total


def mixture(units):
    results = []
    for _ in range(units):
        results.append(arithmetic(2_000) + lookups(2_000) + sums(2))
    return results
'''
_CONFIG = '{{"version": 1, "project": "{}", "repo": ".", "benchmark_dir": "benchmarks"}}\n'
# The benchmarks, with the work and the seconds of each.
BENCHMARKS = {
    "arithmetic_1ms": ("arithmetic", 0.001),
    "lookups_10ms": ("lookups", 0.01),
    "copies_30ms": ("copies", 0.03),
    "sums_100ms": ("sums", 0.1),
    # A loop over two floats would draw its luck with addresses once in a second.
    "mixture_1s": ("mixture", 1.0),
}


@dataclasses.dataclass(frozen=True)
class PlantedProject:
    """The project as a git repository with one commit."""

    root: Path
    units: dict[str, int]

    def plant(self, ratio: float) -> str:
        """Commit a head that does `ratio` times the first commit's work, and return its hash."""
        self.git("checkout", "--quiet", "--detach", "start")
        more = {name: math.ceil(units * ratio) for name, units in self.units.items()}
        (self.root / "planted" / "__init__.py").write_text(_units(more))
        return self.commit(f"{ratio:g} times the work")

    def commit(self, message: str) -> str:
        """Commit everything and return the hash."""
        self.git("add", "--all")
        settings = ("user.name=selftest", "user.email=selftest@localhost", "commit.gpgsign=false")
        identity = [word for setting in settings for word in ("-c", setting)]
        self.git(*identity, "commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")

    def git(self, *arguments: str) -> str:
        """Run git in the project and return its output."""
        command = ["git", *arguments]
        return subprocess.run(
            command, cwd=self.root, capture_output=True, text=True, check=True
        ).stdout.strip()


def make_project(root: Path, shares: float = 1.0) -> PlantedProject:
    """Make the project in the empty folder `root`, with its work calibrated on this machine.

    Args:
        root: the folder.
        shares: the duration of the benchmarks, as a share of what their names say. Tests make it
            small.
    """
    work = _work()
    units = {
        name: _units_of(getattr(work, kind), seconds * shares)
        for name, (kind, seconds) in BENCHMARKS.items()
    }
    project = make_repository(
        root, "planted", {"planted/work.py": WORK, "planted/__init__.py": _units(units)}, _suite()
    )
    return dataclasses.replace(project, units=units)


def make_repository(root: Path, name: str, files: dict[str, str], suite: str) -> PlantedProject:
    """Commit a project with these files and one module of benchmarks to the new branch `start`."""
    own = {"benchmarks/__init__.py": "", "benchmarks/work.py": suite}
    for place, text in {**files, **own, "asv.conf.json": _CONFIG.format(name)}.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text)
    project = PlantedProject(root, {})
    project.git("init", "--quiet", "--initial-branch", "start")
    project.commit("start")
    return project


def _suite() -> str:
    methods = [
        f"def time_{name}():\n    work.{kind}(UNITS[{name!r}])\n\n\ntime_{name}.timeout = 60\n"
        for name, (kind, _) in BENCHMARKS.items()
    ]
    return "from planted import UNITS, work\n\n\n" + "\n\n".join(methods)


def _units(units: dict[str, int]) -> str:
    return f'"""How much work is done."""\n\nUNITS = {units!r}\n'


def _work() -> Any:
    module = ModuleType("planted_work")
    exec(WORK, module.__dict__)  # noqa: S102 - our own text, the one that the project gets
    return module


def _units_of(work: Callable[[int], Any], seconds: float) -> int:
    """Return how many units of work last this long.

    The result is at least 100, so that a slowdown of one percent is a whole unit.
    """
    units = 100
    while (taken := min(_seconds(work, units) for _ in range(3))) < min(seconds, 0.02):
        units *= 2
    return max(100, round(units * seconds / taken))


def _seconds(work: Callable[[int], Any], units: int) -> float:
    start = time.perf_counter()
    work(units)
    return time.perf_counter() - start
