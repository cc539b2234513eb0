"""Why a row takes longer: what its program does more of, or what the host calls more often."""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from perfgate.measure.workers import Say, WorkerPool
from perfgate.metrics import CAUSES, describe_change
from perfgate.process import protocol
from perfgate.process.channel import WorkerError
from perfgate.source.sides import Sides
from perfgate.stages import Timed
from perfgate.stats.evidence import SLOWER

_MOST_NAMES = 5
# More of these is no worse, or is no part of a call.
_GROWING = CAUSES.keys() - {"compile_s"}


def explain(rows: Sequence[Timed], sides: Sides, core: int | None, say: Say) -> list[Timed]:
    """Give each slower row its causes.

    Where its program doesn't tell, both sides are called once more and watched.
    """
    return [_explained(row, sides, core, say) for row in rows]


def _explained(row: Timed, sides: Sides, core: int | None, say: Say) -> Timed:
    if row.evidence is None or row.evidence.verdict != SLOWER or row.problems:
        return row
    base = row.inspected.base.program
    head = row.inspected.head.program
    both = base is not None and head is not None
    if base is not None and head is not None and base.identity != head.identity:
        return dataclasses.replace(row, causes=(_changed_program(row),))
    cause = "it takes longer; its suite offers no compiled program that could say why"
    if both:
        cause = "it takes longer though both sides run the same program: the host does more"
    say(f"looking what {row.name} calls")
    calls = _added_calls(_calls(row, sides, core), sides.head.root)
    return dataclasses.replace(row, causes=(cause, *calls))


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


def _calls(row: Timed, sides: Sides, core: int | None) -> dict[str, dict[str, int]]:
    """Return what one call calls on each side.

    It is empty where a side can't be watched, which costs the row nothing.
    """
    calls: dict[str, dict[str, int]] = {}
    with WorkerPool(sides, core) as pool, contextlib.suppress(WorkerError):
        for side in (sides.base, sides.head):
            request = protocol.Watch(*row.benchmark.target, root=str(side.root))
            reply = pool.ask(side, request, row.benchmark.timeout_s)
            calls[side.name] = reply.calls if isinstance(reply, protocol.Calls) else {}
    return calls if calls.keys() == {"base", "head"} else {}


def _added_calls(calls: dict[str, dict[str, int]], root: Path) -> list[str]:
    """Name what head calls more often.

    The repository's own functions come first, and of these the new ones; then each in the order of
    their first calls, a caller before its callees.
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
    return [f"more {unit}: {sum(base.values()):,} -> {sum(head.values()):,}; first of all {shown}"]
