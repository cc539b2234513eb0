"""Paired timing: two live workers share one core, by the kernel's slices or in turn.

The relaunched pair is the unit of evidence (evidence.py says why). All benchmarks that are still
open share the launch of a pair; inside it each is made ready on both sides, sampled in alternation
and forgotten before the next. Making ready takes longer than sampling, so both sides do it at once,
each on a core of its own.

Neighbours of a virtual machine come and go within milliseconds to seconds, so that calls in turn
meet different ones: measured side by side, a program of JAX scatters by 0.6 to 1.3% from pair to
pair in turn, a second of work by 4%, an import by 12%. So calls that do nothing but work run on
both sides at once: the kernel gives them the core in turn, in slices of milliseconds, and each is
charged its own time; 0.2 to 0.8% is left, most of it a launch's own luck. What waits, runs
elsewhere or is too short to share a core is called in turn, in an order drawn anew each time.
"""

import math
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from perfgate import machine
from perfgate.config import Rules
from perfgate.measure.inspection import Crew, Say, ask_together, note_strays
from perfgate.process.channel import WorkerError
from perfgate.source.sides import Side, Sides
from perfgate.stats.evidence import Evidence, Plan
from perfgate.verdict import SKIPPED_NOW, Row

# times the seconds alone: the sides push each other out of a cache, which is not what is asked
_CROWDED = 1.25
# of `shared_s`: the least sample where an author has fixed the calls; some slices of the kernel's
_FIXED = 0.25
# times the other side's seconds at most: a collapse is plain from one turn, and each takes so long
_COMPARABLE = 10


@dataclass
class _BrokenError(Exception):
    """A side, or both, failed while a row was timed; `alive` is False where a worker is lost."""

    reasons: dict[str, str]
    alive: bool


@dataclass(frozen=True)
class _Way:
    """How a row is sampled in each pair.

    Attributes:
        calls: calls in one sample.
        samples: samples of each side.
        at_once: whether both sides are sampled at once.
        own_time: whether each is charged its own time alone, and not that of neighbours on its
            core.
    """

    calls: int
    samples: int
    at_once: bool
    own_time: bool


@dataclass(frozen=True)
class _Ways:
    """How to sample a row: at once where it may share its core, and in turn where it may not or that costs too much."""

    in_turn: _Way
    shared: _Way | None = None


