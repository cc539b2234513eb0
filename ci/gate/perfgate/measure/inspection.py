"""The first run of every benchmark on both sides: values, first calls, compiled programs.

Benchmarks share a worker. If one hangs or dies there, the gate replaces the worker, and only that
benchmark loses its row.
"""

import contextlib
import dataclasses
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfgate import machine
from perfgate.config import Rules
from perfgate.hlo import read_program
from perfgate.measure.discovery import check_origin
from perfgate.measure.imports import footprint_of
from perfgate.measure.valgrind import with_instructions
from perfgate.measure.workers import Say, WorkerPool, ask_sides
from perfgate.metrics import compare_metrics
from perfgate.process import protocol
from perfgate.process.channel import Worker, WorkerError
from perfgate.source.sides import Side, Sides
from perfgate.stages import MODULE, SIDES, Benchmark, Change, Inspected, Listed, NotRun, SideRun

_FIRST_CALLS = 3  # how often first calls that differ are timed again
NO_PROGRAM_NOW = "it offers a compiled program on the base, but none on head"
SKIPPED_BY_THIS_CHANGE = "the base's suite runs it, but this change's suite skips it"


@dataclass(frozen=True)
class _Pools:
    """The workers that run benchmarks for the first time.

    Attributes:
        apart: pinned, each side to a core of its own.
        free: unpinned, for work on several cores.
    """

    apart: WorkerPool
    free: WorkerPool

    @property
    def every(self) -> tuple[WorkerPool, ...]:
        return self.apart, self.free

    def close_all(self, rules: Rules) -> None:
        """End all workers, after a last check of where their modules came from."""
        for pool in self.every:
            _check_origins(pool, rules)
            pool.close_all()


def inspect(
    rows: Sequence[Listed],
    sides: Sides,
    rules: Rules,
    core: int | None,
    say: Say,
    *,
    clocks: bool = True,
    by_valgrind: bool = False,
    not_run: Mapping[str, NotRun] | None = None,
) -> list[Inspected]:
    """Run every benchmark once on each side that has it, and compare all metrics except time.

    Both sides work at once, each on a core of its own. That leaves counters unaffected. It is also
    fair to seconds that a suite tracks by itself: neither side has the better place, and fresh
    processes confirm what looks worse. If both sides hold the same code, such a benchmark runs on
    head alone, to show that it runs. Without `clocks` it does not run. Rows in `not_run` are left
    out.
    """
    not_run = not_run or {}
    with contextlib.ExitStack() as stack:
        # head gets the idler core, because budgets judge head alone
        apart = WorkerPool(sides, machine.other_core(core), head_core=core)
        pools = _Pools(apart, WorkerPool(sides, None))
        for pool in pools.every:
            stack.enter_context(pool)
        seen = []
        for row in rows:
            if row.name in not_run:
                seen.append(Inspected(row.benchmark, row.state, not_run=not_run[row.name]))
                continue
            if _need_new_workers(seen, row):
                pools.close_all(rules)
            seen.append(_inspect(row, sides, rules, pools, say, clocks=clocks))
        pools.close_all(rules)
    for pool in pools.every:
        seen = [row.with_problems(pool.escapes(row.name)) for row in seen]
    if by_valgrind:
        seen = with_instructions(seen, sides, say)
    return [dataclasses.replace(row, changes=_changes(row, sides, rules)) for row in seen]


def _inspect(
    row: Listed,
    sides: Sides,
    rules: Rules,
    pools: _Pools,
    say: Say,
    *,
    clocks: bool,
) -> Inspected:
    put_off = _tracks_seconds(row.benchmark, rules) and (not clocks or sides.same_code)
    asked = _sides_of(row, sides)
    if put_off:
        asked = [side for side in asked if clocks and side.name == "head"]
    if asked:
        say(f"running {row.name}")
    pool = pools.free if rules.cores_of(row.name) > 1 else pools.apart
    # On several cores both sides would get in each other's way, so they run in turn.
    groups = [asked] if pool is pools.apart else [[side] for side in asked]
    runs = {}
    for group in groups:
        runs |= _run(row.benchmark, group, pool)
    seen = _side_by_side(row, runs, put_off=put_off)
    if row.problem:
        seen = seen.with_problems({"head": row.problem})
    if len(seen.skipped) == len(SIDES) and not sides.same_suite:
        seen = _unless_it_ran_before(seen, sides)
    return _with_first_calls_again(seen, sides, pool, say)


def _need_new_workers(seen: Sequence[Inspected], row: Listed) -> bool:
    """Tell whether the current workers can't tell which files the next row imports.

    A process that an earlier group started may have imported anything, and later rows may rely on
    it.
    """
    ran = [each for each in seen if each.not_run is None]
    if not ran or _group_of(ran[-1]) == _group_of(row):
        return False
    last = [each for each in ran if _group_of(each) == _group_of(ran[-1])]
    footprints = [footprint_of(side.ran) for each in last for side in each.sides.values()]
    return any(each is not None and not each.has_all_imports for each in footprints)


def _group_of(row: Listed | Inspected) -> tuple[str, bool]:
    """Return a row's module, and whether it runs in interpreters of its own."""
    module = row.benchmark.name.partition(".")[0]
    return module, row.benchmark.kind == "timeraw"


def _unless_it_ran_before(seen: Inspected, sides: Sides) -> Inspected:
    """Mark a row that both sides skip as a problem if the base's own suite ran it."""
    benchmark = seen.benchmark
    request = protocol.Inspect(*benchmark.target)
    try:
        with Worker(sides.launch(sides.base, suite=sides.base_suite)) as worker:
            ran = worker.ask(request, benchmark.timeout_s)
    except WorkerError:
        return seen  # it was broken or did not exist, so nothing was lost
    if isinstance(ran, protocol.Skipped):
        return seen
    return seen.with_problems({"head": SKIPPED_BY_THIS_CHANGE})


