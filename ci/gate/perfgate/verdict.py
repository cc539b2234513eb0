"""The verdict on a benchmark, from all that was found out about it."""

from dataclasses import dataclass

from perfgate.config import Rules
from perfgate.hlo import difference
from perfgate.metrics import CAUSES, describe_change
from perfgate.stages import MODULE, Change, Judged, Outcome, Timed
from perfgate.stats.evidence import SLOWER, UNDECIDED, Evidence

BROKEN_BEFORE = "broken before"  # the verdict on what can't be measured on the base either


@dataclass(frozen=True)
class _Opinion:
    """A verdict in the making, with the reasons so far."""

    verdict: str
    outcome: Outcome
    reasons: tuple[str, ...] = ()


def judge(row: Timed, rules: Rules, *, timing: bool, same_code: bool = False) -> Judged:
    """Turn what was found out about a row into its verdict, outcome and reasons.

    Args:
        row: what was found out.
        rules: what it is judged by.
        timing: whether anything was to be timed.
        same_code: whether both sides hold the same code.
    """
    seen = row.inspected
    nothing_ran = seen.base.ran is None and seen.head.ran is None
    if row.problems or seen.state == "gone" or seen.head.skipped:
        opinion = _judge_unmeasured(row, rules)
    elif seen.put_off and nothing_ran:
        opinion = _Opinion("not timed", Outcome.NEUTRAL)
    elif seen.state == "new" or seen.base.skipped:
        reason = "ran on head; there is nothing on the base to compare it with"
        opinion = _Opinion("new", Outcome.PASSED, (reason,))
    else:
        opinion = _judge_time(row, rules, timing=timing, same_code=same_code)
        opinion = _judge_changes(row, opinion, rules)
    return Judged(row, opinion.verdict, opinion.outcome, (*row.causes, *opinion.reasons))


def _judge_unmeasured(row: Timed, rules: Rules) -> _Opinion:
    seen = row.inspected
    if seen.state == "gone":
        outcome = Outcome.WARNED if rules.verdict.gone == "warn" else Outcome.UNMEASURED
        opinion = _Opinion("gone", outcome, ("the base's suite has it, head's has not",))
    elif _is_broken_before(row):
        reason = "it is broken on the base too, so it does not hold up this change"
        return _Opinion(BROKEN_BEFORE, Outcome.NEUTRAL, (*_problems(row.problems), reason))
    elif row.problems:
        opinion = _Opinion("could not measure", Outcome.UNMEASURED, _problems(row.problems))
    elif seen.base.skipped or seen.state == "new":
        return _Opinion("skipped", Outcome.NEUTRAL, ("it asks to be skipped here",))
    else:
        reason = "it runs on the base and asks to be skipped on head"
        opinion = _Opinion("could not measure", Outcome.UNMEASURED, (reason,))
    entry = rules.acceptance(row.name, "missing")
    if entry is None:
        return opinion
    accepted = f"accepted until {entry.expires}: {entry.reason}"
    reasons = (*opinion.reasons, accepted)
    return _Opinion(f"{opinion.verdict}, accepted", Outcome.WARNED, reasons)


def _is_broken_before(row: Timed) -> bool:
    """Tell whether a benchmark that the change has not touched fails on both sides."""
    benchmark = row.benchmark
    return benchmark.is_unchanged and (len(row.problems) == 2 or benchmark.kind == MODULE)


def _problems(problems: dict[str, str]) -> tuple[str, ...]:
    """Say what went wrong on which side, once where it is the same on both."""
    if len(problems) == 2 and problems["base"] == problems["head"]:
        return (f"on both sides: {problems['head']}",)
    return tuple(f"on {side}: {reason}" for side, reason in sorted(problems.items()))


def _judge_time(row: Timed, rules: Rules, *, timing: bool, same_code: bool) -> _Opinion:
    if row.is_identical or (row.inspected.put_off and same_code):
        verb = "hold" if same_code else "run"
        noun = "code" if same_code else "program"
        reason = f"both sides {verb} the same {noun}, so its time can't have changed"
        return _Opinion(f"same {noun}", Outcome.PASSED, (reason,))
    if row.benchmark.is_timed and not timing:
        return _Opinion("not timed", Outcome.NEUTRAL)
    if not row.benchmark.is_timed:
        return _Opinion("same", Outcome.PASSED)
    evidence = row.evidence
    if evidence is None or evidence.verdict == UNDECIDED:
        pairs = evidence.num_pairs if evidence else 0
        suspected = ", under suspicion of being slower" if evidence and evidence.suspected else ""
        reason = f"{pairs} pairs were not enough{suspected}; give more time with --budget"
        outcome = Outcome.WARNED if rules.verdict.undecided == "warn" else Outcome.UNDECIDED
        return _Opinion("undecided", outcome, (reason,))
    return _judge_evidence(row, evidence, rules)


def _judge_evidence(row: Timed, evidence: Evidence, rules: Rules) -> _Opinion:
    ratio, low, _ = evidence.ratio()
    factor = max(ratio, 1 / ratio)
    reasons: tuple[str, ...] = ()
    if factor > rules.verdict.suspicious_ratio:
        times = f"{factor:,.0f} times the other side"
        reasons = (f"suspicious: {times}; is the same work measured?",)
    if evidence.verdict != SLOWER:
        verdict = "faster" if evidence.is_faster() else "not slower"
        return _Opinion(verdict, Outcome.PASSED, reasons)
    entry = rules.acceptance(row.name, "time")
    if entry and low <= entry.ratio:
        accepted = f"accepted up to {entry.ratio:g} times until {entry.expires}: {entry.reason}"
        return _Opinion("slower, accepted", Outcome.WARNED, (*reasons, accepted))
    return _Opinion("slower", Outcome.FAILED, reasons)


def _judge_changes(row: Timed, opinion: _Opinion, rules: Rules) -> _Opinion:
    """Let metrics that got worse fail the row, but those that a faster program is allowed."""
    worse = [each for each in row.changes if each.word == "worse"]
    if opinion.verdict == "faster":
        worse = [
            each for each in worse if not rules.rule_of(each.metric, row.name).forgiven_if_faster
        ]
    verdict = opinion.verdict
    outcome = opinion.outcome
    if any(not change.accepted for change in worse):
        verdict = "slower" if verdict == "slower" else "worse"
        outcome = Outcome.FAILED
    elif worse and outcome is not Outcome.FAILED:
        verdict = f"{verdict}, change accepted"
        outcome = max(outcome, Outcome.WARNED)
    elif verdict == "same" and any(change.word == "better" for change in row.changes):
        verdict = "better"
    reasons = (*opinion.reasons, *map(_describe_worse, worse))
    if outcome is Outcome.FAILED:
        reasons = (*reasons, *_added_lines(row))
    return _Opinion(verdict, outcome, reasons)


def _describe_worse(change: Change) -> str:
    text = f"{CAUSES.get(change.metric, change.metric)}: {describe_change(change)}"
    if change.accepted is None:
        return text
    return f"{text} (accepted until {change.accepted.expires}: {change.accepted.reason})"


def _added_lines(row: Timed) -> tuple[str, ...]:
    """Name the source lines of head's program that ask for more instructions."""
    base = row.inspected.base.program
    head = row.inspected.head.program
    if base is None or head is None:
        return ()
    lines = difference(base, head).lines
    if not lines:
        return ()
    shown = ", ".join(f"{line} ({count})" for line, count in lines)
    return (f"added instructions come from {shown}",)
