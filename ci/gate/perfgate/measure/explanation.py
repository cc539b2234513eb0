"""Why a row takes longer: its program does more, it calls more functions, or one takes longer."""

import dataclasses
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfgate.config import Rules
from perfgate.measure.run import Run, say
from perfgate.measure.workers import TimeSpentError, WorkerPool
from perfgate.metrics import describe_change
from perfgate.process import protocol
from perfgate.rows import SIDES, Row
from perfgate.stats.evidence import SLOWER

_MOST_NAMES = 5
# Both sides are profiled in turn this often. By chance alone, all of head's seconds in a function
# exceed all but one of the base's in 1 of 1,430 cases.
_ROUNDS = 8
_LONG_S = 1.0  # calls that take longer are profiled once, so that only counts are compared
# Functions are named if they have at least this share of the seconds added on head.
_WORTH_NAMING = 0.1
_NOTABLE = 1.01  # a program's numbers that grow less are not called a cause

Rounds = Mapping[str, Sequence[protocol.Calls]]  # by side


def explain(run: Run, rows: Sequence[Row]) -> None:
    """Give each slower row its causes, the likeliest first, as long as there is time.

    If its program doesn't tell, both sides run a few more calls under a profiler.
    """
    for row in rows:
        is_slower = row.evidence is not None and row.evidence.verdict == SLOWER
        if not is_slower or row.problems:
            continue
        try:
            causes = _causes(run, row)
        except TimeSpentError:
            causes = ["the run ended before its cause was found"]
        run.keep([dataclasses.replace(row, causes=tuple(causes))])


def _causes(run: Run, row: Row) -> list[str]:
    base, head = row.base.program, row.head.program
    if base is not None and head is not None and base.identity != head.identity:
        return [_changed_program(row, run.rules)]
    say(f"finding out what {row.name} calls")
    rounds = _profiled(run, row)
    causes = [*_added_calls(rounds, run.sides.head.root), *_slower_functions(rounds)]
    if not causes:
        if not rounds["head"]:
            looked = "its calls could not be profiled"
        elif len(rounds["head"]) < _ROUNDS:  # of a long call, or of a statement's imports
            looked = "it calls no function and imports no module more often"
        else:
            looked = "it calls no function more often, and none of yours surely takes longer"
        causes = [f"no cause was found: {looked}"]
    if base is not None and head is not None:
        causes.append("both sides run the same program")
    return causes


def _changed_program(row: Row, rules: Rules) -> str:
    """Name the number of a program that grew most, if one grew that has a sentence."""
    said = "it takes longer, and its program changed"
    assert row.head.program is not None
    grown = [
        each
        for each in row.changes
        if each.metric in row.head.program.metrics
        and rules.cause_of(each.metric) != each.metric
        and each.head > _NOTABLE * each.base
    ]
    if not grown:
        return said
    most = max(grown, key=lambda each: each.ratio)
    return f"{said}; {rules.cause_of(most.metric)}: {describe_change(most)}"


def _profiled(run: Run, row: Row) -> Rounds:
    """Profile a call on both sides in each round.

    There are no rounds if a side can't be profiled. The row keeps its verdict then.
    """
    rounds: dict[str, list[protocol.Calls]] = {name: [] for name in SIDES}
    # The imports of a new interpreter are counted, and a count has no noise.
    is_short = row.benchmark.kind == "time" and (row.seconds_of("head") or 0.0) < _LONG_S
    request = protocol.Watch(*row.benchmark.target)
    sides = (run.sides.base, run.sides.head)
    with WorkerPool(run.sides, run.core, deadline=run.deadline) as pool:
        for _ in range(_ROUNDS if is_short else 1):
            replies = pool.ask_sides(sides, request, row.benchmark.timeout_s, at_once=False)
            for name, reply in replies.items():
                if not isinstance(reply, protocol.Calls):
                    return {name: [] for name in SIDES}
                rounds[name].append(reply)
        release = protocol.Release(*row.benchmark.target)
        pool.ask_sides(sides, release, row.benchmark.timeout_s)
    return rounds


def _added_calls(rounds: Rounds, root: Path) -> list[str]:
    """Name what every call of head calls more often than any call of the base.

    The repository's own functions come first, and the new ones among these. A caller comes before
    its callees.
    """
    counts = {side: _by_name(rounds[side], "counts").items() for side in SIDES}
    base = Counter({name: int(max(each)) for name, each in counts["base"]})
    head = Counter({name: int(min(each)) for name, each in counts["head"]})
    added = head - base  # without those that head does not call more often
    if not added:
        return []
    is_import = all(name.startswith("import ") for name in added)

    def importance(name: str) -> tuple[bool, bool, int]:
        is_own = (root / name.partition(":")[0]).is_file()
        return not is_own, name in base, -added[name] if is_import else 0

    unit = "modules are imported" if is_import else "functions are called"
    shown = ", ".join(
        f"`{name}` (+{added[name]:,})" for name in sorted(added, key=importance)[:_MOST_NAMES]
    )
    total = f"{base.total():,} -> {head.total():,}"
    return [f"more {unit}: {total}; above all {shown}"]


def _slower_functions(rounds: Rounds) -> list[str]:
    """Name the functions in which every call of head spends longer than all but one of the base's.

    The seconds are the function's own, without those of the functions of the checkout that it
    calls. Profiling slows Python down. So they tell where time is added, not how much.
    """
    if len(rounds["head"]) < _ROUNDS:
        return []
    base = _by_name(rounds["base"], "seconds")
    head = _by_name(rounds["head"], "seconds")
    none = [0.0] * _ROUNDS
    usual = {
        name: (statistics.median(base.get(name, none)), statistics.median(head[name]))
        for name in head
    }
    added = {name: after - before for name, (before, after) in usual.items()}
    total_s = sum(seconds for seconds in added.values() if seconds > 0)
    named = [
        name
        for name in sorted(added, key=lambda name: -added[name])
        if added[name] > _WORTH_NAMING * total_s
        and min(head[name]) > sorted(base.get(name, none))[-2]
    ]
    return [
        f"`{name}` takes longer: {1e3 * usual[name][0]:.3g} -> {1e3 * usual[name][1]:.3g} ms "
        "under a profiler"
        for name in named[:_MOST_NAMES]
    ]


def _by_name(runs: Sequence[protocol.Calls], kind: str) -> dict[str, list[float]]:
    """Return each function's values in all runs. A function that was not called has 0."""
    names = dict.fromkeys(name for run in runs for name in getattr(run, kind))
    return {name: [getattr(run, kind).get(name, 0) for run in runs] for name in names}
