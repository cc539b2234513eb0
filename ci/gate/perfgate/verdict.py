"""One row per benchmark of either side's suite: what was found out about it, and the verdict that follows."""

import enum
import math
import statistics
from dataclasses import dataclass, field
from typing import Any

from perfgate.config import Accepted, Rules
from perfgate.hlo import Program, difference
from perfgate.stats.evidence import SLOWER, UNDECIDED, Evidence

# Metrics that say most about a cause come first in a report.
CAUSES = {
    "host_callbacks": "the program now calls Python on the host",
    "second_call_compilations": "it compiles again on its second call",
    "compilations": "its first call compiles more programs",
    "wide_instructions": "64-bit types crept into the program",
    "donated_buffers": "a buffer is no longer donated",
    "alias_bytes": "results are no longer written over arguments",
    "while_loops": "a loop was added",
    "loop_trips": "its loops run more often",
    "copies": "buffers are copied that were not",
    "fusions": "work that was fused falls apart into more kernels",
    "argument_bytes": "the program's arguments grew",
    "output_bytes": "the program's results grew",
    "temp_bytes": "the program needs more temporary memory",
    "peak_bytes": "the program needs more memory",
    "custom_calls": "calls into libraries were added",
    "instructions": "instructions were added",
    "bytes_accessed": "it moves more bytes",
    "generated_code_bytes": "its machine code grew",
    "compile_s": "it compiles more slowly",
    "cpu_instructions": "the processor executes more instructions",
    "peakmemory": "its peak memory grew",
    "memory": "its object grew",
    "track": "its tracked value got worse",
    "time": "it takes longer",
}
SKIPPED_NOW = "it asks to be skipped now, and did not before"
_ALIKE = 1.5  # times the other side's first calls: more is no exoneration


class Outcome(enum.IntEnum):
    """What a row means for the exit code, the worst last."""

    NEUTRAL = 0
    PASSED = 1
    WARNED = 2
    UNDECIDED = 3
    UNMEASURED = 4
    FAILED = 5


@dataclass(frozen=True)
class Change:
    """One metric on both sides, and what the rules call the change."""

    metric: str
    base: float
    head: float
    word: str
    unit: str = ""
    accepted: Accepted | None = None

    @property
    def ratio(self) -> float:
        """Head over base."""
        return self.head / self.base if self.base else math.inf if self.head else 1.0


@dataclass(frozen=True)
class Benchmark:
    """What discovery knows of one benchmark with one set of parameters.

    Attributes:
        row: `name(parameters)`, unique in a suite.
        name: asv's name.
        index: the number of its parameters in asv's order; None where it has none.
        kind: `time`, `timeraw`, `memory`, `peakmemory`, or what a track_ benchmark calls itself.
        timeout_s: seconds it may take.
        unit: of its value.
    """

    row: str
    name: str
    index: int | None
    kind: str
    timeout_s: float
    unit: str = ""

    @property
    def is_timed(self) -> bool:
        """Whether its value is a time."""
        return self.kind in ("time", "timeraw")

    @property
    def metric(self) -> str:
        """The name of its value in gate.toml."""
        return (
            "time"
            if self.is_timed
            else self.kind
            if self.kind in ("memory", "peakmemory")
            else "track"
        )


@dataclass
class Row:
    """A benchmark and everything found out about it, side by side."""

    benchmark: Benchmark
    state: str = "both"  # both, new, gone
    problems: dict[str, str] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    replies: dict[str, dict[str, Any]] = field(default_factory=dict)
    programs: dict[str, Program] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"base": [], "head": []})
    evidence: Evidence | None = None
    shared: bool = False  # both sides were sampled at once, on one core
    exonerated: bool = False
    put_off: bool = (
        False  # seconds that nobody asked for, or that can't have changed, were not measured
    )
    verdict: str = ""
    outcome: Outcome = Outcome.NEUTRAL
    reasons: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The row's unique name."""
        return self.benchmark.row

    @property
    def is_comparable(self) -> bool:
        """Whether both sides have it and nothing has gone wrong so far."""
        return self.state == "both" and not self.problems and not self.skipped

    def has_one_program(self) -> bool:
        """Whether the timed work is a program, and both sides hold the very same."""
        base, head = self.programs.get("base"), self.programs.get("head")
        if (
            base is None
            or head is None
            or not head.timed_is_program
            or base.identity != head.identity
        ):
            return False
        # One that head compiles anew at each call is the same program, and yet not all that is
        # timed.
        recompiled = [
            self.replies[side].get("second_call_compilations", 0) for side in ("base", "head")
        ]
        return recompiled[0] == recompiled[1]

    def is_same_program(self) -> bool:
        """Whether the timed work is one program, and neither side's first calls show that it runs more of it."""
        if not self.has_one_program():
            return False
        quicker, slower = sorted(
            self.replies[side].get("seconds", 0.0) for side in ("base", "head")
        )
        return slower <= _ALIKE * quicker

    def median_s(self, side: str) -> float | None:
        """Seconds of one call, from the pairs where there were any."""
        if self.seconds[side]:
            return statistics.median(self.seconds[side])
        return self.replies.get(side, {}).get("seconds")


