"""Why a row takes longer: its program does more, or the host calls more, or a line takes longer."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from perfgate.measure.progress import Progress
from perfgate.measure.workers import TimeSpentError, WorkerPool
from perfgate.metrics import CAUSES, describe_change
from perfgate.process import protocol
from perfgate.process.channel import WorkerError
from perfgate.source.sides import Sides
from perfgate.stages import SIDES, Timed
from perfgate.stats.evidence import SLOWER

NO_TIME = "the run ended before its cause was found; repeat the command to find it"
_MOST_NAMES = 5
_MOST_LINES = 3
# Both sides are watched in turn this often. By chance alone, all of head's seconds in a line exceed
# all but one of the base's in 1 of 1,430 cases.
_ROUNDS = 8
# Lines are named if they have at least this share of the seconds added on head.
_WORTH_NAMING = 0.1
# A program's numbers that grow less are not called a cause.
_NOTABLE = 1.01
# Compiling is no part of a timed call, so its seconds explain nothing.
_GROWING = CAUSES.keys() - {"compile_s"}

Rounds = Mapping[str, Sequence[protocol.Calls]]  # by side
K = TypeVar("K")


def explain(
    rows: Sequence[Timed], sides: Sides, core: int | None, progress: Progress
) -> list[Timed]:
    """Give each slower row its causes, the likeliest first, as long as there is time.

    If its program doesn't tell, both sides run a few more calls, counted and traced by line.
    """
    found = []
    for row in rows:
        try:
            found.append(_explained(row, sides, core, progress))
        except TimeSpentError:
            found.append(dataclasses.replace(row, causes=(NO_TIME,)))
            progress.rows[row.name] = found[-1]  # not on disk, so that the next run explains it
        else:
            progress.keep(found[-1:])
    return found


def _explained(row: Timed, sides: Sides, core: int | None, progress: Progress) -> Timed:
    if row.evidence is None or row.evidence.verdict != SLOWER or row.problems:
        return dataclasses.replace(row, causes=())
    if row.causes:  # an unfinished run has found them
        return row
    base = row.inspected.base.program
    head = row.inspected.head.program
    if base is not None and head is not None and base.identity != head.identity:
        return dataclasses.replace(row, causes=(_changed_program(row),))
    progress.say(f"finding out what {row.name} calls")
    rounds = _watched(row, sides, core, progress.deadline)
    causes = [*_slower_lines(rounds), *_added_calls(rounds, sides.head.root)] if rounds else []
    if not causes:
        causes = [f"no cause was found: {_nothing_found(row, rounds)}"]
    if base is not None and head is not None:
        causes.append("both sides run the same program")
    return dataclasses.replace(row, causes=tuple(causes))


def _nothing_found(row: Timed, rounds: Rounds) -> str:
    if not rounds:
        return "its calls could not be watched"
    if row.benchmark.kind == "timeraw":
        return "its interpreter imports no more modules"
    if any(each.lines is None for runs in rounds.values() for each in runs):
        return "it calls no function more often, and its calls take too long to trace their lines"
    return "it calls no function more often, and no line takes longer beyond its scatter"


def _changed_program(row: Timed) -> str:
    said = "it takes longer, and its program changed"
    growth = {
        each: each.head / each.base if each.base else math.inf
        for each in row.changes
        if each.metric in _GROWING and each.head > _NOTABLE * each.base
    }
    if not growth:
        return said
    most = max(growth, key=growth.__getitem__)
    return f"{said}; {CAUSES[most.metric]}: {describe_change(most)}"


def _watched(row: Timed, sides: Sides, core: int | None, deadline: float) -> Rounds:
    """Return what the calls of each round run, by side.

    Returns nothing if a side can't be watched. The row keeps its verdict then.
    """
    rounds: dict[str, list[protocol.Calls]] = {name: [] for name in SIDES}
    target = row.benchmark.target
    # The imports of a new interpreter are counted, and a count has no noise.
    num_rounds = 1 if row.benchmark.kind == "timeraw" else _ROUNDS
    with WorkerPool(sides, core, deadline=deadline) as pool, contextlib.suppress(WorkerError):
        for _ in range(num_rounds):
            for side in (sides.base, sides.head):
                request = protocol.Watch(*target, root=str(side.root))
                reply = pool.ask(side, request, row.benchmark.timeout_s)
                if isinstance(reply, protocol.Skipped):
                    return {}
                rounds[side.name].append(reply)
            if any(runs[-1].lines is None for runs in rounds.values()):
                break  # such calls are too long to repeat
        for side in (sides.base, sides.head):
            pool.ask(side, protocol.Release(*target), row.benchmark.timeout_s)
        return rounds
    return {}


def _added_calls(rounds: Rounds, root: Path) -> list[str]:
    """Name what every call of head calls more often than any call of the base.

    The repository's own functions come first, and the new ones among these. After that the order is
    that of their first calls, so a caller comes before its callees.
    """
    base = _extreme([each.calls for each in rounds["base"]], max)
    head = _extreme([each.calls for each in rounds["head"]], min)
    added = {
        name: count - base.get(name, 0) for name, count in head.items() if count > base.get(name, 0)
    }
    if not added:
        return []
    imports = all(name.startswith("import ") for name in added)

    def importance(name: str) -> tuple[bool, bool, float]:
        is_own = (root / name.partition(":")[0]).is_file()
        return not is_own, name in base, -added[name] if imports else 0

    unit = "modules are imported" if imports else "functions are called"
    shown = ", ".join(
        f"`{name}` (+{added[name]:,})" for name in sorted(added, key=importance)[:_MOST_NAMES]
    )
    total = f"{sum(base.values()):,.0f} -> {sum(head.values()):,.0f}"
    return [f"more {unit}: {total}; above all {shown}"]


def _slower_lines(rounds: Rounds) -> list[str]:
    """Name the lines in which every call of head spends longer than any but one of the base's.

    Lines with the same file and text are the same on both sides, whatever their numbers. Tracing
    slows Python down. So the seconds tell where time is added, not how much.
    """
    runs = {name: [_by_text(each.lines or ()) for each in rounds[name]] for name in SIDES}
    if any(each.lines is None for side in rounds.values() for each in side):
        return []  # a trace that was cut off can't be compared
    least = {name: _extreme(runs[name], min) for name in SIDES}
    most = _extreme(runs["base"], lambda values: sorted(values)[-2:][0])
    total_s = sum(least["head"].values()) - sum(least["base"].values())
    added = {
        text: seconds - least["base"].get(text, 0.0) for text, seconds in least["head"].items()
    }
    named = [
        text
        for text in added
        if added[text] > _WORTH_NAMING * total_s > 0 and least["head"][text] > most.get(text, 0.0)
    ]
    first = rounds["head"][0].lines or ()
    numbers = {(each.file, each.source): each.number for each in reversed(first)}

    def sentence(text: tuple[str, str]) -> str:
        line = f"`{text[0]}:{numbers[text]}: {text[1]}`"
        after = f"{1e3 * least['head'][text]:.3g} ms when each line is traced"
        if text not in least["base"]:
            return f"{line}, which the base does not run, takes {after}"
        return f"{line} takes longer: {1e3 * least['base'][text]:.3g} -> {after}"

    return [sentence(text) for text in sorted(named, key=lambda text: -added[text])[:_MOST_LINES]]


def _extreme(runs: Sequence[Mapping[K, float]], pick: Callable[..., float]) -> dict[K, float]:
    """Return one of each name's values in several calls. A name that is missing has 0."""
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: pick(run.get(name, 0) for run in runs) for name in names}


def _by_text(lines: Sequence[protocol.Line]) -> dict[tuple[str, str], float]:
    """Return the seconds by file and text of a line, summed over all places with the same text."""
    seconds: dict[tuple[str, str], float] = {}
    for each in lines:
        text = (each.file, each.source)
        seconds[text] = seconds.get(text, 0.0) + each.seconds
    return seconds