@dataclass
class Session:
    """The paired timing of one run.

    Attributes:
        sides: what is compared.
        rules: how long, and how sure.
        core: the core of single-core benchmarks; None where pinning isn't possible.
        deadline: when the budget is spent, on the clock of `time.monotonic`.
        rng: draws every order.
    """

    sides: Sides
    rules: Rules
    core: int | None
    deadline: float
    rng: random.Random
    say: Say
    ways: dict[str, _Ways] = field(default_factory=dict)
    launched: int = 0

    def run(self, rows: Sequence[Row]) -> None:
        """Relaunch pairs until every row is decided, has used its pairs up, or the budget is spent."""
        for row in rows:
            row.evidence = Evidence(Plan.make(self.rules.limits_of(row.name), len(rows)))
        while not self._is_over() and (left := [row for row in rows if _is_open(row)]):
            self.launched += 1
            self.say(f"pair {self.launched}: {len(left)} of {len(rows)} benchmarks undecided")
            self._run_pair(left)
        for row in rows:
            if row.evidence is not None and not row.problems:
                row.evidence.end()

    def _run_pair(self, rows: list[Row]) -> None:
        """Launch one pair, pinned and, for benchmarks of several cores, one that is free."""
        hash_seed = self.rng.randrange(1 << 32)
        many = [row for row in rows if self.rules.cores_of(row.name) > 1]
        for group, core in (([row for row in rows if row not in many], self.core), (many, None)):
            self.rng.shuffle(group)
            # Which side is made ready where it is sampled is drawn too: what it touches first stays
            # near that core.
            first, second = self.rng.sample([core, machine.other_core(core)], 2)
            with Crew(self.sides, first, head_core=second, hash_seed=hash_seed) as crew:
                for row in group:
                    if self._is_over():
                        break
                    self._time_row(row, crew, core)
            for row in group:
                note_strays(row, crew)

    def _time_row(self, row: Row, crew: Crew, core: int | None) -> None:
        try:
            samples = self._sample_alternately(row, crew, core)
        except _BrokenError as broken:
            row.problems |= {
                side: f"while it was timed: {reason}" for side, reason in broken.reasons.items()
            }
            if not broken.alive:
                crew.close_all()  # a pair is relaunched whole, or not at all
                return
        else:
            log_ratios = [math.log(head / base) for base, head in samples if base > 0 and head > 0]
            if row.evidence is not None and log_ratios:
                row.evidence.add(statistics.median(log_ratios))
        self._release(row, crew)

    def _release(self, row: Row, crew: Crew) -> None:
        live = [side for side in (self.sides.base, self.sides.head) if side.name in crew.live]
        for name, reply in ask_together(
            row.benchmark, dict.fromkeys(live, crew), "release"
        ).items():
            if isinstance(reply, WorkerError):
                row.problems.setdefault(name, f"its teardown failed: {reply}")
                if not reply.alive:
                    crew.close_all()

    def _sample_alternately(
        self, row: Row, crew: Crew, core: int | None
    ) -> list[tuple[float, float]]:
        """Return the seconds of a call on base and head, once per alternation."""
        ways, alone_s = self._make_ready(row, crew, core)
        at_once = self._samples(row, crew, core, ways.shared) if ways.shared else []
        in_turn = []
        if not at_once or _are_crowded(at_once, alone_s):
            in_turn = self._samples(row, crew, core, ways.in_turn)
            alone_s = _medians(in_turn)
        # Asked again where it seemed so: the one call alone that came before may have been a lucky
        # one.
        shared = bool(at_once) and not _are_crowded(at_once, alone_s)
        row.shared |= shared
        # What a call takes is told, and held against budgets, of one that had its core for itself.
        for name, taken in alone_s.items():
            row.seconds[name].append(taken)
        return at_once if shared else in_turn

    def _samples(
        self, row: Row, crew: Crew, core: int | None, way: _Way
    ) -> list[tuple[float, float]]:
        samples = []
        for _ in range(way.samples):
            order = self._order()
            replies: list[dict[str, Any]] = []
            for together in [order] if way.at_once else [[side] for side in order]:
                replies += self._ask(
                    together, row, crew, "sample", calls=way.calls, core=core, own_time=way.own_time
                )
            taken = {
                side.name: reply["seconds"] for side, reply in zip(order, replies, strict=True)
            }
            samples.append((taken["base"], taken["head"]))
        return samples

    def _make_ready(self, row: Row, crew: Crew, core: int | None) -> tuple[_Ways, dict[str, float]]:
        """Prepare a row on both sides at once, each on a core of its own.

        Return how to sample it, and the seconds of a call that did not share its core.
        """
        timing, order = self.rules.timing, self._order()
        if row.name in self.ways:
            way = self.ways[row.name].shared or self.ways[row.name].in_turn
            found = self._ask(order, row, crew, "prepare", calls=way.calls, own_time=way.own_time)
        else:
            found = self._ask(order, row, crew, "calibrate", target_s=timing.sample_s)
            self.ways[row.name] = self._ways(row, found, crew, core)
        return self.ways[row.name], {
            side.name: each["seconds"] for side, each in zip(order, found, strict=True)
        }

    def _ways(
        self, row: Row, found: Sequence[dict[str, Any]], crew: Crew, core: int | None
    ) -> _Ways:
        """Choose how to sample a row from what its calls were found to be on both sides."""
        timing = self.rules.timing
        # The slower side decides, so that a collapse costs no more time than it must.
        calls = min(each["calls"] for each in found)
        least_s, most_s = (pick(each["seconds"] for each in found) for pick in (min, max))
        comparable = most_s <= _COMPARABLE * least_s
        turns = self._alternations(found, calls, timing.min_alternations if comparable else 1)
        fixed = any(each["fixed"] for each in found)
        enough = calls if fixed else math.ceil(timing.shared_s / max(least_s, 1e-9))
        may_share = (
            timing.shared_s > 0
            and core is not None
            and crew.cores["base"] != crew.cores["head"]
            and all(each["is_work"] for each in found)
            and least_s * enough >= _FIXED * timing.shared_s
            and comparable
            and _wall_s(found, enough) <= row.benchmark.timeout_s / 2
        )
        in_turn = _Way(calls, turns, at_once=False, own_time=may_share)
        shared = _Way(enough, self._alternations(found, enough, 1), at_once=True, own_time=True)
        return _Ways(in_turn, shared if may_share else None)

    def _alternations(self, found: Sequence[dict[str, Any]], calls: int, least: int) -> int:
        """Return how many samples of so many calls a pair holds, at least `least`."""
        timing = self.rules.timing
        return max(
            least,
            min(timing.max_alternations, round(timing.pair_s / max(_wall_s(found, calls), 1e-6))),
        )

    def _ask(
        self, together: Sequence[Side], row: Row, crew: Crew, do: str, **request: float | None
    ) -> list[dict[str, Any]]:
        """Ask these sides the same, and return their replies; a sample says on which core it is to be taken."""
        replies, broken = [], _BrokenError({}, alive=True)
        for name, reply in ask_together(
            row.benchmark, dict.fromkeys(together, crew), do, **request
        ).items():
            if isinstance(reply, WorkerError):
                broken.reasons[name] = str(reply)
                broken.alive &= reply.alive
            elif reply.get("skipped"):
                broken.reasons[name] = SKIPPED_NOW
            else:
                replies.append(reply)
        if broken.reasons:
            raise broken
        return replies

    def _order(self) -> list[Side]:
        return self.rng.sample([self.sides.base, self.sides.head], 2)

    def _is_over(self) -> bool:
        return time.monotonic() >= self.deadline


def _is_open(row: Row) -> bool:
    return row.evidence is not None and not row.evidence.done and not row.problems


def _wall_s(found: Sequence[dict[str, Any]], calls: int) -> float:
    """Return the seconds that so many calls take on both sides, with the set-up that asv repeats before each."""
    return sum(each["wall_s"] / each["calls"] * calls for each in found)


def _are_crowded(samples: Sequence[tuple[float, float]], alone_s: dict[str, float]) -> bool:
    """Tell whether calls of either side take much longer at once than alone."""
    return any(taken > _CROWDED * alone_s[name] for name, taken in _medians(samples).items())


def _medians(samples: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return the median seconds of each side."""
    bases, heads = zip(*samples, strict=True)
    return {"base": statistics.median(bases), "head": statistics.median(heads)}
