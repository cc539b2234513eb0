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
from dataclasses import dataclass
from pathlib import Path

from perfgate import machine
from perfgate.config import Rules
from perfgate.hlo import read_program
from perfgate.measure.discovery import check_origin
from perfgate.measure.imports import footprint_of
from perfgate.measure.progress import Progress
from perfgate.measure.valgrind import with_instructions
from perfgate.measure.workers import Say, TimeSpentError, WorkerPool, ask_sides
from perfgate.metrics import compare_metrics, lost_work
from perfgate.process import protocol
from perfgate.process.channel import WorkerError
from perfgate.source.sides import Side, Sides
from perfgate.stages import (
    COMPARABLE,
    MODULE,
    SIDES,
    Benchmark,
    Change,
    Inspected,
    Listed,
    NotRun,
    SideRun,
    Timed,
)

_ROUNDS = 2  # how often new processes must show again that a changed suite does less work
_FIRST_CALLS = 3  # how often first calls that differ are timed again
_LEAST_AGAIN_S = 30.0  # a side that has hung gets at least this long to answer when asked again
NO_PROGRAM_NOW = "it offers a compiled program on the base, but none on head"
SKIPPED_BY_THIS_CHANGE = "the base's suite runs it, but this change's suite skips it"


@dataclass(frozen=True)
class _Pools:
    """The workers that run benchmarks for the first time.

    Attributes:
        apart: pinned, each side to a core of its own.
        free: unpinned, for work on several cores.
        before: the base with its own suite.
    """

    apart: WorkerPool
    free: WorkerPool
    before: WorkerPool

    @property
    def every(self) -> tuple[WorkerPool, ...]:
        return self.apart, self.free, self.before

    def close_all(self, rules: Rules) -> None:
        """End all workers, after a last check of where their modules came from."""
        for pool in self.every:
            deadline = pool.deadline
            # A run that checks nothing could compare a package with itself.
            pool.deadline = math.inf
            _check_origins(pool, rules)
            pool.deadline = deadline
            pool.close_all()


