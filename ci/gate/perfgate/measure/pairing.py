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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from perfgate import machine
from perfgate.config import Timing
from perfgate.measure.progress import Run, say
from perfgate.measure.workers import (
    TimeSpentError,
    WorkerError,
    WorkerPool,
)
from perfgate.metrics import grown_counts
from perfgate.process import protocol
from perfgate.process.protocol import Calibration
from perfgate.rows import SIDES, Benchmark, Row
from perfgate.source.sides import Side
from perfgate.stats.evidence import Evidence, Plan, usual_pairs

R = TypeVar("R")
_FIRST_CALLS_SD = 0.1  # about how much the log ratio of first calls scatters
# If one side takes more than this many times as long as the other, one turn is enough to see it.
_COMPARABLE = 10
# If head runs into its timeout and its first calls took this many times as long, it is slower.
_HANGS = 2
# Calls at once that take more than this many times the seconds alone push each other out of a
# cache. Their times say nothing about the change.
_CROWDED = 1.25
# If the author has fixed the number of calls, a shared sample must last for this part of
# `shared_s`. That is a few of the kernel's time slices.
_FIXED = 0.25


class _BrokenError(Exception):
    """One or both sides failed while a row was timed; `errors` holds why, by side."""

    def __init__(self, errors: dict[str, WorkerError]):
        super().__init__()
        self.errors = errors


@dataclass(frozen=True)
class Way:
    """One way to sample a row in each pair.

    Attributes:
        calls: calls in one sample.
        samples: samples of each side.
        shared: whether both sides are sampled at once on one core, instead of in turn.
    """

    calls: int
    samples: int
    shared: bool = False


@dataclass
class Open:
    """A row while it is timed. `so_far` returns its result.

    Attributes:
        pair_s: roughly the seconds that it takes in each pair.
        has_grown: whether a count that stands for its time got worse.
        ways: the ways to sample it, the first choice first.
    """

    row: Row
    evidence: Evidence
    pair_s: float
    has_grown: bool = False
    ways: Sequence[Way] = ()
    timed_s: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in SIDES})

    @property
    def benchmark(self) -> Benchmark:
        return self.row.benchmark

    @property
    def is_open(self) -> bool:
        return not self.evidence.done and not self.row.problems

    @property
    def has_to_be_cleared(self) -> bool:
        """Whether a count that stands for its time got worse, and its pairs don't clear it yet."""
        _, _, high = self.evidence.ratio()
        return self.has_grown and high >= self.evidence.plan.suspect.limits.pass_ratio

    @property
    def suspicion(self) -> float:
        """How many standard errors head is slower, by its pairs.

        Before the first look its first calls may say more. A row that was begun is then not dropped
        because a pair or two look fast: these would be wasted.
        """
        base_s = self.row.base.seconds
        head_s = self.row.head.seconds
        by_calls = math.log(head_s / base_s) / _FIRST_CALLS_SD if base_s and head_s else 0.0
        by_pairs = self.evidence.suspicion()
        if self.evidence.num_pairs >= self.evidence.plan.suspect.looks[0]:
            return by_pairs
        return by_calls if math.isnan(by_pairs) else max(by_calls, by_pairs)

    def so_far(self) -> Row:
        timed_s = {name: tuple(taken) for name, taken in self.timed_s.items()}
        return dataclasses.replace(self.row, evidence=self.evidence, timed_s=timed_s)


def affordable(rows: Iterable[Open], left_s: float, usual: float) -> list[Open]:
    """Return the rows that can be decided in `left_s`, the most suspicious first.

    A row without pairs is taken to need `usual` pairs.

    Rows that have to be cleared come before all others. A few pairs for each row would decide none
    of them. At least one row is returned. The fewer rows share a launch, the more pairs they get.
    """
    chosen: list[Open] = []
    for each in sorted(rows, key=lambda each: (not each.has_to_be_cleared, -each.suspicion)):
        left_s -= each.pair_s * each.evidence.pairs_left(usual)
        if chosen and left_s < 0:
            break
        chosen.append(each)
    return chosen


