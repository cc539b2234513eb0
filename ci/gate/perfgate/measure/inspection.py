"""The first run of every benchmark on both sides: values, first calls, compiled programs.

Benchmarks share a worker. If one hangs or dies there, the gate replaces the worker, and only that
benchmark loses its row.
"""

import contextlib
import dataclasses
import math
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from perfgate import machine
from perfgate.config import SAME, Rules
from perfgate.hlo import read_program
from perfgate.measure.discovery import check_origin
from perfgate.measure.progress import Progress
from perfgate.measure.workers import TimeSpentError, WorkerError, WorkerPool, ask_sides
from perfgate.metrics import compare_metrics
from perfgate.process import protocol
from perfgate.rows import MODULE, SIDES, Benchmark, NotRun, Row, SideRun
from perfgate.source.sides import Side, Sides

# Equal programs do not mean equal work if the calls of one side take longer than this many times
# those of the other.
_ALIKE = 1.25
_ROUNDS = 3  # how often calls that differ are timed again
NO_PROGRAM_NOW = "it offers a compiled program on the base, but none on head"


def inspect(
    rows: Sequence[Row],
    sides: Sides,
    rules: Rules,
    core: int | None,
    progress: Progress,
    *,
    clocks: bool = True,
    time_identical: bool = False,
) -> list[Row]:
    """Run every benchmark once on each side that has it, and compare all metrics except time.

    Both sides work at once, each on a core of its own. That leaves counters unaffected. It is also
    fair to seconds that a suite tracks by itself: neither side has the better place, and fresh
    processes confirm what looks worse. Rows that an unfinished run has inspected are not run again.
    Rows that the deadline cuts off get `NotRun.TIME`.

    Args:
        rows: what discovery found.
        sides: the two commits.
        rules: they say what got worse, and which benchmarks need several cores.
        core: the core that single-core benchmarks are pinned to; None if pinning isn't possible.
        progress: the rows so far, and when the first runs end.
        clocks: whether benchmarks run that track seconds by themselves.
        time_identical: whether rows are timed, too, whose code or program is the same.
    """
    deadline = progress.deadline
    seen: list[Row] = []
    with contextlib.ExitStack() as stack:
        # head gets the idler core, because budgets judge head alone
        aside = machine.other_core(core)
        apart = stack.enter_context(WorkerPool(sides, aside, head_core=core, deadline=deadline))
        free = stack.enter_context(WorkerPool(sides, None, deadline=deadline))
        start = None  # when the first benchmark of this run began
        for row in rows:
            known = progress.rows.get(row.name) or _without_run(row, rules, clocks=clocks)
            if known is not None:
                seen.append(known)
                if row.name not in progress.rows:
                    progress.keep([known])
                continue
            begun = time.monotonic()
            start = start or begun
            # On several cores both sides would get in each other's way, so they run in turn.
            pool = free if rules.cores_of(row.name) > 1 else apart
            try:
                pool.check_time()
                progress.say(f"running {row.name}")
                found = _inspect(row, pool, rules)
                if not time_identical:
                    same = _what_is_same(found, pool, rules, progress)
                    found = dataclasses.replace(found, same=same)
                seen.append(dataclasses.replace(found, changes=_changes(found, rules)))
            except TimeSpentError:
                for each in (apart, free):
                    each.close_all()  # one of them may still be at work
                if begun == start < deadline:
                    # It had all the time there is, so it would stop each later run, too.
                    spent = f"it took over {deadline - begun:.0f} s, all that timing.run_s leaves"
                    seen.append(row.with_problems({"head": spent}))
                else:
                    seen.append(dataclasses.replace(row, not_run=NotRun.TIME))
                    continue
            progress.keep(seen[-1:])
        for pool in (apart, free):
            # A run that checks nothing could compare a package with itself.
            pool.deadline = math.inf
            _check_origins(pool, rules)
            pool.close_all()
    return seen


def _without_run(row: Row, rules: Rules, *, clocks: bool) -> Row | None:
    """Return a row that need not run as it is; None if it must run."""
    if row.not_run or row.state == "gone" or row.benchmark.kind == MODULE:
        return row
    rule = rules.rule_of(row.benchmark.metric, row.name)
    tracks_seconds = row.benchmark.metric == "track" and rule.is_measured and rule.unit == "s"
    is_put_off = tracks_seconds and not clocks
    return dataclasses.replace(row, not_run=NotRun.CLOCK) if is_put_off else None


def _inspect(row: Row, pool: WorkerPool, rules: Rules) -> Row:
    sides = pool.sides
    asked = [sides.head] if row.state == "new" else [sides.base, sides.head]
    groups = [[side] for side in asked] if rules.cores_of(row.name) > 1 else [asked]
    runs: dict[str, SideRun] = {}
    for group in groups:
        if row.benchmark.kind == "peakmemory":
            cores = {side: pool.cores[side.name] for side in group}
            runs |= _run_afresh(row.benchmark, cores, sides, pool.deadline)
        else:
            runs |= _run_in(row.benchmark, dict.fromkeys(group, pool))
    return _with_runs(row, runs)


def inspect_afresh(
    benchmark: Benchmark, order: Sequence[Side], sides: Sides, core: int | None, deadline: float
) -> Row:
    """Run a benchmark in new processes with empty compilation caches, the sides in turn."""
    runs: dict[str, SideRun] = {}
    for side in order:
        runs |= _run_afresh(benchmark, {side: core}, sides, deadline)
    return _with_runs(Row(benchmark), runs)


