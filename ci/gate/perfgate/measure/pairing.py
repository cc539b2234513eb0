"""Paired timing: two live workers share one core and run in turn.

A launch, which is a new worker for each side, is the unit of evidence (evidence.py says why). All
open rows share a launch, one after the other. Setting them up takes longer than timing them, so
both sides do that at once, each on a core of its own, and the first look at a row is its first
launch. A row is torn down before the next one is set up: a suite may use one file, or one object of
a process, for all of its rows.

Quads of slices are timed: base, head, head, base, or the reverse. A slice lasts 10 ms or one call.
Of calls that last long, a launch times one a side, in an order drawn at random.
The clock of a row that runs on one core leaves out what the process waits for its core, so that a
busy machine adds little. Rows of several cores keep the wall clock.
"""

import contextlib
import dataclasses
import math
import random
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from perfgate import machine
from perfgate.config import Timing
from perfgate.measure.run import Run, say
from perfgate.measure.workers import TimeSpentError, WorkerError, WorkerPool
from perfgate.metrics import has_grown
from perfgate.process import protocol
from perfgate.process.protocol import Calibration
from perfgate.rows import SIDES, Benchmark, Row
from perfgate.source.sides import Side
from perfgate.stats.evidence import LOOKS, Evidence, pooled_scatter

R = TypeVar("R")
_USUAL_QUADS, _MOST_QUADS = 12, 24  # of a row in a launch, if its calls are short
_FEWEST_QUADS = 4  # which still make a number if the time ends within a launch
_LONGEST = 3  # a launch spends at most this many times `pair_s` on a row with long calls
# If one side takes more than this many times as long as the other, one call of each shows it.
_COMPARABLE = 10
# If head runs into its timeout and its first calls took this many times as long, it is slower.
_HANGS = 2


@dataclass(eq=False)
class _BrokenError(Exception):
    """One or both sides failed while a row was timed; `errors` holds why, by side."""

    errors: dict[str, WorkerError]


@dataclass
class Open:
    """A row while it is timed. `so_far` returns its result.

    Attributes:
        launch_s: roughly the seconds that it takes in each launch.
        has_grown: whether a count of head is larger, so that head may well be slower.
        calls: calls in one slice; 0 until the first launch has found how many.
        quads: quads in one launch.
        turns: how often each side has its turn in one of these: twice, or once if that lasts long.
        log_ratios: one number for each quad of this launch.
    """

    row: Row
    evidence: Evidence
    launch_s: float
    has_grown: bool = False
    calls: int = 0
    quads: int = 0
    turns: int = 2
    log_ratios: list[float] = field(default_factory=list)
    timed_s: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in SIDES})

    @property
    def benchmark(self) -> Benchmark:
        return self.row.benchmark

    @property
    def is_open(self) -> bool:
        return not self.evidence.done and not self.row.problems

    @property
    def urgency(self) -> tuple[bool, bool, float]:
        """The place in line, the most urgent last.

        First comes what would not pass now, then what counts more, and then launches or first calls
        decide.
        """
        base_s, head_s = self.row.base.seconds, self.row.head.seconds
        suspicion = self.evidence.suspicion()
        if math.isnan(suspicion):
            suspicion = head_s / base_s if base_s and head_s else 1.0
        return not self.evidence.has_passed, self.has_grown, suspicion

    def so_far(self) -> Row:
        timed_s = {name: tuple(taken) for name, taken in self.timed_s.items()}
        return dataclasses.replace(self.row, evidence=self.evidence, timed_s=timed_s)


def affordable(rows: Iterable[Open], left_s: float) -> list[Open]:
    """Return the rows that can be decided in `left_s`, the most urgent first.

    A few launches for each row would decide none of them. The fewer rows share a launch, the more
    launches they get. What would not pass now decides the exit code, so it is launched as long as
    there is time: each launch lowers its bound. At least one row is returned.
    """
    ordered = sorted(rows, key=lambda each: each.urgency, reverse=True)
    chosen: list[Open] = []
    for each in ordered:
        needed_s = each.launch_s * each.evidence.launches_left()
        if needed_s <= left_s or not each.evidence.has_passed:
            left_s -= needed_s
            chosen.append(each)
    return chosen or ordered[:1]


