"""Paired timing: two live workers share one core, either at once or in turn.

The relaunched pair is the unit of evidence (evidence.py says why). All undecided benchmarks share
the launch of a pair. Within it each benchmark is prepared on both sides, sampled in alternation and
released before the next one. Preparing takes longer than sampling, so both sides prepare at once,
each on a core of its own.

Neighbours of a virtual machine come and go within milliseconds to seconds, so two calls in turn run
beside different neighbours. Measured in turn, a JAX program scatters by 0.6 to 1.3% from pair to
pair, a second of work by 4%, an import by 12%. So calls that only compute run on both sides at
once: the kernel gives them the core in turn, in slices of milliseconds, and each is charged its own
time. That leaves 0.2 to 0.8%, most of it the difference between launches. Calls that wait, run
elsewhere or are too short to share a core run in turn, in an order drawn anew each time.
"""

import contextlib
import dataclasses
import math
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from perfgate import machine
from perfgate.config import Rules
from perfgate.measure.progress import Progress
from perfgate.measure.schedule import Prospect, affordable
from perfgate.measure.ways import Ways, are_crowded, choose_ways, medians
from perfgate.measure.workers import SKIPPED_NOW, TimeSpentError, WorkerPool, ask_sides
from perfgate.process import protocol
from perfgate.process.channel import WorkerError
from perfgate.source.sides import Side, Sides
from perfgate.stages import SIDES, Benchmark, Inspected, Timed
from perfgate.stats.evidence import Evidence, Plan

R = TypeVar("R")
_FIRST_CALLS_SD = 0.1  # about how much the log ratio of first calls scatters


@dataclass
class _BrokenError(Exception):
    """One or both sides failed while a row was timed.

    Attributes:
        reasons: why, by side.
        alive: whether both workers can go on.
        silent_s: the seconds in which each side gave no answer.
    """

    reasons: dict[str, str]
    alive: bool
    silent_s: dict[str, float] = field(default_factory=dict)


@dataclass
class _Open:
    """A row while it is timed. `so_far` returns its result."""

    inspected: Inspected
    evidence: Evidence
    pair_s: float
    ways: Ways | None = None
    seconds: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in SIDES})
    shared: bool = False
    broken: dict[str, str] = field(default_factory=dict)
    causes: tuple[str, ...] = ()

    @property
    def benchmark(self) -> Benchmark:
        return self.inspected.benchmark

    @property
    def is_open(self) -> bool:
        return not self.evidence.done and not self.broken

    def prospect(self) -> Prospect:
        """How sure it is that head is slower, by its pairs, or by its first calls before those."""
        suspicion = self.evidence.suspicion()
        if math.isnan(suspicion):
            base_s = self.inspected.base.seconds
            head_s = self.inspected.head.seconds
            suspicion = math.log(head_s / base_s) / _FIRST_CALLS_SD if base_s and head_s else 0.0
        return Prospect(self.benchmark.row, suspicion, self.pair_s * self.evidence.pairs_left())

    def so_far(self) -> Timed:
        return Timed(
            self.inspected,
            evidence=self.evidence,
            seconds={name: tuple(taken) for name, taken in self.seconds.items()},
            shared=self.shared,
            broken=self.broken,
            causes=self.causes,
        )