def judge(row: Row, rules: Rules, *, timing: bool, same_code: bool = False) -> None:
    """Turn what was found out about a row into its verdict, outcome and reasons.

    Args:
        row: what was found out.
        rules: what it is judged by.
        timing: whether anything was to be timed.
        same_code: whether both sides hold the same code.
    """
    if row.problems or row.state == "gone" or "head" in row.skipped:
        row.verdict, row.outcome = _judge_unmeasured(row, rules)
        return
    if row.put_off and not row.replies:
        row.verdict, row.outcome = "not timed", Outcome.NEUTRAL
        return
    if row.state == "new" or "base" in row.skipped:
        row.verdict, row.outcome = "new", Outcome.PASSED
        row.reasons.append("ran on head; there is nothing on the base to compare it with")
        return
    row.verdict, row.outcome = _judge_time(row, rules, timing=timing, same_code=same_code)
    _judge_changes(row, rules)


def _judge_unmeasured(row: Row, rules: Rules) -> tuple[str, Outcome]:
    entry = rules.acceptance(row.name, "missing")
    if row.state == "gone":
        word = "gone"
        row.reasons.append("the base's suite has it, head's has not")
        outcome = Outcome.WARNED if rules.verdict.gone == "warn" else Outcome.UNMEASURED
    elif row.problems:
        word, outcome = "could not measure", Outcome.UNMEASURED
        both = {"base", "head"} <= row.problems.keys()
        sides = "both sides" if both and len(set(row.problems.values())) == 1 else None
        row.reasons += [f"on {sides}: {row.problems['head']}"] if sides else []
        row.reasons += (
            []
            if sides
            else [f"on {side}: {reason}" for side, reason in sorted(row.problems.items())]
        )
    elif "base" in row.skipped or row.state == "new":
        row.reasons.append("it asks to be skipped here")
        return "skipped", Outcome.NEUTRAL
    else:
        word, outcome = "could not measure", Outcome.UNMEASURED
        row.reasons.append("it runs on the base and asks to be skipped on head")
    if entry:
        row.reasons.append(f"accepted until {entry.expires}: {entry.reason}")
        return f"{word}, accepted", Outcome.WARNED
    return word, outcome


def _judge_time(row: Row, rules: Rules, *, timing: bool, same_code: bool) -> tuple[str, Outcome]:
    if row.exonerated or (row.put_off and same_code):
        word, done = ("code", "hold") if same_code else ("program", "run")
        row.reasons.append(f"both sides {done} the same {word}, so its time can't have changed")
        return f"same {word}", Outcome.PASSED
    if row.benchmark.is_timed and not timing:
        return "not timed", Outcome.NEUTRAL
    if not row.benchmark.is_timed:
        return "same", Outcome.PASSED
    evidence = row.evidence
    if evidence is None or evidence.verdict == UNDECIDED:
        pairs = evidence.num_pairs if evidence else 0
        suspected = ", under suspicion of being slower" if evidence and evidence.suspected else ""
        row.reasons.append(
            f"{pairs} pairs were not enough{suspected}; give more time with --budget"
        )
        return (
            "undecided",
            Outcome.WARNED if rules.verdict.undecided == "warn" else Outcome.UNDECIDED,
        )
    return _judge_evidence(row, evidence, rules)