@dataclass
class Session:
    """The paired timing of one run.

    Attributes:
        run: the run. Timing ends at its deadline.
        rng: it draws every random order.
        budget_s: seconds for all timing.
        share_s: those of a row in a launch, so that every row can have two launches and some more.
        spent_s: those that are spent.
        begun: the rows that were timed so far, by name.
    """

    run: Run
    rng: random.Random
    budget_s: float
    share_s: float
    spent_s: float = 0.0
    begun: dict[str, Open] = field(default_factory=dict)

    def begin(self, row: Row, pool: WorkerPool, core: int | None) -> Row:
        """Time a row on the workers that looked at it, which are its first launch.

        It need not be set up again for that. Half of the budget is kept for other launches.
        """
        timed = self.begun[row.name] = self._opened(row)
        start = time.monotonic()
        try:
            if self.spent_s < self.budget_s / 2:
                self._time_row(timed, pool, core)
            else:
                self._release(timed, pool)
        except TimeSpentError:
            pool.close_all()  # one of its workers may still be at work
        self._add(timed)
        self.spent_s += time.monotonic() - start
        return timed.so_far()

    def time(self, rows: Sequence[Row], num_tests: int) -> list[Row]:
        """Launch workers until every row is decided or has had its last look, or the time is spent.

        What looks slower is settled first. Then every row gets two launches before any gets more.

        Args:
            rows: the rows to time.
            num_tests: the number of tests that share the error.
        """
        timed = [self.begun.get(row.name) or self._opened(row) for row in rows]
        for row in timed:
            row.evidence.num_tests = num_tests
        while (left := [row for row in timed if row.is_open]) and not self.run.is_over:
            say(f"launching again: {len(left)} of {len(rows)} benchmarks are undecided")
            chosen = [row for row in left if row.evidence.looks_slower]
            chosen = chosen or [row for row in left if len(row.evidence.launches) < LOOKS[0]]
            if not chosen:
                chosen = affordable(left, self.run.deadline - time.monotonic())
            with contextlib.suppress(TimeSpentError):
                self._launch(chosen)
            self._weigh(chosen, timed)
            self.run.keep([row.so_far() for row in chosen])
        found = [row.so_far() for row in timed]
        self.run.keep(found)
        return found

    def _opened(self, row: Row) -> Open:
        first_s = sum(side.seconds or 0.0 for side in (row.base, row.head))
        # Until it has been launched this is an estimate: preparing takes as long as sampling.
        launch_s = 2 * self.run.rules.timing.pair_s + first_s
        return Open(row, Evidence(), launch_s, has_grown(row, self.run.rules))

    def _weigh(self, launched: Sequence[Open], timed: Sequence[Open]) -> None:
        """Add the numbers of a launch. The rows of a class show together how a launch scatters."""
        found = [row for row in launched if self._add(row)]
        scatter = {
            is_hot: pooled_scatter(row.evidence for row in timed if row.row.is_hot is is_hot)
            for is_hot in (False, True)
        }
        for row in found:
            row.evidence.weigh(scatter[row.row.is_hot])

    def _add(self, row: Open) -> bool:
        """Make the quads of a launch its number, if there are enough."""
        is_enough = len(row.log_ratios) >= min(row.quads, _FEWEST_QUADS) > 0
        if is_enough:
            row.evidence.add(statistics.median(row.log_ratios))
        row.log_ratios = []
        return is_enough

    def _launch(self, rows: Sequence[Open]) -> None:
        """Launch one pinned pair, and an unpinned one for the benchmarks of several cores."""
        # Both sides of a launch hash alike, so they iterate over sets in the same order. Launches
        # hash differently, so that no verdict rests on one order.
        seed = self.rng.randrange(1 << 32)
        sides, end = self.run.sides, self.run.deadline
        many = [row for row in rows if self.run.rules.cores_of(row.benchmark.row) > 1]
        single = [row for row in rows if row not in many]
        for group, core in ((single, self.run.core), (many, None)):
            group.sort(key=lambda row: row.urgency, reverse=True)
            # Both sides are sampled on `core`. Which of them is also prepared there is drawn at
            # random, because memory stays near the core that first touches it.
            first, second = self.rng.sample([core, machine.other_core(core)], 2)
            with WorkerPool(sides, first, head_core=second, hash_seed=seed, deadline=end) as pool:
                for row in group:
                    if self.run.is_over:
                        break
                    start = time.monotonic()
                    self._time_row(row, pool, core)
                    if row is not group[0]:  # the first row also waits for the workers to start
                        row.launch_s = time.monotonic() - start

    def _time_row(self, row: Open, pool: WorkerPool, core: int | None) -> None:
        try:
            self._prepare(row, pool)
            for _ in range(row.quads):
                self._quad(row, pool, core)
            if not row.log_ratios:
                reason = "the clock that it uses showed no time"
                row.row = row.row.with_problems(dict.fromkeys(SIDES, reason))
        except _BrokenError as error:
            self._note_problem(row, error)
            if not all(why.alive for why in error.errors.values()):
                pool.close_all()  # a worker is never replaced alone: a launch starts both
        self._release(row, pool)

    def _note_problem(self, row: Open, error: _BrokenError) -> None:
        reasons = {side: f"while it was timed: {why}" for side, why in error.errors.items()}
        row.log_ratios = []
        row.row = row.row.with_problems(reasons)
        timed_out = [side for side, why in error.errors.items() if why.timed_out]
        base_s, head_s = row.row.base.seconds, row.row.head.seconds
        # Head's calls may last so long that only a few of them end in time.
        if timed_out == ["head"] and base_s and head_s and head_s > _HANGS * base_s:
            head = dataclasses.replace(row.row.head, timed_out=True)
            row.row = dataclasses.replace(row.row, head=head)

    def _release(self, row: Open, pool: WorkerPool) -> None:
        request = protocol.Release(*row.benchmark.target)
        for name, reply in pool.ask_sides(pool.live, request, row.benchmark.timeout_s).items():
            if isinstance(reply, WorkerError):
                row.row = row.row.with_problems({name: f"its teardown failed: {reply}"})
                if not reply.alive:
                    pool.close_all()

    def _prepare(self, row: Open, pool: WorkerPool) -> None:
        """Set a row up on both sides at once, each on a core of its own.

        The first time also tells its class, and how it is timed. Later a slice warms it up, which
        does nothing for a statement that has an interpreter of its own for each slice.
        """
        timing, benchmark = self.run.rules.timing, row.benchmark
        both = [self.run.sides.base, self.run.sides.head]
        if row.calls:
            if benchmark.kind != "timeraw":
                warm_up = protocol.Sample(*benchmark.target, calls=row.calls, own_time=False)
                self._ask(row, pool, warm_up, both, at_once=True)
            return
        first_s = max(row.row.base.seconds or 0.0, row.row.head.seconds or 0.0)
        request = protocol.Calibrate(*benchmark.target, timing.sample_s, first_s)
        found = self._ask(row, pool, request, both, at_once=True)
        row.calls, row.quads, row.turns = quads_of(list(found.values()), timing, self.share_s)
        # The base decides: a change that begins to read a file at each call keeps the limits.
        ran = row.row.base.ran
        is_hot = ran is not None and ran.is_quiet and found["base"].is_work
        rules, name = self.run.rules, row.row.name
        is_hot = rules.is_hot(name, seems=is_hot and rules.cores_of(name) == 1)
        row.row = dataclasses.replace(row.row, is_hot=is_hot)
        row.evidence.limits = rules.limits_of(name, is_hot=is_hot)

    def _quad(self, row: Open, pool: WorkerPool, core: int | None) -> None:
        """Time base, head, head, base, or the reverse. What drifts hits both sides alike."""
        request = protocol.Sample(
            *row.benchmark.target, calls=row.calls, own_time=core is not None, core=core
        )
        order: list[Side] = self.rng.sample([self.run.sides.base, self.run.sides.head], 2)
        orders = (order, order[::-1])[: row.turns]
        turns = [self._ask(row, pool, request, each) for each in orders]
        taken = {name: sum(turn[name].seconds for turn in turns) / row.turns for name in SIDES}
        for name, seconds in taken.items():
            row.timed_s[name].append(seconds)
        # A call shorter than a tick of its clock takes 0 s, which has no ratio.
        if min(taken.values()) > 0:
            row.log_ratios.append(math.log(taken["head"] / taken["base"]))

    def _ask(
        self,
        row: Open,
        pool: WorkerPool,
        request: protocol.Request[R],
        order: Sequence[Side],
        *,
        at_once: bool = False,
    ) -> dict[str, R]:
        """Send both sides the same request and return their replies.

        Raises:
            _BrokenError: a side failed.
        """
        replies = pool.ask_sides(order, request, row.benchmark.timeout_s, at_once=at_once)
        if errors := {side: e for side, e in replies.items() if isinstance(e, WorkerError)}:
            raise _BrokenError(errors)
        return {side: e for side, e in replies.items() if not isinstance(e, WorkerError)}


def quads_of(found: Sequence[Calibration], timing: Timing, share_s: float) -> tuple[int, int, int]:
    """Return the calls of a slice, the quads of a launch, and the turns of each of these.

    The slower side decides how many calls a slice has, so that a large slowdown costs little time.
    Many rows in a short time get fewer quads: two launches tell more than one that is exact.
    """
    calls = min(each.calls for each in found)
    seconds = [each.seconds for each in found]
    # with the setup that asv repeats before each call
    quad_s = max(1e-6, 2 * sum(each.wall_s / each.calls * calls for each in found))
    longest = int(_LONGEST * timing.pair_s / quad_s)
    if longest == 0 or max(seconds) > _COMPARABLE * min(seconds):
        return calls, 1, 1
    shared = max(_FEWEST_QUADS, int(min(share_s / quad_s, _MOST_QUADS)))
    usual = max(_USUAL_QUADS, min(_MOST_QUADS, round(timing.pair_s / quad_s)))
    return calls, min(longest, shared, usual), 2