@dataclass
class Session:
    """The paired timing of one run.

    Attributes:
        run: the run. Timing ends at the deadline of its progress.
        rng: it draws every random order.
        launched: how many pairs were launched.
    """

    run: Run
    rng: random.Random
    launched: int = 0

    def time(self, rows: Sequence[Row], num_tests: int) -> list[Row]:
        """Relaunch pairs until every row is decided or has no pairs left, or the time is spent.

        Args:
            rows: the rows to time.
            num_tests: the number of tests that share the error.
        """
        timed = [self._opened(row, num_tests) for row in rows]
        while not self._is_over() and (left := [row for row in timed if row.is_open]):
            self.launched += 1
            say(f"pair {self.launched}: {len(left)} of {len(rows)} benchmarks undecided")
            left_s = self.run.progress.deadline - time.monotonic()
            chosen = affordable(left, left_s, usual_pairs(row.evidence for row in timed))
            with contextlib.suppress(TimeSpentError):
                self._run_pair(chosen)
            self.run.progress.keep([row.so_far() for row in chosen])
        for row in timed:
            if row.is_open:
                row.evidence.end()
        found = [row.so_far() for row in timed]
        self.run.progress.keep(found)
        return found

    def _opened(self, row: Row, num_tests: int) -> Open:
        first_s = sum(side.seconds or 0.0 for side in (row.base, row.head))
        evidence = Evidence(Plan.make(self.run.rules.limits_of(row.name), num_tests))
        # Until a pair has been timed this is an estimate: preparing takes as long as sampling.
        pair_s = 2 * self.run.rules.timing.pair_s + first_s
        has_grown = bool(grown_counts(row, self.run.rules))
        return Open(row, evidence, pair_s, has_grown=has_grown)

    def _run_pair(self, rows: Sequence[Open]) -> None:
        """Launch one pinned pair, and an unpinned one for the benchmarks of several cores."""
        # Both sides of a pair hash alike, so they iterate over sets in the same order. Pairs hash
        # differently, so that no verdict rests on one order.
        hash_seed = self.rng.randrange(1 << 32)
        many = [row for row in rows if self.run.rules.cores_of(row.benchmark.row) > 1]
        single = [row for row in rows if row not in many]
        for group, core in ((single, self.run.core), (many, None)):
            self.rng.shuffle(group)
            # Both sides are sampled on `core`. Which of them is also prepared there is drawn at
            # random, because memory stays near the core that first touches it.
            first, second = self.rng.sample([core, machine.other_core(core)], 2)
            place = WorkerPool(
                self.run.sides,
                first,
                head_core=second,
                hash_seed=hash_seed,
                deadline=self.run.progress.deadline,
            )
            with place as pool:
                for row in group:
                    if self._is_over():
                        break
                    start = time.monotonic()
                    self._time_row(row, pool, core)
                    if row is not group[0]:  # the first row also waits for the workers to start
                        row.pair_s = time.monotonic() - start

    def _time_row(self, row: Open, pool: WorkerPool, core: int | None) -> None:
        try:
            samples = self._sample(row, pool, core)
        except _BrokenError as error:
            reasons = {side: f"while it was timed: {why}" for side, why in error.errors.items()}
            row.row = row.row.with_problems(reasons)
            timed_out = [side for side, why in error.errors.items() if why.timed_out]
            base_s = row.row.base.seconds
            head_s = row.row.head.seconds
            # Head's calls may last so long that only a few of them end in time.
            if timed_out == ["head"] and base_s and head_s and head_s > _HANGS * base_s:
                head = dataclasses.replace(row.row.head, timed_out=True)
                row.row = dataclasses.replace(row.row, head=head)
            if not all(why.alive for why in error.errors.values()):
                pool.close_all()  # a worker is never replaced alone, because a pair launches both
                return
        else:
            # A call shorter than a tick of its clock takes 0 s, which has no ratio.
            log_ratios = [math.log(head / base) for base, head in samples if base > 0 and head > 0]
            if log_ratios:
                row.evidence.add(statistics.median(log_ratios))
        self._release(row, pool)

    def _release(self, row: Open, pool: WorkerPool) -> None:
        request = protocol.Release(*row.benchmark.target)
        for name, reply in pool.ask_sides(pool.live, request, row.benchmark.timeout_s).items():
            if isinstance(reply, WorkerError):
                row.row = row.row.with_problems({name: f"its teardown failed: {reply}"})
                if not reply.alive:
                    pool.close_all()

    def _sample(self, row: Open, pool: WorkerPool, core: int | None) -> list[tuple[float, float]]:
        """Return the seconds of one call on base and head, for each alternation.

        Both sides prepare at once, each on a core of its own.
        """
        target = row.benchmark.target
        timing = self.run.rules.timing
        found = self._ask(row, pool, protocol.Calibrate(*target, target_s=timing.sample_s))
        if not row.ways:
            has_two_cores = core is not None and pool.cores["base"] != pool.cores["head"]
            row.ways = choose_ways(
                list(found.values()), timing, row.benchmark.timeout_s, has_two_cores=has_two_cores
            )
        # Reports and budgets use the seconds of calls that had a core to themselves.
        alone_s: Mapping[str, float] = {side: reply.seconds for side, reply in found.items()}
        samples: list[tuple[float, float]] = []
        shared = False
        for way in row.ways:
            request = protocol.Sample(
                *target, calls=way.calls, own_time=row.ways[0].shared, core=core
            )
            turns = [self._ask(row, pool, request, at_once=way.shared) for _ in range(way.samples)]
            samples = [(each["base"].seconds, each["head"].seconds) for each in turns]
            shared = way.shared and not are_crowded(samples, alone_s)
            if shared:
                break
            alone_s = medians(samples)
        row.row = dataclasses.replace(row.row, shared=row.row.shared or shared)
        for name, taken in alone_s.items():
            row.timed_s[name].append(taken)
        return samples

    def _ask(
        self,
        row: Open,
        pool: WorkerPool,
        request: protocol.Request[R],
        *,
        at_once: bool = True,
    ) -> dict[str, R]:
        """Send both sides the same request, in an order drawn anew, and return their replies.

        Raises:
            _BrokenError: a side failed.
        """
        order: list[Side] = self.rng.sample([self.run.sides.base, self.run.sides.head], 2)
        replies = pool.ask_sides(order, request, row.benchmark.timeout_s, at_once=at_once)
        if errors := {side: e for side, e in replies.items() if isinstance(e, WorkerError)}:
            raise _BrokenError(errors)
        return {side: e for side, e in replies.items() if not isinstance(e, WorkerError)}

    def _is_over(self) -> bool:
        return time.monotonic() >= self.run.progress.deadline