def _run_afresh(
    benchmark: Benchmark, cores: Mapping[Side, int | None], sides: Sides, deadline: float
) -> dict[str, SideRun]:
    """Run a benchmark in new processes with empty compilation caches, each side on its core.

    A peak is that of the whole process and includes the compiler. With a shared cache, a side that
    loads what the other one has just compiled would seem to need less memory.
    """
    pools = {}
    with contextlib.ExitStack() as stack:
        for side, core in cores.items():
            empty = Path(tempfile.mkdtemp(prefix="programs-", dir=sides.folder)).name
            pool = WorkerPool(dataclasses.replace(sides, programs=empty), core, deadline=deadline)
            pools[side] = stack.enter_context(pool)
        return _run_in(benchmark, pools)


def _run_in(benchmark: Benchmark, pools: Mapping[Side, WorkerPool]) -> dict[str, SideRun]:
    runs = {}
    replies = ask_sides(pools, protocol.Inspect(*benchmark.target), benchmark.timeout_s)
    for side in pools:
        reply = replies[side.name]
        if isinstance(reply, WorkerError):
            run = SideRun(problem=str(reply), by_runner=reply.by_runner)
        elif isinstance(reply, protocol.Skipped):
            run = SideRun(skipped=True, skip_reason=reply.reason)
        else:
            files = reply.program if isinstance(reply, protocol.FirstRun) else None
            run = SideRun(reply, read_program(files, side.root) if files else None)
        runs[side.name] = run
    return runs


def _with_runs(row: Row, runs: Mapping[str, SideRun]) -> Row:
    """Add both runs. It is a problem if head no longer offers a program."""
    base = runs.get("base", SideRun())
    head = runs.get("head", SideRun())
    if base.program and head.ran and not head.program:
        head = dataclasses.replace(head, problem=NO_PROGRAM_NOW)
    problem = row.head.problem  # what discovery found
    if problem:
        head = dataclasses.replace(head, problem=head.problem or problem)
    return dataclasses.replace(row, base=base, head=head)


def _what_is_same(
    row: Row, pool: WorkerPool, rules: Rules, progress: Progress
) -> Literal["", "code", "program"]:
    """Say what is the same on both sides, so that the row need not be timed."""
    if not row.is_comparable:
        return ""
    if _is_same_code(row, pool.sides):
        return "code"
    base, head = row.base.program, row.head.program
    if base is None or head is None or not head.timed_is_program:
        return ""
    # If head compiles the program again at each call, the program is the same but the timed work
    # is not.
    if base.identity != head.identity or row.base.recompilations != row.head.recompilations:
        return ""
    seconds = [row.base.seconds or 0.0, row.head.seconds or 0.0]
    if not _are_alike(seconds):
        progress.say(f"timing the calls of {row.name} again")
        seconds = _timed_again(row.benchmark, pool, rules.timing.sample_s)
    return "program" if _are_alike(seconds) else ""


def _is_same_code(row: Row, sides: Sides) -> bool:
    """Tell whether the change reaches nothing that the row has used.

    So it is if every changed file is a Python file that neither side's process has imported or
    opened. A process that has started another one may have used any file.
    """
    if not sides.changed_code:
        return True
    used: set[str] = set()
    for side, run in ((sides.base, row.base), (sides.head, row.head)):
        footprint = footprint_of(run)
        # An environment of its own has the package installed, so that other files are used.
        if footprint is None or not footprint.has_all_imports or not side.import_from:
            return False
        used |= {*footprint.imported}
    return all(path.suffix == ".py" and str(path) not in used for path in sides.changed_code)


def footprint_of(run: SideRun) -> protocol.Footprint | None:
    """Return the part of its checkout that a benchmark's first run used; None if unknown."""
    return run.ran.footprint if run.ran else None


def _are_alike(seconds: Sequence[float]) -> bool:
    return bool(seconds) and max(seconds) <= _ALIKE * min(seconds)


def _timed_again(benchmark: Benchmark, pool: WorkerPool, target_s: float) -> list[float]:
    """Time calls again, the sides in turn and on one core, and return the median of each side.

    If anything goes wrong here, return nothing. The row is timed then, and its pairs show the
    problem.
    """
    sides = pool.sides
    core = pool.cores["head"]
    taken: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(_ROUNDS):
        for side in (sides.base, sides.head):
            calibrate = protocol.Calibrate(*benchmark.target, target_s=target_s, core=core)
            reply: Any = ask_sides({side: pool}, calibrate, benchmark.timeout_s)[side.name]
            if not isinstance(reply, protocol.Calibration):
                return []
            taken[side.name].append(reply.seconds)
            release = protocol.Release(*benchmark.target)
            ask_sides({side: pool}, release, benchmark.timeout_s)
    return [statistics.median(seconds) for seconds in taken.values()]


def _changes(row: Row, rules: Rules) -> tuple[Any, ...]:
    """Compare both sides of a row.

    If both sides run the same code, any difference in a clock's or the system's values is noise.
    """
    changes = compare_metrics(row, rules) if row.is_comparable else ()
    if row.same != "code":
        return changes
    is_clock = {each.metric: rules.rule_of(each.metric, row.name).is_measured for each in changes}
    return tuple(
        dataclasses.replace(each, word=SAME) if is_clock[each.metric] else each for each in changes
    )


def _check_origins(pool: WorkerPool, rules: Rules) -> None:
    """Check again where imports came from, now including those made while benchmarks ran."""
    for side in pool.live:
        with contextlib.suppress(WorkerError):  # the row that broke a worker already reports it
            found = pool.ask(side, protocol.Origins(), rules.timing.timeout_s)
            check_origin(side, found.modules)
