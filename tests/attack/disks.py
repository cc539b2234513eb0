"""Disks that are full, small or read-only, no home, and processes that may open or write little.

Every command meets each of them, through the real command line. It ends well or in one sentence
that names the file, and what was saved before is still there: runs go on from it on a good disk.
"""

import contextlib
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.attack import published, runs
from tests.attack.outcomes import FINDING, HANG_S, Row, contents, outcome_of

_MYRIAD = ["-m", "myriad.cli"]
_TUNED = ["autotune", "--env", "cartpole-control", "--agent", "pid", "--num-envs", "2"]
# What each command is given, in the folder of the disk.
COMMANDS = {
    "train": [*_MYRIAD, "train", "--config", "config.toml", "--run-folder", "new", "--quiet"],
    "resume": [*_MYRIAD, "train", "--resume", "interrupted", "--quiet"],
    "evaluate": [*_MYRIAD, "evaluate", "finished", "--episodes", "3"],
    "render": [*_MYRIAD, "render", "--env", "cartpole-control", "--output", "it.gif"],
    "autotune": [*_MYRIAD, *_TUNED],
    "autotune --show": [*_MYRIAD, "autotune", "--show"],
    "autotune --export": [*_MYRIAD, "autotune", "--export", "exported.json"],
    "autotune --clear": [*_MYRIAD, "autotune", "--clear"],
    "cite": [*_MYRIAD, "cite", f"results/csv/{published.ROWS.name}"],
    "plots": ["-m", "benchmarks.plot_results", "--input", "results/csv", "--output", "plots"],
    "site": ["-m", "ci.site.build", "--results", "results", "--output", "site"],
}


@dataclass(frozen=True)
class Disk:
    """A place to work in that something is wrong with.

    Attributes:
        name: what is wrong.
        free: bytes that the file system still takes, None for enough.
        read_only: whether it takes none at all.
        limit: a limit of the process, as `ulimit` takes it.
        env: variables of the process that differ; None removes one.
    """

    name: str
    free: int | None = None
    read_only: bool = False
    limit: str = ""
    env: dict[str, str | None] = field(default_factory=dict)


DISKS = [
    *(Disk(f"{free:,} bytes free", free=free) for free in (0, 8_192, 40_960, 102_400)),
    Disk("read-only", read_only=True),
    Disk("no file may grow", limit="-f 0"),
    Disk("2 KiB a file", limit="-f 2"),
    Disk("16 open files", limit="-n 16"),
    Disk("64 open files", limit="-n 64"),
    Disk("no home", env={"HOME": None, "MYRIAD_HOME": None, "XDG_CACHE_HOME": None}),
    Disk("a home that is no folder", env={"HOME": "/dev/null", "MYRIAD_HOME": None}),
    Disk("a full home", env={"MYRIAD_HOME": "/dev/full"}),
]


@dataclass(frozen=True)
class Saved:
    """What lies on every disk before the command, and what a run comes to."""

    folder: Path
    end: tuple[Any, ...]

    @classmethod
    def made(cls, folder: Path) -> "Saved":
        """Make a run, an interrupted one, a cache, results and a site."""
        finished = runs.trained(folder / "finished")
        runs.interrupted(finished, folder / "interrupted")
        (folder / "config.toml").write_text(runs.config().to_toml(), encoding="utf-8")
        (folder / "home").mkdir()
        published.new_cache(folder / "home" / "autotune_profiles.json")
        published.new_results(folder / "results")
        for name in ("exported.json", "it.gif"):
            (folder / name).write_text("old")
        return cls(folder, runs.resumed(finished))


def disks(folder: Path, number: int, seed: int) -> Iterator[Row]:
    """Run commands on disks, and look at what they leave.

    Args:
        folder: an empty folder to work in.
        number: of pairs of a command and a disk, at most.
        seed: of which.
    """
    (folder / "saved").mkdir()
    saved = Saved.made(folder / "saved")
    pairs = [(disk, name) for disk in DISKS for name in COMMANDS]
    rng = random.Random(seed)
    for disk, name in rng.sample(pairs, min(number, len(pairs))):
        place = folder / "disk"
        place.mkdir(exist_ok=True)
        try:
            with _mounted(disk, place, saved.folder):
                before = contents(place)
                done = _run(disk, COMMANDS[name], place)
                left = folder / "left"
                shutil.rmtree(left, ignore_errors=True)
                shutil.copytree(place, left, symlinks=True)
                outcome = _judged(done, before, name, left, saved)
        except PermissionError as error:
            outcome = f"skipped: {error}"
        yield Row(f"disk: {name}", disk.name, outcome)


@contextlib.contextmanager
def _mounted(disk: Disk, place: Path, saved: Path) -> Iterator[None]:
    """Mount a file system of our own at `place`, with what is saved on it.

    Raises:
        PermissionError: only root may mount.
    """
    if os.geteuid():
        raise PermissionError("only root may mount a file system")
    _call("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place))
    try:
        shutil.copytree(saved, place, symlinks=True, dirs_exist_ok=True)
        if disk.free is not None:
            _fill(place, disk.free)
        if disk.read_only:
            _call("mount", "-o", "remount,ro", str(place))
        yield
    finally:
        _call("umount", str(place))


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PermissionError(f"{command[0]} says {done.stderr.strip()}")


def _fill(place: Path, free: int) -> None:
    state = os.statvfs(place)
    with (place / "plug").open("wb") as plug:
        plug.write(bytes(state.f_bavail * state.f_frsize - free))


def _run(disk: Disk, arguments: list[str], place: Path) -> subprocess.CompletedProcess[str] | None:
    """Run a command in the folder; return None if it hangs."""
    env = os.environ | {"MYRIAD_HOME": str(place / "home"), "PYTHONPATH": str(published.ROOT)}
    for name, value in disk.env.items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    limited = f"ulimit {disk.limit} && " if disk.limit else ""
    command = ["bash", "-c", f'{limited}exec "$@"', "bash", sys.executable, *arguments]
    try:
        return subprocess.run(
            command,
            cwd=place,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_S,
        )
    except subprocess.TimeoutExpired:
        return None


def _judged(
    done: subprocess.CompletedProcess[str] | None,
    before: dict[str, Any],
    name: str,
    left: Path,
    saved: Saved,
) -> str:
    if done is None:
        return f"{FINDING}hung for {HANG_S} s"
    if done.returncode not in (0, 2) or "Traceback" in done.stderr:
        return f"{FINDING}exit code {done.returncode}: {done.stderr[-400:]}"
    if done.returncode == 2:
        sentence = done.stderr.strip().rpartition("\n")[2]
        names_it = any(
            word in sentence for word in ("/", ".json", ".gif", "new", "interr", "site", "plots")
        )
        if not sentence.endswith(".") or not names_it:
            return f"{FINDING}not a sentence that names the file: {done.stderr[-400:]}"
    after = contents(left)
    may_change = {"train": "new/", "resume": "interrupted/", "autotune --clear": "home/"}.get(name)
    for path, content in before.items():
        is_its_own = may_change is not None and path.startswith(may_change)
        is_output = done.returncode == 0 and path in ("exported.json", "it.gif")
        grew = name == "autotune" and path.startswith("home/")
        if after.get(path) != content and not (is_its_own or is_output or grew):
            return f"{FINDING}{path} is not as it was"
    for run in ("interrupted", "new"):
        if (left / run / "config.toml").exists():
            gone_on = outcome_of(lambda run=run: runs.resumed(left / run), saved.end, (), left)
            if gone_on != "same":
                return gone_on
    return "done" if done.returncode == 0 else "refused"
