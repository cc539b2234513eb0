"""Paired timing: two live workers on the same core, called in turn, in an order drawn anew each time.

The relaunched pair is the unit of evidence (evidence.py says why). All benchmarks that are still open share the launch
of a pair; inside it each is made ready on both sides, sampled in alternation and forgotten before the next.
"""

import math
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ci.channel import WorkerError
from ci.evidence import Evidence, Plan
from ci.inspection import Crew, Say, note_strays
from ci.rows import Row
from ci.rules import Rules
from ci.sides import Side, Sides


@dataclass
class _BrokenSideError(Exception):
    """One side failed while a row was timed."""

    side: str
    reason: str
    alive: bool


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
    calls: dict[str, int] = field(default_factory=dict)
    alternations: dict[str, int] = field(default_factory=dict)
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

    def _run_pair(self, rows: list[Row]) -> None:
        """Launch one pair, pinned and, for benchmarks of several cores, one that is free."""
        hash_seed = self.rng.randrange(1 << 32)
        many = [row for row in rows if self.rules.cores_of(row.name) > 1]
        for group, core in (([row for row in rows if row not in many], self.core), (many, None)):
            self.rng.shuffle(group)
            with Crew(self.sides, core, hash_seed=hash_seed) as crew:
                for row in group:
                    if self._is_over():
                        break
                    self._time_row(row, crew)
            for row in group:
                note_strays(row, crew)

    def _time_row(self, row: Row, crew: Crew) -> None:
        try:
            pair = self._sample_alternately(row, crew)
        except _BrokenSideError as broken:
            row.problems[broken.side] = f"while it was timed: {broken.reason}"
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
        for side in (self.sides.base, self.sides.head):
            try:
                if side.name in crew.live:
                    crew.ask(side, "release", row.benchmark.timeout_s, row=row.name)
            except WorkerError as error:
                row.problems.setdefault(side.name, f"its teardown failed: {error}")
                if not error.alive:
                    crew.close_all()

    def _sample_alternately(self, row: Row, crew: Crew) -> list[tuple[float, float]]:
        """Return the seconds of a call on base and head, once per alternation."""
        self._make_ready(row, crew)
        samples = []
        for _ in range(self.alternations[row.name]):
            taken = {
                side.name: self._ask(row, crew, side, "sample", calls=self.calls[row.name]) for side in self._order()
            }
            samples.append((taken["base"], taken["head"]))
        return samples

    def _make_ready(self, row: Row, crew: Crew) -> None:
        if row.name in self.calls:
            for side in self._order():
                self._ask(row, crew, side, "prepare", calls=self.calls[row.name])
            return
        timing = self.rules.timing
        found = []
        for side in self._order():
            self._ask(row, crew, side, "calibrate", target_s=timing.sample_s)
            found.append(self._last)
        # The slower side decides, so that a collapse costs no more time than it must.
        calls = self.calls[row.name] = min(each["calls"] for each in found)
        # With the set-up that asv repeats before each call.
        samples_s = sum(each["wall_s"] / each["calls"] * calls for each in found)
        wanted = round(timing.pair_s / max(samples_s, 1e-6))
        self.alternations[row.name] = max(timing.min_alternations, min(timing.max_alternations, wanted))

    def _ask(self, row: Row, crew: Crew, side: Side, do: str, **request: float) -> float:
        each = row.benchmark
        try:
            self._last = crew.ask(side, do, each.timeout_s, row=each.row, name=each.name, index=each.index, **request)
        except WorkerError as error:
            raise _BrokenSideError(side.name, str(error), error.alive) from None
        if self._last.get("skipped"):
            raise _BrokenSideError(side.name, "it asks to be skipped now, and did not before", alive=True)
        return float(self._last["seconds"])

    def _order(self) -> list[Side]:
        return self.rng.sample([self.sides.base, self.sides.head], 2)

    def _is_over(self) -> bool:
        return time.monotonic() >= self.deadline


def _is_open(row: Row) -> bool:
    return row.evidence is not None and not row.evidence.done and not row.problems
