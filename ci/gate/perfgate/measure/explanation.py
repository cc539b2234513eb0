"""Why a row takes longer: what its program does more of, or else which functions the host calls more often."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from perfgate.hlo import Program
from perfgate.measure.inspection import Crew, Say
from perfgate.process.channel import WorkerError
from perfgate.source.sides import Sides
from perfgate.stats.evidence import SLOWER
from perfgate.verdict import CAUSES, Row, describe_change

_MOST_NAMES = 5
# More of these is no worse, or is no part of a call.
_GROWING = CAUSES.keys() - {"donated_buffers", "alias_bytes", "compile_s"}


def explain(rows: Sequence[Row], sides: Sides, core: int | None, say: Say) -> None:
    """Give each slower row its reasons; where its program doesn't tell, both sides are called once more and watched."""
    for row in rows:
        if row.evidence is None or row.evidence.verdict != SLOWER or row.problems:
            continue
        base, head = row.programs.get("base"), row.programs.get("head")
        if base is not None and head is not None and base.identity != head.identity:
            row.reasons.append(_changed_program(row, base, head))
            continue
        same = base is not None and head is not None
        row.reasons.append(
            "it takes longer though both sides run the same program: the host does more"
            if same
            else "it takes longer; its suite offers no compiled program that could say why"
        )
        say(f"looking what {row.name} calls")
        row.reasons += _added_calls(_calls(row, sides, core), sides.head.root)


def _changed_program(row: Row, base: Program, head: Program) -> str:
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


def _calls(row: Row, sides: Sides, core: int | None) -> dict[str, dict[str, int]]:
    """Return what one call calls on each side; empty where a side can't be watched, which costs the row nothing."""
    each = row.benchmark
    calls: dict[str, dict[str, int]] = {}
    with Crew(sides, core) as crew, contextlib.suppress(WorkerError):
        for side in (sides.base, sides.head):
            asked = {
                "row": each.row,
                "name": each.name,
                "index": each.index,
                "root": str(side.root),
            }
            calls[side.name] = crew.ask(side, "watch", each.timeout_s, **asked).get("calls", {})
    return calls if calls.keys() == {"base", "head"} else {}


def _added_calls(calls: dict[str, dict[str, int]], root: Path) -> list[str]:
    """Name what head calls more often: the repository's own functions first, and of these the new ones.

    They come in the order of their first calls, a caller before its callees.
    """
    if not calls:
        return []
    base, head = calls["base"], calls["head"]
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
