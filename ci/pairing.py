"""Paired timing: two live workers on the same core, called in turn, in an order drawn anew each time.

The relaunched pair is the unit of evidence (evidence.py says why). All benchmarks that are still open share the launch
of a pair; inside it each is made ready on both sides, sampled in alternation and forgotten before the next. Making
ready takes longer than sampling, so both sides do it at once, each on a core of its own.

Neighbours of a virtual machine come and go within seconds, so that long calls in turn meet different ones: measured, a
second of work scatters by 4% where a tenth scatters by 1%. So a long call that does nothing but work runs on both sides
at once: they share the core in the kernel's slices of milliseconds, and each is charged its own processor time.
"""

import math
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ci import machine
from ci.channel import WorkerError
from ci.evidence import Evidence, Plan
from ci.inspection import Crew, Say, ask_together, note_strays
from ci.rows import Row
from ci.rules import Rules
from ci.sides import Side, Sides

_CROWDED = 1.25  # times the seconds alone: the sides push each other out of a cache, which is not what is asked


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
        shared: whether both sides are sampled at once.
    """

    calls: int
    samples: int
    shared: bool


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
    ways: dict[str, _Way] = field(default_factory=dict)
    launched: int = 0

    def run(self, rows: Sequence[Row]) -> None:
        """Relaunch pairs until every row is decided, has used its pairs up, or the budget is spent."""
        plan = Plan.make(self.rules.verdict.limits, len(rows))
        for row in rows:
            row.evidence = Evidence(plan)
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
            # Which side is made ready where it is sampled is drawn too: what it touches first stays near that core.
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
            pair = self._sample_alternately(row, crew, core)
        except _BrokenError as broken:
            row.problems |= {side: f"while it was timed: {reason}" for side, reason in broken.reasons.items()}
            if not broken.alive:
                crew.close_all()  # a pair is relaunched whole, or not at all
                return
        else:
            log_ratios = [math.log(head / base) for base, head in pair if base > 0 and head > 0]
            if row.evidence is not None and log_ratios:
                row.evidence.add(statistics.median(log_ratios))
            row.seconds["base"].append(statistics.median(base for base, _ in pair))
            row.seconds["head"].append(statistics.median(head for _, head in pair))
        self._release(row, crew)

    def _release(self, row: Row, crew: Crew) -> None:
        live = [side for side in (self.sides.base, self.sides.head) if side.name in crew.live]
        for name, reply in ask_together(row.benchmark, dict.fromkeys(live, crew), "release").items():
            if isinstance(reply, WorkerError):
                row.problems.setdefault(name, f"its teardown failed: {reply}")
                if not reply.alive:
                    crew.close_all()

    def _sample_alternately(self, row: Row, crew: Crew, core: int | None) -> list[tuple[float, float]]:
        """Return the seconds of a call on base and head, once per alternation."""
        way, alone_s = self._make_ready(row, crew, core)
        samples = self._samples(row, crew, core, way)
        if way.shared and any(
            statistics.median(of_side) > _CROWDED * alone_s[name]
            for name, of_side in zip(("base", "head"), zip(*samples, strict=True), strict=True)
        ):
            return self._samples(row, crew, core, self._in_turn(way))
        row.shared |= way.shared
        return samples

    def _samples(self, row: Row, crew: Crew, core: int | None, way: _Way) -> list[tuple[float, float]]:
        samples = []
        for _ in range(way.samples):
            order = self._order()
            replies: list[dict[str, Any]] = []
            for together in [order] if way.shared else [[side] for side in order]:
                replies += self._ask(together, row, crew, "sample", calls=way.calls, core=core, shared=way.shared)
            taken = {side.name: reply["seconds"] for side, reply in zip(order, replies, strict=True)}
            samples.append((taken["base"], taken["head"]))
        return samples

    def _make_ready(self, row: Row, crew: Crew, core: int | None) -> tuple[_Way, dict[str, float]]:
        """Prepare a row on both sides at once, each on a core of its own.

        Return how to sample it, and the seconds of a call that did not share its core.
        """
        timing, order = self.rules.timing, self._order()
        if row.name in self.ways:
            found = self._ask(order, row, crew, "prepare", calls=self.ways[row.name].calls)
        else:
            found = self._ask(order, row, crew, "calibrate", target_s=timing.sample_s)
            # The slower side decides, so that a collapse costs no more time than it must.
            calls = min(each["calls"] for each in found)
            # With the set-up that asv repeats before each call.
            both_s = sum(each["wall_s"] / each["calls"] * calls for each in found)
            longest_s = row.benchmark.timeout_s / 4  # what is shared takes twice as long
            shared = (
                core is not None
                and crew.cores["base"] != crew.cores["head"]
                and all(each["is_work"] and timing.shared_s <= each["seconds"] * calls <= longest_s for each in found)
            )
            samples = max(1, min(timing.max_alternations, round(timing.pair_s / max(both_s, 1e-6))))
            way = _Way(calls, samples, shared)
            self.ways[row.name] = way if shared else self._in_turn(way)
        return self.ways[row.name], {side.name: each["seconds"] for side, each in zip(order, found, strict=True)}

    def _in_turn(self, way: _Way) -> _Way:
        return _Way(way.calls, max(self.rules.timing.min_alternations, way.samples), shared=False)

    def _ask(
        self, together: Sequence[Side], row: Row, crew: Crew, do: str, **request: float | None
    ) -> list[dict[str, Any]]:
        """Ask these sides the same, and return their replies; a sample says on which core it is to be taken."""
        replies, broken = [], _BrokenError({}, alive=True)
        for name, reply in ask_together(row.benchmark, dict.fromkeys(together, crew), do, **request).items():
            if isinstance(reply, WorkerError):
                broken.reasons[name] = str(reply)
                broken.alive &= reply.alive
            elif reply.get("skipped"):
                broken.reasons[name] = "it asks to be skipped now, and did not before"
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
