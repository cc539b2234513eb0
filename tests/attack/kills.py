"""Kills at every file operation, and at random times: what a reader finds is whole, old or new.

Each child is forked from a server that has imported everything, and dies by SIGKILL just before its
operation of a given number. Operations inside libraries of C++ are met by the random times.
"""

import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from myriad import configure
from tests.attack.outcomes import FINDING, Row
from tests.attack.victims import Action, Victim, victims

_CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link"}
_PRELOADED = ["orbax.checkpoint", "tests.attack.kills"]


def kills(folder: Path, number: int, seed: int) -> Iterator[Row]:
    """Kill children at their file operations, and judge what is left.

    Args:
        folder: an empty folder to work in.
        number: of kills, spread over the operations of all kinds of children.
        seed: of the times of the others.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    rng = random.Random(seed)
    attacked = victims(folder)
    total = sum(victim.share for victim in attacked)
    for victim in attacked:
        work = folder / "work"
        events, seconds = _unkilled(context, victim, work)
        share = max(2, number * victim.share // total)
        at_times = share // 5 if "training" in victim.name else 0
        for place in _chosen(events, share - at_times, rng):
            yield _killed(context, victim, work, place, None)
        for _ in range(at_times):
            yield _killed(context, victim, work, None, rng.uniform(0, seconds))


def _chosen(events: Sequence[str], number: int, rng: random.Random) -> Sequence[int]:
    """Choose operations to die at: all of them, or at least every renaming, and some others."""
    places = range(1, len(events) + 1)
    first = [place for place in places if events[place - 1] == "os.rename"]
    others = [place for place in places if place not in first]
    first = rng.sample(first, min(number, len(first)))
    return sorted([*first, *rng.sample(others, min(number - len(first), len(others)))])


def _unkilled(context: Any, victim: Victim, work: Path) -> tuple[list[str], float]:
    """Return the operations that an action takes, and how many seconds."""
    child, ours = _started(context, victim, work, None)
    start = time.monotonic()
    events = ours.recv()
    seconds = time.monotonic() - start
    child.join()
    return events, seconds


def _killed(
    context: Any, victim: Victim, work: Path, place: int | None, after_s: float | None
) -> Row:
    child, _ = _started(context, victim, work, place)
    if after_s is not None:
        time.sleep(after_s)
        child.kill()
    child.join()
    if after_s is None and child.exitcode not in (-signal.SIGKILL, 0):
        return Row(victim.name, str(place), f"{FINDING}the child ended with {child.exitcode}")
    case = f"operation {place}" if after_s is None else f"after {after_s:.3f} s"
    # At a random time it may have ended by itself, and the place of an operation may differ.
    ended = "" if child.exitcode else ", though it had ended"
    return Row(victim.name, case, f"{victim.judge(work)}{ended}")


def _started(context: Any, victim: Victim, work: Path, place: int | None) -> tuple[Any, Connection]:
    """Start a child, and wait until it begins its action."""
    shutil.rmtree(work, ignore_errors=True)
    victim.prepare(work)
    ours, childs = context.Pipe()
    child = context.Process(target=_die_at, args=(victim.action, work, place, childs))
    child.start()
    childs.close()  # so that its death is heard
    ours.recv()
    return child, ours


def _die_at(action: Action, work: Path, place: int | None, parent: Connection) -> None:
    """Run an action, and kill this process just before its file operation of a number."""
    configure(cpu_devices=2)
    seen: list[str] = []
    below = str(work)

    def count(event: str) -> None:
        seen.append(event)
        if len(seen) == place:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        # What rmtree removes it names relative to the folder that it has open.
        if event in _CHANGES or (event == "open" and below in str(arguments[0])):
            count(event)

    def fsync(file: int) -> None:
        count("os.fsync")
        synced(file)

    synced = os.fsync
    os.fsync = fsync
    parent.send("ready")
    sys.addaudithook(hook)
    action(work)
    parent.send(list(seen))