@dataclass
class Session:
    """The paired timing of one run.

    Attributes:
        sides: the two commits.
        rules: they say how long to time and how much error is allowed.
        core: the core that single-core benchmarks are pinned to; None if pinning isn't possible.
        rng: it draws every random order.
        progress: the rows so far, and when timing ends.
        launched: how many pairs were launched.
    """

    sides: Sides
    rules: Rules
    core: int | None
    rng: random.Random
    progress: Progress
    launched: int = 0

    def run(self, rows: Sequence[Inspected], num_tests: int) -> list[Timed]:
        """Relaunch pairs until every row is decided or has no pairs left, or the time is spent.

        Args:
            rows: the rows to time.
            num_tests: the number of tests that share the error.
        """
        timed = [self._opened(row, num_tests) for row in rows]
        while not self._is_over() and (left := [row for row in timed if row.is_open]):
            self.launched += 1
            self.progress.say(
                f"pair {self.launched}: {len(left)} of {len(rows)} benchmarks undecided"
            )
            left_s = self.progress.deadline - time.monotonic()
            names = affordable([row.prospect() for row in left], left_s)
            chosen = [row for row in left if row.benchmark.row in names]
            with contextlib.suppress(TimeSpentError):
                self._run_pair(chosen)
            self.progress.keep([row.so_far() for row in chosen])
        for row in timed:
            if row.is_open:
                row.evidence.end()
        found = [row.so_far() for row in timed]
        self.progress.keep(found)
        return found

    def _opened(self, row: Inspected, num_tests: int) -> _Open:
        first_s = sum(side.seconds or 0.0 for side in (row.base, row.head))
        evidence = Evidence(Plan.make(self.rules.limits_of(row.name), num_tests))
        # The seconds of a pair are an estimate until one has been timed.
        opened = _Open(row, evidence, self.rules.timing.pair_s + first_s)
        before = self.progress.rows.get(row.name)
        for pair in self.progress.pairs.get(row.name, ()):
            if not evidence.done:
                evidence.add(pair)
        if before is not None:
            opened.seconds = {name: [*before.seconds.get(name, ())] for name in SIDES}
            opened.shared = before.shared
            opened.broken = dict(before.broken)
            opened.causes = before.causes
        return opened

    def _run_pair(self, rows: Sequence[_Open]) -> None:
        """Launch one pinned pair, and an unpinned one for the benchmarks of several cores."""
        # Both sides of a pair hash alike, so they iterate over sets in the same order. Pairs hash
        # differently, so that no verdict rests on one order.
        hash_seed = self.rng.randrange(1 << 32)
        many = [row for row in rows if self.rules.cores_of(row.benchmark.row) > 1]
        single = [row for row in rows if row not in many]
        for group, core in ((single, self.core), (many, None)):
            self.rng.shuffle(group)
            # Both sides are sampled on `core`. Which of them is also prepared there is drawn at
            # random, because memory stays near the core that first touches it.
            first, second = self.rng.sample([core, machine.other_core(core)], 2)
            place = WorkerPool(
                self.sides,
                first,
                head_core=second,
                hash_seed=hash_seed,
                deadline=self.progress.deadline,
            )
            with place as pool:
                for row in group:
                    if self._is_over():
                        break
                    start = time.monotonic()
                    self._time_row(row, pool, core)
                    row.pair_s = time.monotonic() - start
            for row in group:
                # A failure during the timing says more than an escaped child, so it wins.
                row.broken = {**pool.escapes(row.benchmark.row), **row.broken}

    def _time_row(self, row: _Open, pool: WorkerPool, core: int | None) -> None:
        try:
            samples = self._sample(row, pool, core)
        except _BrokenError as error:
            reasons = {side: f"while it was timed: {why}" for side, why in error.reasons.items()}
            row.broken |= reasons
            for side, silent_s in error.silent_s.items():
                run = dataclasses.replace(row.inspected.sides[side], silent_s=silent_s)
                row.inspected = row.inspected.with_side(side, run)
            if not error.alive:
                pool.close_all()  # a worker is never replaced alone, because a pair launches both
                return
        else:
            # A call shorter than a tick of its clock takes 0 s, which has no ratio.
            log_ratios = [math.log(head / base) for base, head in samples if base > 0 and head > 0]
            if log_ratios:
                row.evidence.add(statistics.median(log_ratios))
        self._release(row, pool)

    def _release(self, row: _Open, pool: WorkerPool) -> None:
        request = protocol.Release(*row.benchmark.target)
        pools = dict.fromkeys(pool.live, pool)
        for name, reply in ask_sides(pools, request, row.benchmark.timeout_s).items():
            if isinstance(reply, WorkerError):
                row.broken.setdefault(name, f"its teardown failed: {reply}")
                if not reply.alive:
                    pool.close_all()

    def _sample(self, row: _Open, pool: WorkerPool, core: int | None) -> list[tuple[float, float]]:
        """Return the seconds of one call on base and head, for each alternation."""
        ways, alone_s = self._make_ready(row, pool, core)
        at_once: list[tuple[float, float]] = []
        in_turn: list[tuple[float, float]] = []
        if ways.shared:
            at_once = self._alternate(row, pool, core, ways, at_once=True)
        if not at_once or are_crowded(at_once, alone_s):
            in_turn = self._alternate(row, pool, core, ways, at_once=False)
            alone_s = medians(in_turn)
        # If the calls seemed crowded, they are compared again with `in_turn`, because the earlier
        # single call may have been a quick outlier.
        shared = bool(at_once) and not are_crowded(at_once, alone_s)
        row.shared |= shared
        # Reports and budgets use the seconds of calls that had a core to themselves.
        for name, taken in alone_s.items():
            row.seconds[name].append(taken)
        return at_once if shared else in_turn

    def _alternate(
        self, row: _Open, pool: WorkerPool, core: int | None, ways: Ways, *, at_once: bool
    ) -> list[tuple[float, float]]:
        way = ways.first if at_once else ways.in_turn
        target = row.benchmark.target
        request = protocol.Sample(*target, calls=way.calls, own_time=ways.own_time, core=core)
        samples = []
        for _ in range(way.samples):
            replies = self._ask(row, pool, request, at_once=at_once)
            samples.append((replies["base"].seconds, replies["head"].seconds))
        return samples

    def _make_ready(
        self, row: _Open, pool: WorkerPool, core: int | None
    ) -> tuple[Ways, Mapping[str, float]]:
        """Prepare a row on both sides at once, each on a core of its own.

        Return the ways to sample it, and the seconds of a call that did not share its core.
        """
        target = row.benchmark.target
        timing = self.rules.timing
        if row.ways is not None:
            calls = row.ways.first.calls
            prepare = protocol.Prepare(*target, calls=calls, own_time=row.ways.own_time)
            ready = self._ask(row, pool, prepare)
            return row.ways, {side: reply.seconds for side, reply in ready.items()}
        found = self._ask(row, pool, protocol.Calibrate(*target, target_s=timing.sample_s))
        has_two_cores = core is not None and pool.cores["base"] != pool.cores["head"]
        row.ways = choose_ways(
            list(found.values()), timing, row.benchmark.timeout_s, has_two_cores=has_two_cores
        )
        return row.ways, {side: reply.seconds for side, reply in found.items()}

    def _ask(
        self,
        row: _Open,
        pool: WorkerPool,
        request: protocol.Request[R | protocol.Skipped],
        *,
        at_once: bool = True,
    ) -> dict[str, R]:
        """Send both sides the same request, in an order drawn anew, and return their replies.

        Raises:
            _BrokenError: a side failed, or is skipped now.
        """
        order: list[Side] = self.rng.sample([self.sides.base, self.sides.head], 2)
        replies = ask_sides(
            dict.fromkeys(order, pool),
            request,
            row.benchmark.timeout_s,
            at_once=at_once,
            stop_at_failure=not at_once,
        )
        fit: dict[str, R] = {}
        broken = _BrokenError({}, alive=True)
        for name, reply in replies.items():
            if isinstance(reply, WorkerError):
                broken.reasons[name] = str(reply)
                broken.alive &= reply.alive
                broken.silent_s[name] = reply.silent_s
            elif isinstance(reply, protocol.Skipped):
                broken.reasons[name] = f"{SKIPPED_NOW}: {reply.reason}"
            else:
                fit[name] = reply
        if broken.reasons:
            raise broken
        return fit

    def _is_over(self) -> bool:
        return time.monotonic() >= self.progress.deadline