def _sides_of(row: Listed, sides: Sides) -> list[Side]:
    if row.benchmark.kind == MODULE or row.state == "gone":
        return []
    return [sides.head] if row.state == "new" else [sides.base, sides.head]


def _tracks_seconds(benchmark: Benchmark, rules: Rules) -> bool:
    rule = rules.rule_of(benchmark.metric, benchmark.row)
    return benchmark.metric == "track" and rule.is_measured and rule.unit == "s"


def _run(benchmark: Benchmark, asked: Sequence[Side], pool: WorkerPool) -> dict[str, SideRun]:
    """Run a benchmark for the first time on these sides at once."""
    if benchmark.kind == "peakmemory":
        return _run_afresh(benchmark, {side: pool.cores[side.name] for side in asked}, pool.sides)
    return _run_in(benchmark, dict.fromkeys(asked, pool))


def inspect_afresh(
    benchmark: Benchmark, order: Sequence[Side], sides: Sides, core: int | None
) -> Inspected:
    """Run a benchmark in new processes with empty compilation caches, the sides in turn."""
    runs: dict[str, SideRun] = {}
    for side in order:
        runs |= _run_afresh(benchmark, {side: core}, sides)
    return _side_by_side(Listed(benchmark), runs)


def _run_afresh(
    benchmark: Benchmark, cores: Mapping[Side, int | None], sides: Sides
) -> dict[str, SideRun]:
    """Run a benchmark in new processes with empty compilation caches, each side on its core.

    A peak is that of the whole process and includes the compiler. With a shared cache, a side that
    loads what the other one has just compiled would seem to need less memory.
    """
    pools = {}
    with contextlib.ExitStack() as stack:
        for side, core in cores.items():
            empty = Path(tempfile.mkdtemp(prefix="programs-", dir=sides.folder)).name
            pool = WorkerPool(dataclasses.replace(sides, programs=empty), core)
            pools[side] = stack.enter_context(pool)
        runs = _run_in(benchmark, pools)
    for side, pool in pools.items():
        escaped = pool.escapes(benchmark.row).get(side.name, "")
        run = runs[side.name]
        runs[side.name] = dataclasses.replace(run, problem=run.problem or escaped)
    return runs


def _run_in(benchmark: Benchmark, pools: Mapping[Side, WorkerPool]) -> dict[str, SideRun]:
    replies = ask_sides(pools, protocol.Inspect(*benchmark.target), benchmark.timeout_s)
    return {side.name: _side_run(replies[side.name], side) for side in pools}


def _side_run(
    reply: protocol.FirstRun | protocol.Value | protocol.Skipped | WorkerError, side: Side
) -> SideRun:
    if isinstance(reply, WorkerError):
        return SideRun(problem=str(reply), by_runner=reply.by_runner)
    if isinstance(reply, protocol.Skipped):
        return SideRun(skipped=True)
    files = reply.program if isinstance(reply, protocol.FirstRun) else None
    return SideRun(reply, read_program(files, side.root) if files else None)


def _side_by_side(row: Listed, runs: Mapping[str, SideRun], *, put_off: bool = False) -> Inspected:
    """Return both runs. It is a problem if head no longer offers a program."""
    base = runs.get("base", SideRun())
    head = runs.get("head", SideRun())
    if base.program and head.ran and not head.program:
        head = dataclasses.replace(head, problem=NO_PROGRAM_NOW)
    return Inspected(row.benchmark, row.state, base, head, put_off=put_off)


def _with_first_calls_again(seen: Inspected, sides: Sides, pool: WorkerPool, say: Say) -> Inspected:
    """Time first calls that differ again, the sides in turn and on one core.

    This only concerns rows that would not be timed if their first calls were alike.

    If anything goes wrong here the row is timed, and its pairs show the problem.
    """
    if sides.same_code or not seen.is_comparable:
        return seen
    if not seen.has_one_program or seen.is_same_program:
        return seen
    say(f"timing the first calls of {seen.name} again")
    request = protocol.TimeFirstCalls(*seen.benchmark.target, core=pool.cores["head"])
    taken: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(_FIRST_CALLS):
        for side in (sides.base, sides.head):
            replies = ask_sides({side: pool}, request, seen.benchmark.timeout_s)
            reply = replies[side.name]
            if not isinstance(reply, protocol.Seconds):
                return seen
            taken[side.name].append(reply.seconds)
    for name, seconds in taken.items():
        run = seen.sides[name]
        assert isinstance(run.ran, protocol.FirstRun)
        again = dataclasses.replace(run.ran, seconds=statistics.median(seconds))
        seen = seen.with_side(name, dataclasses.replace(run, ran=again))
    return seen


def _changes(row: Inspected, sides: Sides, rules: Rules) -> tuple[Change, ...]:
    """Compare both sides of a row.

    If both sides hold the same code, any difference in a clock's or the system's values is noise.
    """
    changes = compare_metrics(row, rules) if row.is_comparable else ()
    if not sides.same_code:
        return changes
    is_clock = {each.metric: rules.rule_of(each.metric, row.name).is_measured for each in changes}
    return tuple(
        dataclasses.replace(each, word="same") if is_clock[each.metric] else each
        for each in changes
    )


def _check_origins(pool: WorkerPool, rules: Rules) -> None:
    """Check again where imports came from, now including those made while benchmarks ran."""
    for side in pool.live:
        with contextlib.suppress(WorkerError):  # the row that broke a worker already reports it
            found = pool.ask(side, protocol.Origins(), rules.timing.timeout_s)
            check_origin(side, found.modules)
