"""Why a row takes longer: its program does more, or the host calls more."""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from perfgate.measure.progress import Progress
from perfgate.measure.workers import TimeSpentError, WorkerPool
from perfgate.metrics import CAUSES, describe_change
from perfgate.process import protocol
from perfgate.process.channel import WorkerError
from perfgate.source.sides import Sides
from perfgate.stages import Timed
from perfgate.stats.evidence import SLOWER

NO_TIME = "the run ended before its cause was found; repeat the command to find it"
_MOST_NAMES = 5
_MOST_LINES = 3
# Functions and lines are named if they have at least this share of the seconds added on head.
_WORTH_NAMING = 0.1
# Compiling is no part of a timed call, so its seconds explain nothing.
_GROWING = CAUSES.keys() - {"compile_s"}


def explain(
    rows: Sequence[Timed], sides: Sides, core: int | None, progress: Progress
) -> list[Timed]:
    """Give each slower row its causes, as long as there is time.

    If its program doesn't tell, both sides run a few more calls, counted, profiled and traced by
    line.
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
    both = base is not None and head is not None
    if base is not None and head is not None and base.identity != head.identity:
        return dataclasses.replace(row, causes=(_changed_program(row),))
    cause = "it takes longer; its suite offers no compiled program to compare"
    if both:
        cause = "it takes longer although both sides run the same program: the host does more"
    progress.say(f"finding out what {row.name} calls")
    watched = _watched(row, sides, core, progress.deadline)
    calls = _added_calls({name: each.calls for name, each in watched.items()}, sides.head.root)
    slower = _slower_functions({name: each.own_s for name, each in watched.items()})
    lines = _slower_lines({name: each.lines for name, each in watched.items()})
    return dataclasses.replace(row, causes=(cause, *calls, *slower, *lines))


def _changed_program(row: Timed) -> str:
    grown = [
        each
        for each in row.changes
        if each.metric in _GROWING and each.head > each.base and each.word != "worse"
    ]
    if grown:
        causes = (f"{CAUSES[each.metric]}: {describe_change(each)}" for each in grown[:3])
        return f"it takes longer, and its program changed; {'; '.join(causes)}"
    if any(each.word == "worse" for each in row.changes):
        return "it takes longer, and its program changed"
    return "it takes longer, and its program changed in a way that its counts don't show"


def _watched(
    row: Timed, sides: Sides, core: int | None, deadline: float
) -> dict[str, protocol.Calls]:
    """Return which functions one call runs, by side.

    Returns nothing if a side can't be profiled. The row keeps its verdict then.
    """
    calls: dict[str, protocol.Calls] = {}
    with WorkerPool(sides, core, deadline=deadline) as pool, contextlib.suppress(WorkerError):
        for side in (sides.base, sides.head):
            request = protocol.Watch(*row.benchmark.target, root=str(side.root))
            reply = pool.ask(side, request, row.benchmark.timeout_s)
            calls[side.name] = reply if isinstance(reply, protocol.Calls) else protocol.Calls({})
    return calls if calls.keys() == {"base", "head"} else {}


def _added_calls(calls: dict[str, dict[str, int]], root: Path) -> list[str]:
    """Name what head calls more often.

    The repository's own functions come first, and the new ones among these. After that the order is
    that of their first calls, so a caller comes before its callees.
    """
    if not calls:
        return []
    base = calls["base"]
    head = calls["head"]
    added = {
        name: count - base.get(name, 0) for name, count in head.items() if count > base.get(name, 0)
    }
    if not added:
        return []
    imports = all(name.startswith("import ") for name in added)

    def importance(name: str) -> tuple[bool, bool, int]:
        is_own = (root / name.partition(":")[0]).is_file()
        return not is_own, name in base, -added[name] if imports else 0

    unit = "modules are imported" if imports else "functions are called"
    shown = ", ".join(
        f"`{name}` (+{added[name]:,})" for name in sorted(added, key=importance)[:_MOST_NAMES]
    )
    return [f"more {unit}: {sum(base.values()):,} -> {sum(head.values()):,}; above all {shown}"]


def _slower_functions(own_s: dict[str, dict[str, float]]) -> list[str]:
    """Name the functions that take longer on head under a profiler, the largest increase first.

    A profiler slows calls down but not loops. So it tells where time is added, not how much.
    """
    if not own_s:
        return []
    base = own_s["base"]
    head = own_s["head"]
    added = {name: seconds - base.get(name, 0.0) for name, seconds in head.items()}
    total_s = sum(head.values()) - sum(base.values())
    named = [name for name in added if added[name] > _WORTH_NAMING * total_s]
    if total_s <= 0 or not named:
        return []
    shown = ", ".join(
        f"`{name}` ({1e3 * base.get(name, 0.0):.3g} -> {1e3 * head[name]:.3g} ms)"
        for name in sorted(named, key=lambda name: -added[name])[:_MOST_NAMES]
    )
    return [f"under a profiler, these functions themselves take longer: {shown}"]


def _slower_lines(lines: dict[str, Sequence[protocol.Line]]) -> list[str]:
    """Name the lines that take longer on head when each line is traced, the largest increase first.

    Lines with the same file and text are the same on both sides, whatever their numbers.
    """
    if not lines:
        return []
    base = _by_text(lines["base"])
    head = _by_text(lines["head"])
    added = {text: seconds - base.get(text, 0.0) for text, seconds in head.items()}
    total_s = sum(head.values()) - sum(base.values())
    named = [text for text in added if added[text] > _WORTH_NAMING * total_s]
    if total_s <= 0 or not named:
        return []
    numbers = {(each.file, each.source): each.number for each in reversed(lines["head"])}
    shown = ", ".join(
        f"`{text[0]}:{numbers[text]}: {text[1]}` "
        f"({1e3 * base.get(text, 0.0):.3g} -> {1e3 * head[text]:.3g} ms)"
        for text in sorted(named, key=lambda text: -added[text])[:_MOST_LINES]
    )
    return [f"traced line by line, these lines take longer: {shown}"]


def _by_text(lines: Sequence[protocol.Line]) -> dict[tuple[str, str], float]:
    """Return the seconds by file and text of a line, summed over all places with the same text."""
    seconds: dict[tuple[str, str], float] = {}
    for each in lines:
        text = (each.file, each.source)
        seconds[text] = seconds.get(text, 0.0) + each.seconds
    return seconds
