"""What the gate knows of one benchmark. Each stage hands on a `Row` with more of it filled in.

1. discovery: the benchmark, and which suite has it
2. inspection: its first run on both sides, and the metrics that changed
3. pairing: its paired timing
4. explanation: why it is slower

The verdict makes a `Judged` of it.
"""

import dataclasses
import enum
import itertools
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from perfgate.config import Accepted
from perfgate.hlo import Program
from perfgate.process.protocol import FirstRun, Footprint
from perfgate.stats.evidence import Evidence

SIDES = ("base", "head")
MODULE = "module"  # the kind of a row for a module that can't be imported


class Outcome(enum.IntEnum):
    """The effect of a row on the exit code, the worst last."""

    NEUTRAL = 0
    PASSED = 1
    OPEN = 2  # undecided, and yet it stops no run
    WARNED = 3
    UNDECIDED = 4
    UNMEASURED = 5
    FAILED = 6


@dataclass(frozen=True)
class Change:
    """One metric on both sides, and the rules' word for its change.

    `rounds` holds base and head of each time that fresh processes measured it again. `allowed` is
    the absolute change that passes.
    """

    metric: str
    base: float
    head: float
    word: str
    unit: str = ""
    accepted: Accepted | None = None
    rounds: tuple[tuple[float, float], ...] = ()
    allowed: float = 0.0

    @property
    def ratio(self) -> float:
        """Head over base."""
        if self.base:
            return self.head / self.base
        return math.inf if self.head else 1.0

    @property
    def factor(self) -> float:
        """The larger value over the smaller."""
        return max(self.ratio, 1 / self.ratio if self.ratio else math.inf)


@dataclass(frozen=True)
class Benchmark:
    """One benchmark with one set of parameters, as discovery finds it.

    Attributes:
        row: `name(parameters)`, unique in a suite.
        name: asv's name.
        index: the number of its parameters in asv's order; None where it has none.
        kind: `time`, `timeraw`, `memory`, `peakmemory`, or what a track_ benchmark calls itself.
        timeout_s: seconds it may take.
        unit: the unit of its value.
        is_unchanged: whether the base's suite has it with the same code.
        own_index: the number of its parameters in the base's own suite.
    """

    row: str
    name: str
    index: int | None
    kind: str
    timeout_s: float
    unit: str = ""
    is_unchanged: bool = False
    own_index: int | None = None

    @property
    def is_timed(self) -> bool:
        """Whether its value is a time."""
        return self.kind in ("time", "timeraw")

    @property
    def metric(self) -> str:
        """The metric in gate.toml that judges its value."""
        if self.is_timed:
            return "time"
        return self.kind if self.kind in ("memory", "peakmemory") else "track"

    @property
    def target(self) -> tuple[str, str, int | None]:
        """The first fields of every request about it; see `process.protocol.Target`."""
        return self.row, self.name, self.index


@dataclass(frozen=True)
class SideRun:
    """The result of one side's first run of a benchmark. It is empty if the benchmark was not run.

    Attributes:
        ran: what the worker replied.
        program: the compiled program that its class offers.
        skipped: why the benchmark is skipped on this side, maybe empty; None if it is not.
        problem: why it could not be measured.
        by_runner: whether the problem is of what runs the benchmark, such as pytest.
        timed_out: whether the problem is that it gave no answer in time.
    """

    ran: FirstRun | None = None
    program: Program | None = None
    skipped: str | None = None
    problem: str = ""
    by_runner: bool = False
    timed_out: bool = False

    @property
    def seconds(self) -> float | None:
        """Seconds of the quickest of its first calls."""
        return self.ran.seconds if self.ran else None

    @property
    def footprint(self) -> Footprint | None:
        """The part of its checkout that it used; None if unknown."""
        return self.ran.footprint if self.ran else None

    @property
    def recompilations(self) -> int:
        """How many programs its second call compiled."""
        return int(self.ran.numbers.get("second_call_compilations", 0)) if self.ran else 0


