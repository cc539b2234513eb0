"""The values that the gate's stages hand on. Each is frozen and made from the one before it.

    Listed      a benchmark that either side's suite has
    Inspected   its first run on both sides, and the metrics that changed
    Timed       its paired timing, or why there was none
    Judged      its verdict, its effect on the exit code, and the reasons

A benchmark that is new, gone, skipped or broken goes through the same stages.
"""

import dataclasses
import enum
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from perfgate.config import Accepted
from perfgate.hlo import Program
from perfgate.process.protocol import FirstRun, Value
from perfgate.stats.evidence import Evidence

SIDES = ("base", "head")
MODULE = "module"  # the kind of a row for a module that can't be imported
# Equal programs do not mean equal work if the first calls of one side take longer than this many
# times those of the other.
_ALIKE = 1.25


class NotRun(enum.Enum):
    """Why the gate doesn't run a benchmark that both sides have. The report shows the value."""

    DOCUMENTATION = "only documentation differs, so it was not run"
    SAME_FILES = "the change alters no file that it used in an earlier run, so it was not run"


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
    """One metric on both sides, and the rules' word for its change."""

    metric: str
    base: float
    head: float
    word: str
    unit: str = ""
    accepted: Accepted | None = None

    @property
    def ratio(self) -> float:
        """Head over base."""
        if self.base:
            return self.head / self.base
        return math.inf if self.head else 1.0


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
        is_unchanged: whether head's suite still holds all of the base's suite, unedited.
    """

    row: str
    name: str
    index: int | None
    kind: str
    timeout_s: float
    unit: str = ""
    is_unchanged: bool = False

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
class Listed:
    """A benchmark that either side's suite has.

    Attributes:
        state: whether both suites have it, or only one.
        problem: why it can't be measured on head, if that is known already.
    """

    benchmark: Benchmark
    state: Literal["both", "new", "gone"] = "both"
    problem: str = ""

    @property
    def name(self) -> str:
        """The row's unique name."""
        return self.benchmark.row


@dataclass(frozen=True)
class SideRun:
    """The result of one side's first run of a benchmark. It is empty if the benchmark was not run.

    Attributes:
        ran: what the worker replied.
        program: the compiled program that its class offers.
        skipped: whether the benchmark is skipped on this side.
        problem: why it could not be measured.
        by_runner: whether the problem is of what runs the benchmark, such as pytest.
    """

    ran: FirstRun | Value | None = None
    program: Program | None = None
    skipped: bool = False
    problem: str = ""
    by_runner: bool = False

    @property
    def seconds(self) -> float | None:
        """Seconds of the quickest of its first calls."""
        return self.ran.seconds if isinstance(self.ran, FirstRun) else None

    @property
    def recompilations(self) -> int:
        """How many programs its second call compiled."""
        if not isinstance(self.ran, FirstRun):
            return 0
        return self.ran.second_call_compilations or 0


@dataclass(frozen=True)
class Inspected:
    """A benchmark after its first run on both sides.

    Attributes:
        base: the base's first run.
        head: head's first run.
        changes: the changes of every metric that both sides have, likely causes first.
        put_off: whether the seconds that it tracks were left unmeasured, because nobody asked for
            them or they can't have changed.
        not_run: why it was not run; None if it was.
    """

    benchmark: Benchmark
    state: Literal["both", "new", "gone"] = "both"
    base: SideRun = SideRun()
    head: SideRun = SideRun()
    changes: tuple[Change, ...] = ()
    put_off: bool = False
    not_run: NotRun | None = None

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
    def skipped(self) -> list[str]:
        """The sides on which it is skipped."""
        return [name for name, side in self.sides.items() if side.skipped]

    @property
    def programs(self) -> dict[str, Program]:
        """The compiled programs that the suite offers, by side."""
        return {name: side.program for name, side in self.sides.items() if side.program}

    @property
    def is_comparable(self) -> bool:
        """Whether both sides have run it and nothing has gone wrong so far."""
        was_run = self.state == "both" and self.not_run is None
        return was_run and not self.problems and not self.skipped

    @property
    def has_one_program(self) -> bool:
        """Whether the timed work is a program, and is the same one on both sides."""
        base = self.base.program
        head = self.head.program
        if base is None or head is None or not head.timed_is_program:
            return False
        # If head compiles the program again at each call, the program is the same but the timed
        # work is not.
        recompiles_alike = self.base.recompilations == self.head.recompilations
        return base.identity == head.identity and recompiles_alike

    @property
    def is_same_program(self) -> bool:
        """Whether both sides time the same program, and their first calls take about as long."""
        if not self.has_one_program:
            return False
        quicker, slower = sorted(side.seconds or 0.0 for side in (self.base, self.head))
        return slower <= _ALIKE * quicker

    def with_side(self, name: str, side: SideRun) -> Self:
        """Return a copy with another run of one side."""
        if name == "base":
            return dataclasses.replace(self, base=side)
        return dataclasses.replace(self, head=side)

    def with_problems(self, problems: Mapping[str, str]) -> Self:
        """Return a copy with more problems. A side keeps the problem that it already has."""
        row = self
        for name, problem in problems.items():
            side = row.sides[name]
            row = row.with_side(name, dataclasses.replace(side, problem=side.problem or problem))
        return row


@dataclass(frozen=True)
class Timed:
    """A benchmark after paired timing.

    Attributes:
        inspected: the benchmark's first runs.
        is_identical: whether timing was skipped because both sides run the same program or code.
        evidence: the evidence of its pairs; None if it was not to be timed.
        seconds: the seconds of one call, by side, one number for each pair.
        shared: whether both sides were sampled at once on one core.
        broken: what went wrong during the timing, by side.
        causes: why it takes longer, if it does.
    """

    inspected: Inspected
    is_identical: bool = False
    evidence: Evidence | None = None
    seconds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    shared: bool = False
    broken: Mapping[str, str] = field(default_factory=dict)
    causes: tuple[str, ...] = ()

    @property
    def benchmark(self) -> Benchmark:
        """What discovery knows of it."""
        return self.inspected.benchmark

    @property
    def name(self) -> str:
        """The row's unique name."""
        return self.benchmark.row

    @property
    def problems(self) -> dict[str, str]:
        """Why a side could not be measured, by side."""
        return {**self.inspected.problems, **self.broken}

    @property
    def changes(self) -> tuple[Change, ...]:
        """Of every metric that both sides have, causes first."""
        return self.inspected.changes

    def median_s(self, side: str) -> float | None:
        """Return the seconds of one call, from the pairs where there were any."""
        taken = self.seconds.get(side)
        return statistics.median(taken) if taken else self.inspected.sides[side].seconds


@dataclass(frozen=True)
class Judged:
    """A benchmark with its verdict.

    Attributes:
        timed: what it rests on.
        verdict: in words.
        outcome: what it means for the exit code.
        reasons: a sentence each.
    """

    timed: Timed
    verdict: str
    outcome: Outcome
    reasons: tuple[str, ...] = ()

    @property
    def benchmark(self) -> Benchmark:
        """What discovery knows of it."""
        return self.timed.benchmark

    @property
    def name(self) -> str:
        """The row's unique name."""
        return self.timed.name