def choose_ways(
    found: Sequence[Calibration], timing: Timing, timeout_s: float, *, has_two_cores: bool
) -> list[Way]:
    """Choose how to sample a row from the calibration of its calls, the first choice first.

    Args:
        found: the calibration on each side.
        timing: how long a pair and a sample last.
        timeout_s: seconds that the benchmark may take.
        has_two_cores: whether the sides are pinned and prepared on cores of their own.
    """
    # The slower side decides how many calls a sample has, so that a large slowdown costs little
    # time.
    calls = min(each.calls for each in found)
    least_s = min(each.seconds for each in found)
    most_s = max(each.seconds for each in found)
    # If one side takes far longer, one turn is enough to see it, and more would take too long.
    is_comparable = most_s <= _COMPARABLE * least_s
    turns = _alternations(found, calls, timing, timing.min_alternations if is_comparable else 1)
    in_turn = Way(calls, turns)
    is_fixed = any(each.fixed for each in found)
    enough = calls if is_fixed else math.ceil(timing.shared_s / max(least_s, 1e-9))
    may_share = (
        timing.shared_s > 0
        and has_two_cores
        and all(each.is_work for each in found)
        and least_s * enough >= _FIXED * timing.shared_s
        and is_comparable
        and _wall_s(found, enough) <= timeout_s / 2
    )
    if not may_share:
        return [in_turn]
    return [Way(enough, _alternations(found, enough, timing, 1), shared=True), in_turn]


def _alternations(found: Sequence[Calibration], calls: int, timing: Timing, least: int) -> int:
    """Return how many samples of `calls` calls a pair holds, at least `least`."""
    wanted = round(timing.pair_s / max(_wall_s(found, calls), 1e-6))
    return max(least, min(timing.max_alternations, wanted))


def _wall_s(found: Sequence[Calibration], calls: int) -> float:
    """Return the seconds that `calls` calls take on both sides, including repeated setups."""
    return sum(each.wall_s / each.calls * calls for each in found)


def are_crowded(samples: Sequence[tuple[float, float]], alone_s: Mapping[str, float]) -> bool:
    """Tell whether either side's calls take much longer at once than alone."""
    return any(taken > _CROWDED * alone_s[name] for name, taken in medians(samples).items())


def medians(samples: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return the median seconds of each side."""
    bases, heads = zip(*samples, strict=True)
    return {"base": statistics.median(bases), "head": statistics.median(heads)}
