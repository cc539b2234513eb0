"""The first run of every benchmark on both sides: values, first calls, compiled programs.

Benchmarks share a worker. If one hangs or dies there, the gate replaces the worker, and only that
benchmark loses its row.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal

from perfgate import machine
from perfgate.config import SAME, UNSURE, WORSE, Rules
from perfgate.hlo import read_program
from perfgate.measure.discovery import check_origin
from perfgate.measure.run import Run, say
from perfgate.measure.workers import TimeSpentError, WorkerError, WorkerPool
from perfgate.metrics import compare_metrics, lost_work
from perfgate.process import protocol
from perfgate.rows import MODULE, SIDES, Benchmark, Change, Row, SideRun
from perfgate.source.sides import Side, Sides

# Equal programs do not mean equal work if the calls of one side take longer than this many times
# those of the other.
_ALIKE = 1.25
_ROUNDS = 3  # how often calls or workloads that differ are measured
Begin = Callable[[Row, WorkerPool, int | None], Row]


def inspect(
    run: Run,
    rows: Sequence[Row],
    *,
    tracking_end: float = math.inf,
    time_identical: bool = False,
    begin: Begin | None = None,
) -> list[Row]:
    """Run every benchmark once on each side that has it, and compare all metrics except time.

    Both sides work at once, each on a core of its own. That leaves counters unaffected. It is also
    fair to seconds that a suite tracks by itself: neither side has the better place, and fresh
    processes confirm what looks worse. Rows that the deadline cuts off are not reached.

    Args:
        run: the run.
        rows: what discovery found.
        tracking_end: from when on only rows that are timed are run, on the clock of deadlines.
        time_identical: whether rows are timed, too, whose code or program is the same.
        begin: times a row that is set up on the workers of this pool, on this core.
    """
    deadline = run.deadline
    seen: list[Row] = []
    started: set[WorkerPool] = set()  # those whose workers have started a process
    # head gets the idler core, because budgets judge head alone
    aside = machine.other_core(run.core)
    own_suite = _with_own_suite(run.sides)
    with (
        WorkerPool(run.sides, aside, head_core=run.core, deadline=deadline) as apart,
        WorkerPool(run.sides, None, deadline=deadline) as free,
        WorkerPool(own_suite, aside, head_core=run.core, deadline=deadline) as own_apart,
        WorkerPool(own_suite, None, deadline=deadline) as own_free,
    ):
        for row in rows:
            is_there = row.state != "gone" and row.benchmark.kind != MODULE
            is_late = not row.benchmark.is_timed and time.monotonic() >= tracking_end
            if is_late or not is_there:
                seen.append(dataclasses.replace(row, not_reached=is_there))
                run.keep(seen[-1:])
                continue
            # On several cores both sides would get in each other's way, so they run in turn.
            has_cores = run.rules.cores_of(row.name) > 1
            pool, own = (free, own_free) if has_cores else (apart, own_apart)
            try:
                pool.check_time()
                say(f"running {row.name}")
                # After a row that has started a process, nobody knows what its workers have used.
                if pool in started and row.benchmark.kind == "time" and not run.sides.is_pytest:
                    pool.close_all()
                    started.remove(pool)
                start = time.monotonic()
                found = dataclasses.replace(row, not_reached=False)
                found = _inspect(run, found, pool, time_identical=time_identical)
                found = _with_lost_work(run, found, pool, own)
                found = dataclasses.replace(found, looked_s=time.monotonic() - start)
                if begin is not None and found.is_to_time:
                    found = begin(found, pool, None if has_cores else run.core)
                else:
                    found = _released(run, found, pool)
                if found.problems:  # a launch starts both workers, or none
                    pool.close_all()
                footprint = found.head.footprint
                if footprint is not None and not footprint.has_all_imports:
                    started.add(pool)
                seen.append(found)
            except TimeSpentError:
                for each in (pool, own):
                    each.close_all()  # one of its workers may still be at work
                seen.append(dataclasses.replace(row, not_reached=True))
            run.keep(seen[-1:])
    return seen


def _inspect(run: Run, row: Row, pool: WorkerPool, *, time_identical: bool) -> Row:
    """Run a benchmark once on each side that has it, and compare all metrics except time."""
    found = _first_runs(row, pool, run.rules)
    if found.hangs_on_head:
        say(f"running {row.name} again, because head did not answer")
        # If the base needs more than half of the timeout, head may only be a little slower.
        timeout_s = row.benchmark.timeout_s / 2
        hasty = dataclasses.replace(row.benchmark, timeout_s=timeout_s)
        again = _first_runs(dataclasses.replace(row, benchmark=hasty), pool, run.rules)
        head = dataclasses.replace(found.head, timed_out=again.hangs_on_head)
        found = dataclasses.replace(found, head=head)
    if not time_identical:
        found = dataclasses.replace(found, same=_what_is_same(run, found, pool))
    return dataclasses.replace(found, changes=_changes(found, run.rules))


def _released(run: Run, row: Row, pool: WorkerPool) -> Row:
    """Tear a row down that is not timed now. What its teardown uses counts, too."""
    if not row.benchmark.is_timed:
        return row
    request = protocol.Release(*row.benchmark.target)
    replies = pool.ask_sides(pool.live, request, row.benchmark.timeout_s)
    sides = row.sides
    for name, reply in replies.items():
        if isinstance(reply, WorkerError):
            row = row.with_problems({name: f"its teardown failed: {reply}"})
        elif (ran := sides[name].ran) is not None:
            used = dataclasses.replace(ran, footprint=reply)
            sides[name] = dataclasses.replace(sides[name], ran=used)
    if row.problems:
        return row
    row = dataclasses.replace(row, **sides)
    if row.same != "code" or not _may_use(row, run.sides, run.sides.changed_code):
        return row
    row = dataclasses.replace(row, same="")
    return dataclasses.replace(row, changes=_changes(row, run.rules))


def _first_runs(row: Row, pool: WorkerPool, rules: Rules) -> Row:
    sides = pool.sides
    asked = [sides.head] if row.state == "new" else [sides.base, sides.head]
    groups = [[side] for side in asked] if rules.cores_of(row.name) > 1 else [asked]
    runs: dict[str, SideRun] = {}
    for group in groups:
        runs |= _run(row.benchmark, group, pool)
    return _with_runs(row, runs)


def inspect_afresh(
    benchmark: Benchmark, order: Sequence[Side], sides: Sides, core: int | None, deadline: float
) -> Row:
    """Run a benchmark in new processes with empty compilation caches, the sides in turn."""
    runs: dict[str, SideRun] = {}
    for side in order:
        with WorkerPool(sides, core, deadline=deadline, fresh=True) as pool:
            runs |= _run(benchmark, [side], pool)
    return _with_runs(Row(benchmark), runs)


def _run(benchmark: Benchmark, group: Sequence[Side], pool: WorkerPool) -> dict[str, SideRun]:
    """Run a benchmark for the first time on these sides, which work at once.

    A peak is that of the whole process and includes the compiler. So it is taken in new processes.
    With a shared cache, a side that loads what the other one has just compiled would seem to need
    less memory.
    """
    if benchmark.kind == "peakmemory" and not pool.fresh:
        base, head = (pool.cores[side] for side in SIDES)
        own = WorkerPool(pool.sides, base, head_core=head, deadline=pool.deadline, fresh=True)
        with own:
            return _run(benchmark, group, own)
    runs = {}
    replies = pool.ask_sides(group, protocol.Inspect(*benchmark.target), benchmark.timeout_s)
    for side in group:
        reply = replies[side.name]
        if isinstance(reply, WorkerError):
            problem = str(reply)
            run = SideRun(problem=problem, by_runner=reply.by_runner, timed_out=reply.timed_out)
        elif isinstance(reply, protocol.Skipped):
            run = SideRun(skipped=reply.reason)
        else:
            check_origin(side, reply.modules)  # again, for what was imported meanwhile
            files = reply.program
            run = SideRun(reply, read_program(files, side.root) if files else None)
        runs[side.name] = run
    return runs


def _with_runs(row: Row, runs: Mapping[str, SideRun]) -> Row:
    """Add both runs. It is a problem if head no longer offers a program."""
    base = runs.get("base", SideRun())
    head = runs.get("head", SideRun())
    if base.program and head.ran and not head.program:
        problem = "it offers a compiled program on the base, but none on head"
        head = dataclasses.replace(head, problem=problem)
    found = dataclasses.replace(row, base=base, head=head)
    return found.with_problems(row.problems)  # what discovery found


def _what_is_same(run: Run, row: Row, pool: WorkerPool) -> Literal["", "code", "program"]:
    """Say what is the same on both sides, so that the row need not be timed."""
    if not row.is_comparable:
        return ""
    if not _may_use(row, run.sides, run.sides.changed_code):
        return "code"
    head = row.head.program
    if head is None or not head.timed_is_program or not row.has_same_program:
        return ""
    seconds = [row.base.seconds, row.head.seconds]
    for again in range(_ROUNDS):
        if again:
            say(f"timing the calls of {row.name} again")
            sides, sample_s = (run.sides.base, run.sides.head), run.rules.timing.sample_s
            seconds = [_call_s(row.benchmark, side, pool, sample_s) for side in sides]
        base_s, head_s = seconds
        if base_s is None or head_s is None:
            break  # the row is timed then, and its launches show the problem
        if max(base_s, head_s) <= _ALIKE * min(base_s, head_s):
            return "program"
    return ""


def _may_use(row: Row, sides: Sides, files: Sequence[PurePosixPath]) -> bool:
    """Tell whether the row may have used one of these files.

    It has not if each is a Python file that neither side's process has imported or opened. A
    process that has started another one may have used any file.
    """
    if not files:
        return False
    used: set[str] = set()
    for side, run in ((sides.base, row.base), (sides.head, row.head)):
        footprint = run.footprint
        # An environment of its own has the package installed, so that other files are used.
        if footprint is None or not footprint.has_all_imports or not side.import_from:
            return True
        used |= {*footprint.imported}
    return any(path.suffix != ".py" or str(path) in used for path in files)


def _call_s(benchmark: Benchmark, side: Side, pool: WorkerPool, target_s: float) -> float | None:
    """Return the seconds of one of many calls, on the core of head; None if anything goes wrong."""
    calibrate = protocol.Calibrate(*benchmark.target, target_s=target_s, core=pool.cores["head"])
    reply = pool.ask_sides([side], calibrate, benchmark.timeout_s)[side.name]
    pool.ask_sides([side], protocol.Release(*benchmark.target), benchmark.timeout_s)
    return reply.seconds if isinstance(reply, protocol.Calibration) else None


def _with_own_suite(sides: Sides) -> Sides:
    """Return sides whose base runs its own suite, with the results of its own setup_cache."""
    folder, programs = sides.folder / "own", sides.folder / "programs"
    folder.mkdir(exist_ok=True)
    programs.mkdir(exist_ok=True)
    if not (folder / "programs").exists():  # what one suite has compiled serves the other
        (folder / "programs").symlink_to(programs)
    base = dataclasses.replace(sides.base, suite=sides.base_suite)
    return dataclasses.replace(sides, base=base, folder=folder)


def _with_lost_work(run: Run, row: Row, pool: WorkerPool, own: WorkerPool) -> Row:
    """Add the work that the base's code no longer does because the change edits the suite.

    Both sides run head's suite, so a benchmark that measures next to nothing any more would pass.
    So the base's code also runs with its own suite.
    """
    sides = run.sides
    edited = [PurePosixPath(name) for name in sides.edited_suite]
    is_cut = any(not (sides.head.root / path).exists() for path in edited)
    are_skipped = len(row.skipped) == 2
    if not (row.is_comparable or are_skipped) or not (is_cut or _may_use(row, sides, edited)):
        return row
    say(f"running {row.name} with the base's own suite")
    benchmark = dataclasses.replace(row.benchmark, index=row.benchmark.own_index)
    changes = row.changes
    for _ in range(_ROUNDS):
        before = _work_of(benchmark, own, run.rules)
        if before is not None and are_skipped:
            return row.with_problems({"head": f"the edited suite skips it: {row.head.skipped}"})
        now = _work_of(row.benchmark, pool, run.rules)
        if before is None or now is None:
            return row
        lost = lost_work(row.benchmark, before, now, run.rules)
        if lost is None:
            return row
        changes = (*row.changes, lost)
        for each in (own, pool):
            each.close("base")  # new processes have the next look
    return dataclasses.replace(row, changes=changes)


def _work_of(benchmark: Benchmark, pool: WorkerPool, rules: Rules) -> float | None:
    """Return what tells how much the base's code does: the seconds of a call, or the value."""
    base = pool.sides.base
    if benchmark.is_timed:
        return _call_s(benchmark, base, pool, rules.timing.sample_s)
    ran = _run(benchmark, [base], pool)["base"].ran
    return ran.value if ran else None


def _changes(row: Row, rules: Rules) -> tuple[Change, ...]:
    """Compare both sides of a row.

    One look at a value of a clock or of the system only raises a suspicion. If both sides run the
    same code, or compile the same program, any difference in such values is noise.
    """
    changes = compare_metrics(row, rules) if row.is_comparable else ()
    is_same = row.same == "code" or row.has_same_program
    return tuple(
        dataclasses.replace(each, word=SAME if is_same else UNSURE)
        if rules.rule_of(each.metric, row.name, row.benchmark.unit).is_measured
        and not each.accepted
        and (is_same or each.word == WORSE)
        else each
        for each in changes
    )