def inspect(
    rows: Sequence[Listed],
    sides: Sides,
    rules: Rules,
    core: int | None,
    progress: Progress,
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
    out. Rows that an unfinished run has inspected are not run again. Rows that the deadline cuts
    off get `NotRun.TIME`.
    """
    ready = {
        row.name: Inspected(row.benchmark, row.state, not_run=not_run[row.name])
        for row in rows
        if not_run and row.name in not_run
    }
    ready |= {name: row.inspected for name, row in progress.rows.items()}
    deadline = progress.deadline
    with contextlib.ExitStack() as stack:
        # head gets the idler core, because budgets judge head alone
        aside = machine.other_core(core)
        apart = WorkerPool(sides, aside, head_core=core, deadline=deadline)
        before = WorkerPool(_with_own_suite(sides), aside, deadline=deadline)
        pools = _Pools(apart, WorkerPool(sides, None, deadline=deadline), before)
        for pool in pools.every:
            stack.enter_context(pool)
        seen = []
        flags = {"clocks": clocks, "by_valgrind": by_valgrind}
        start = None  # when the first benchmark of this run began
        for row in rows:
            if row.name in ready:
                seen.append(ready[row.name])
                continue
            if _need_new_workers(seen, row):
                pools.close_all(rules)
            begun = time.monotonic()
            start = start or begun
            try:
                found = _inspect(row, rules, pools, progress.say, **flags)
            except TimeSpentError:
                for pool in pools.every:
                    pool.close_all()  # one of them may still be at work
                found = Inspected(row.benchmark, row.state, not_run=NotRun.TIME)
                if begun == start < deadline:
                    # It had all the time there is, so it would stop each later run, too.
                    spent = f"it took over {deadline - begun:.0f} s, all that timing.run_s leaves"
                    found = Inspected(row.benchmark, row.state, head=SideRun(problem=spent))
            seen.append(found)
            if found.not_run is None:
                progress.keep([Timed(found)])
        pools.close_all(rules)
    for pool in (pools.apart, pools.free):
        seen = [row.with_problems(pool.escapes(row.name)) for row in seen]
    escaped = [row for row in seen if row.name in progress.rows and row.problems]
    progress.keep(dataclasses.replace(progress.rows[row.name], inspected=row) for row in escaped)
    return seen


def _with_own_suite(sides: Sides) -> Sides:
    """Return both sides with the base's own suite on the base, and other results of setup_cache."""
    folder = sides.folder / "before"
    folder.mkdir()
    base = dataclasses.replace(sides.base, suite=sides.base_suite)
    programs = f"../{sides.programs}"
    return dataclasses.replace(sides, base=base, folder=folder, programs=programs)


def _inspect(
    row: Listed,
    rules: Rules,
    pools: _Pools,
    say: Say,
    *,
    clocks: bool,
    by_valgrind: bool,
) -> Inspected:
    sides = pools.apart.sides
    put_off = _tracks_seconds(row.benchmark, rules) and (not clocks or sides.same_code)
    asked = _sides_of(row, sides)
    if put_off:
        asked = [side for side in asked if clocks and side.name == "head"]
    if asked:
        pools.apart.check_time()
        say(f"running {row.name}")
    pool = pools.free if rules.cores_of(row.name) > 1 else pools.apart
    # On several cores both sides would get in each other's way, so they run in turn.
    groups = [asked] if pool is pools.apart else [[side] for side in asked]
    seen = _side_by_side(row, _run_groups(row.benchmark, groups, pool), put_off=put_off)
    if seen.hangs_on_head:
        say(f"running {row.name} again, because head did not answer")
        again_s = max(_LEAST_AGAIN_S, COMPARABLE * seen.base.answered_s)
        hasty = dataclasses.replace(row.benchmark, timeout_s=min(row.benchmark.timeout_s, again_s))
        again = _side_by_side(row, _run_groups(hasty, groups, pool), put_off=put_off)
        # The first run had more time to answer, so the report names that time.
        seen = seen if again.hangs_on_head else again
    if row.problem:
        seen = seen.with_problems({"head": row.problem})
    seen = _with_first_calls_again(seen, sides, pool, say)
    if by_valgrind:
        seen = with_instructions(seen, sides, say, pool.deadline)
    seen = _with_lost_work(seen, sides, rules, pools, say)
    return dataclasses.replace(seen, changes=(*seen.changes, *_changes(seen, sides, rules)))


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


def _with_lost_work(
    seen: Inspected, sides: Sides, rules: Rules, pools: _Pools, say: Say
) -> Inspected:
    """Run the base with its own suite, and add what the changed suite no longer makes it do.

    Head's suite decides what both sides measure, so a benchmark that measures next to nothing any
    more would pass. It is a problem if head's suite skips what the base's own suite runs.
    """
    # Where the code is the same, some rows run on head alone.
    side = sides.head if sides.same_code and seen.base.ran is None else sides.base
    now = seen.sides[side.name]
    used = footprint_of(now.ran)
    imported = used.imported if used is not None and used.has_all_imports else sides.edited_suite
    uses_change = any(
        name in imported or not (sides.head.root / name).exists() for name in sides.edited_suite
    )
    has_answer = now.ran is not None or len(seen.skipped) == len(SIDES)
    if not uses_change or seen.state != "both" or seen.problems or not has_answer:
        return seen
    say(f"running {seen.name} with the base's own suite")
    own = pools.before.sides
    core = None if rules.cores_of(seen.name) > 1 else pools.before.cores["base"]
    before = _with_calls(None, seen.benchmark, own.base, pools.before, rules)
    if now.skipped and before.ran is not None:
        return seen.with_problems({"head": f"{SKIPPED_BY_THIS_CHANGE}: {now.skip_reason}"})
    now = _with_calls(now, seen.benchmark, side, pools.apart, rules)
    lost = lost_work(seen.benchmark, before, now, rules)
    for _ in range(_ROUNDS if lost else 0):
        runs = []
        for place, each in ((own, own.base), (sides, side)):
            with WorkerPool(place, core, deadline=pools.before.deadline) as pool:
                runs.append(_with_calls(None, seen.benchmark, each, pool, rules))
        again = lost_work(seen.benchmark, runs[0], runs[1], rules)
        metrics = {each.metric for each in again}
        lost = [each for each in lost if each.metric in metrics]
    return dataclasses.replace(seen, changes=tuple(lost))


def _with_calls(
    run: SideRun | None, benchmark: Benchmark, side: Side, pool: WorkerPool, rules: Rules
) -> SideRun:
    """Return a first run with the seconds of a call when many follow each other, as in a pair.

    A benchmark that only works on its first call after setup looks unchanged until then.
    """
    if run is None:
        (run,) = _run(benchmark, [side], pool).values()
    if not isinstance(run.ran, protocol.FirstRun):
        return run
    request = protocol.Calibrate(*benchmark.target, target_s=rules.timing.sample_s)
    (found,) = ask_sides({side: pool}, request, benchmark.timeout_s).values()
    if not isinstance(found, protocol.Calibration):
        return run
    ask_sides({side: pool}, protocol.Release(*benchmark.target), benchmark.timeout_s)
    return dataclasses.replace(run, ran=dataclasses.replace(run.ran, seconds=found.seconds))


def _sides_of(row: Listed, sides: Sides) -> list[Side]:
    if row.benchmark.kind == MODULE or row.state == "gone":
        return []
    return [sides.head] if row.state == "new" else [sides.base, sides.head]


def _tracks_seconds(benchmark: Benchmark, rules: Rules) -> bool:
    rule = rules.rule_of(benchmark.metric, benchmark.row)
    return benchmark.metric == "track" and rule.is_measured and rule.unit == "s"


def _run_groups(
    benchmark: Benchmark, groups: Sequence[Sequence[Side]], pool: WorkerPool
) -> dict[str, SideRun]:
    """Run a benchmark for the first time, the sides of each group at once."""
    return {name: run for group in groups for name, run in _run(benchmark, group, pool).items()}


def _run(benchmark: Benchmark, asked: Sequence[Side], pool: WorkerPool) -> dict[str, SideRun]:
    """Run a benchmark for the first time on these sides at once."""
    if benchmark.kind == "peakmemory":
        cores = {side: pool.cores[side.name] for side in asked}
        return _run_afresh(benchmark, cores, pool.sides, pool.deadline)
    return _run_in(benchmark, dict.fromkeys(asked, pool))


def inspect_afresh(
    benchmark: Benchmark,
    order: Sequence[Side],
    sides: Sides,
    core: int | None,
    deadline: float = math.inf,
) -> Inspected:
    """Run a benchmark in new processes with empty compilation caches, the sides in turn."""
    runs: dict[str, SideRun] = {}
    for side in order:
        runs |= _run_afresh(benchmark, {side: core}, sides, deadline)
    return _side_by_side(Listed(benchmark), runs)


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
        runs = _run_in(benchmark, pools)
    for side, pool in pools.items():
        escaped = pool.escapes(benchmark.row).get(side.name, "")
        run = runs[side.name]
        runs[side.name] = dataclasses.replace(run, problem=run.problem or escaped)
    return runs


def _run_in(benchmark: Benchmark, pools: Mapping[Side, WorkerPool]) -> dict[str, SideRun]:
    replies = ask_sides(pools, protocol.Inspect(*benchmark.target), benchmark.timeout_s)
    return {
        side.name: dataclasses.replace(
            _side_run(replies[side.name], side), answered_s=pool.answered_s[side.name]
        )
        for side, pool in pools.items()
    }


def _side_run(
    reply: protocol.FirstRun | protocol.Value | protocol.Skipped | WorkerError, side: Side
) -> SideRun:
    if isinstance(reply, WorkerError):
        return SideRun(problem=str(reply), by_runner=reply.by_runner, silent_s=reply.silent_s)
    if isinstance(reply, protocol.Skipped):
        return SideRun(skipped=True, skip_reason=reply.reason)
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