@dataclass(frozen=True)
class Row:
    """A benchmark that either side's suite has, and what has been measured of it so far.

    Attributes:
        state: whether both suites have it, or only one.
        not_reached: whether the run ended before it was run.
        looked_s: the seconds of its first runs, of both sides at once.
        base: the base's first run.
        head: head's first run.
        changes: the changes of every metric that both sides have, likely causes first.
        same: what is surely the same on both sides, so that its time is the same, too.
        evidence: the evidence of its launches; None if it was not to be timed.
        timed_s: the seconds of one call, by side, one number for each quad.
        is_hot: whether its calls only compute, on one core.
        causes: why it takes longer, if it does.
    """

    benchmark: Benchmark
    state: Literal["both", "new", "gone"] = "both"
    not_reached: bool = False
    looked_s: float = 0.0
    base: SideRun = SideRun()
    head: SideRun = SideRun()
    changes: tuple[Change, ...] = ()
    same: Literal["", "code", "program"] = ""
    evidence: Evidence | None = None
    timed_s: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    is_hot: bool = False
    causes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The row's unique name."""
        return self.benchmark.row

    @property
    def sides(self) -> dict[str, SideRun]:
        """Both sides by name."""
        return {"base": self.base, "head": self.head}

    @property
    def problems(self) -> dict[str, str]:
        """Why a side could not be measured, by side."""
        return {name: side.problem for name, side in self.sides.items() if side.problem}

    @property
    def skipped(self) -> dict[str, str]:
        """The sides on which it is skipped, with the reason."""
        sides = self.sides.items()
        return {name: side.skipped for name, side in sides if side.skipped is not None}

    @property
    def programs(self) -> dict[str, Program]:
        """The compiled programs that the suite offers, by side."""
        return {name: side.program for name, side in self.sides.items() if side.program}

    @property
    def is_comparable(self) -> bool:
        """Whether both sides have run it and nothing has gone wrong so far."""
        was_run = self.state == "both" and not self.not_reached
        return was_run and not self.problems and not self.skipped

    @property
    def is_to_time(self) -> bool:
        """Whether it takes timing to tell that head is not slower."""
        return self.benchmark.is_timed and self.is_comparable and not self.same

    @property
    def has_same_program(self) -> bool:
        """Whether both sides compile the same program, and as often."""
        base, head = self.base.program, self.head.program
        is_same = base is not None and head is not None and base.identity == head.identity
        return is_same and self.base.recompilations == self.head.recompilations

    @property
    def hangs_on_head(self) -> bool:
        """Whether it ends on the base, but runs into its timeout on head."""
        return self.head.timed_out and self.base.ran is not None and not self.base.problem

    @property
    def tracks_nothing(self) -> bool:
        """Whether its tracked value is 0 in every run of both sides, which hides any change."""
        tracked = [each for each in self.changes if each.metric == "track"]
        values = [(each.base, each.head, *itertools.chain(*each.rounds)) for each in tracked]
        return bool(values) and not any(map(any, values))

    def seconds_of(self, side: str) -> float | None:
        """Return the seconds of one call, from its launches if there were any."""
        taken = self.timed_s.get(side)
        return statistics.median(taken) if taken else self.sides[side].seconds

    @property
    def value_on_head(self) -> float | None:
        """What head alone measured: the seconds of one call, or the value; None if unknown."""
        ran = self.head.ran
        return ran and (ran.seconds if self.benchmark.is_timed else ran.value)

    def with_problems(self, problems: Mapping[str, str]) -> Self:
        """Return a copy with more problems. A side keeps the problem that it already has."""
        sides = {
            name: dataclasses.replace(side, problem=side.problem or problems.get(name, ""))
            for name, side in self.sides.items()
        }
        return dataclasses.replace(self, **sides)


@dataclass(frozen=True)
class Judged:
    """A row with its verdict.

    Attributes:
        row: what it rests on.
        verdict: in words.
        outcome: what it means for the exit code.
        reasons: a sentence each.
        failed: the metrics to accept if it is to pass, each cost without those that stand for it.
    """

    row: Row
    verdict: str
    outcome: Outcome
    reasons: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The row's unique name."""
        return self.row.name