def _judge_evidence(row: Row, evidence: Evidence, rules: Rules) -> tuple[str, Outcome]:
    ratio, low, _ = evidence.ratio()
    if max(ratio, 1 / ratio) > rules.verdict.suspicious_ratio:
        row.reasons.append(
            f"suspicious: {max(ratio, 1 / ratio):,.0f} times the other side; is the same work measured?"
        )
    if evidence.verdict != SLOWER:
        return ("faster" if evidence.is_faster() else "not slower"), Outcome.PASSED
    entry = rules.acceptance(row.name, "time")
    if entry and low <= entry.ratio:
        row.reasons.append(
            f"accepted up to {entry.ratio:g} times until {entry.expires}: {entry.reason}"
        )
        return "slower, accepted", Outcome.WARNED
    return "slower", Outcome.FAILED


def _judge_changes(row: Row, rules: Rules) -> None:
    """Let metrics that got worse fail the row, but those that a faster program is allowed."""
    allowed = {
        each.metric
        for each in row.changes
        if rules.rule_of(each.metric, row.name).forgiven_if_faster
    }
    forgiven = allowed if row.verdict == "faster" else set()
    worse = [
        change for change in row.changes if change.word == "worse" and change.metric not in forgiven
    ]
    for change in worse:
        text = f"{CAUSES.get(change.metric, change.metric)}: {describe_change(change)}"
        accepted = (
            f" (accepted until {change.accepted.expires}: {change.accepted.reason})"
            if change.accepted
            else ""
        )
        row.reasons.append(text + accepted)
    unaccepted = [change for change in worse if not change.accepted]
    if unaccepted:
        row.verdict = "worse" if row.verdict != "slower" else "slower"
        row.outcome = Outcome.FAILED
    elif worse and row.outcome is not Outcome.FAILED:
        row.verdict, row.outcome = (
            f"{row.verdict}, change accepted",
            max(row.outcome, Outcome.WARNED),
        )
    elif row.verdict == "same" and any(change.word == "better" for change in row.changes):
        row.verdict = "better"
    if row.outcome is Outcome.FAILED and row.programs.keys() == {"base", "head"}:
        lines = difference(row.programs["base"], row.programs["head"]).lines
        if lines:
            row.reasons.append(
                "added instructions come from "
                + ", ".join(f"{line} ({count})" for line, count in lines)
            )


def compare_metrics(row: Row, rules: Rules) -> list[Change]:
    """Compare every metric that both sides have, causes first."""
    sides = [numbers_of(row, side) for side in ("base", "head")]
    names = sorted(
        sides[0].keys() & sides[1].keys(), key=lambda name: ([*CAUSES, name].index(name), name)
    )
    changes = []
    for name in names:
        rule, (base, head) = rules.rule_of(name, row.name), (sides[0][name], sides[1][name])
        word = rule.compare(base, head)
        entry = rules.acceptance(row.name, name) if word == "worse" else None
        if entry and _is_beyond(entry, base, head):
            entry = None
        unit = row.benchmark.unit if name == "track" else rule.unit
        changes.append(Change(name, base, head, word, unit, entry))
    return changes


def _is_beyond(entry: Accepted, base: float, head: float) -> bool:
    """Tell whether a change is larger than what was accepted: a ratio, or head's value where the base has none."""
    allowed = entry.ratio * base if base else entry.ratio
    return head > allowed if head > base else head < allowed


def numbers_of(row: Row, side: str) -> dict[str, float]:
    """Return every metric of one side that needs no pairs."""
    reply, program = row.replies.get(side, {}), row.programs.get(side)
    numbers = dict(program.metrics) if program else {}
    if "second_call_compilations" in reply:
        numbers["second_call_compilations"] = float(reply["second_call_compilations"])
        numbers |= {"compilations": float(reply["compilations"]), "compile_s": reply["compile_s"]}
    if reply.get("cpu_instructions"):
        numbers["cpu_instructions"] = float(reply["cpu_instructions"])
    if "value" in reply:
        numbers[row.benchmark.metric] = reply["value"]
    return numbers


def describe_change(change: Change) -> str:
    """Write `base -> head`, with the ratio where it says something."""
    unit = f" {change.unit}" if change.unit else ""
    ratio = f" ({change.ratio:.3g} times)" if change.base and change.head else ""
    return f"{number(change.base)} -> {number(change.head)}{unit}{ratio}"


def number(value: float) -> str:
    """Write a number as a person would."""
    if abs(value) < 1e15 and value == int(value):
        return f"{int(value):,}"
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
