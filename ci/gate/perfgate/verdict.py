"""The verdict on a benchmark, from everything that was measured on it."""

import dataclasses

from perfgate.config import BETTER, CHANGED, SAME, UNSURE, WORSE, Rules
from perfgate.hlo import added_lines
from perfgate.metrics import WORKLOAD, bound, describe_change, grown_counts
from perfgate.rows import MODULE, Change, Judged, Outcome, Row
from perfgate.stats.evidence import LOOKS, SLOWER, UNDECIDED, Evidence

_MOST_LINES = 5
_MORE_TIME = "run it alone with --bench, or give more time with --budget"
BROKEN_BEFORE = "broken before"  # it can't be measured on the base either


def judge(row: Row, rules: Rules, *, timing: bool) -> Judged:
    """Turn a row's measurements into its verdict, outcome and reasons.

    Args:
        row: the measurements.
        rules: the rules that decide.
        timing: whether this run times anything.
    """
    if row.problems or row.state == "gone" or "head" in row.skipped:
        opinion = _judge_unmeasured(row, rules)
    elif row.not_reached:  # it was not looked at, so it may be worse
        reason = "the run ended before it; run fewer at once with --bench, or raise run_s"
        outcome = _undecided(rules, looks_worse=row.benchmark.is_timed)
        opinion = Judged(row, "not reached", outcome, (reason,))
    elif row.state == "new" or "base" in row.skipped:
        reason = "it ran on head, and the base has nothing to compare it with"
        opinion = Judged(row, "new", Outcome.PASSED, (reason,))
    else:
        opinion = _judge_changes(row, _judge_time(row, rules, timing=timing), rules)
    reasons = (*row.causes, *opinion.reasons)
    if opinion.outcome is Outcome.WARNED:  # why it passes comes first
        reasons = (*opinion.reasons, *row.causes)
    return dataclasses.replace(opinion, reasons=reasons)


def _judge_unmeasured(row: Row, rules: Rules) -> Judged:
    why = f": {row.head.skipped}" if row.head.skipped else ""
    if row.state == "gone":
        outcome = Outcome.WARNED if rules.verdict.gone == "warn" else Outcome.UNMEASURED
        opinion = Judged(row, "gone", outcome, ("the base's suite has it, but head's does not",))
    elif _is_broken_before(row):
        reason = "it is broken on the base too, so it does not block this change"
        return Judged(row, BROKEN_BEFORE, Outcome.NEUTRAL, (*_problems(row.problems), reason))
    elif row.hangs_on_head:
        reason = "it ends on the base, but runs into its timeout on head"
        reasons = (reason, *_problems(row.problems))
        opinion = Judged(row, "slower", Outcome.FAILED, reasons, failed=("missing",))
    elif row.problems:
        opinion = Judged(row, "could not measure", Outcome.UNMEASURED, _problems(row.problems))
    elif "base" in row.skipped or row.state == "new":
        return Judged(row, "skipped", Outcome.NEUTRAL, (f"it is skipped{why}",))
    else:
        reason = f"it runs on the base, but is skipped on head{why}"
        opinion = Judged(row, "could not measure", Outcome.UNMEASURED, (reason,))
    entry = rules.acceptance(row.name, "missing")
    if entry is None:
        return opinion
    accepted = f"accepted until {entry.expires}: {entry.reason}"
    reasons = (*opinion.reasons, accepted)
    return Judged(row, f"{opinion.verdict}, accepted", Outcome.WARNED, reasons)


def _is_broken_before(row: Row) -> bool:
    """Tell whether a benchmark that the change has not touched fails on both sides."""
    if any(side.by_runner for side in row.sides.values()):
        return False
    benchmark = row.benchmark
    return benchmark.is_unchanged and (len(row.problems) == 2 or benchmark.kind == MODULE)


def _problems(problems: dict[str, str]) -> tuple[str, ...]:
    """Say what went wrong on which side, or once if it is the same on both."""
    if len(problems) == 2 and problems["base"] == problems["head"]:
        return (f"on both sides: {problems['head']}",)
    return tuple(f"on {side}: {reason}" for side, reason in sorted(problems.items()))


def _judge_time(row: Row, rules: Rules, *, timing: bool) -> Judged:
    if row.same:
        verb = "use" if row.same == "code" else "run"
        reason = f"both sides {verb} the same {row.same}, so it can't have got slower"
        return Judged(row, f"same {row.same}", Outcome.PASSED, (reason,))
    if not (timing and row.benchmark.is_timed):
        is_left_out = row.benchmark.is_timed
        word, outcome = ("not timed", Outcome.NEUTRAL) if is_left_out else ("same", Outcome.PASSED)
        return Judged(row, word, outcome)
    evidence = row.evidence
    if evidence is None or evidence.verdict == UNDECIDED:
        return _judge_open(row, evidence or Evidence(), rules)
    if evidence.verdict != SLOWER:
        verdict = "faster" if evidence.is_faster() else "not slower"
        return Judged(row, verdict, Outcome.PASSED)
    _, low, _ = evidence.ratio()
    entry = rules.acceptance(row.name, "time")
    if entry and low <= entry.ratio:
        accepted = f"accepted up to {entry.ratio:g} times until {entry.expires}: {entry.reason}"
        return Judged(row, "slower, accepted", Outcome.WARNED, (accepted,))
    return Judged(row, "slower", Outcome.FAILED, failed=("time",))


def _judge_open(row: Row, evidence: Evidence, rules: Rules) -> Judged:
    """Judge a row that is neither slower nor surely below its `pass_ratio`."""
    launches = len(evidence.launches)
    _, _, high = evidence.ratio()
    hint = "run it on an idle machine" if evidence.done else _MORE_TIME
    if launches < LOOKS[0]:
        timed = "a second launch" if launches else "it was timed"
        reason = f"the run ended before {timed}; {hint}"
    elif evidence.is_open_suspicion:
        reason = f"it looks slower, and the run ended before fresh launches told; {hint}"
    elif high > evidence.limits.cap:
        reason = f"{launches} launches don't rule out {bound(high)} times the time; {hint}"
    else:
        is_strict = rules.verdict.undecided == "stop"
        outcome = Outcome.UNDECIDED if is_strict else Outcome.PASSED
        reason = f"not shown slower than {bound(high)}, after {launches} launches"
        return Judged(row, "not shown slower", outcome, (reason,))
    return Judged(row, "undecided", _undecided(rules, looks_worse=True), (reason,))


def _undecided(rules: Rules, *, looks_worse: bool) -> Outcome:
    """Return the outcome of a row that stays undecided."""
    if rules.verdict.undecided == "suspected" and not looks_worse:
        return Outcome.OPEN
    return Outcome.WARNED if rules.verdict.undecided == "warn" else Outcome.UNDECIDED


def _judge_changes(row: Row, opinion: Judged, rules: Rules) -> Judged:
    """Let metrics that got worse fail the row, except those whose cost has not grown.

    While the time is undecided, a count that stands for it only makes the row look worse, unless it
    grew by its `sure_ratio`.
    """
    suspected = [
        each
        for each in grown_counts(row, rules)
        if opinion.verdict == "undecided"
        and each.factor < rules.rule_of(each.metric, row.name).sure_ratio
    ]
    worse = [
        each
        for each in row.changes
        if each.word == WORSE and each not in suspected and not _is_outweighed(each, row, rules)
    ]
    untold = [each for each in row.changes if each.word in (CHANGED, UNSURE)]
    verdict = opinion.verdict
    outcome = opinion.outcome
    failed = [*opinion.failed, *(each.metric for each in worse if not each.accepted)]
    if failed:
        verdict = "slower" if verdict == "slower" else "worse"
        outcome = Outcome.FAILED
    elif (untold or suspected) and outcome is not Outcome.FAILED:
        verdict = "undecided"
        looks_worse = bool(suspected) or any(_looks_worse(each, rules, row.name) for each in untold)
        outcome = max(outcome, _undecided(rules, looks_worse=looks_worse))
    elif worse and outcome is not Outcome.FAILED:
        verdict = f"{verdict}, change accepted"
        outcome = max(outcome, Outcome.WARNED)
    elif verdict == "same" and any(change.word == BETTER for change in row.changes):
        verdict = "better"
    reasons = [_describe_worse(each, rules) for each in worse]
    reasons += [
        f"{_describe_worse(each, rules)}; only its time tells whether that is worse"
        for each in suspected
    ]
    reasons += opinion.reasons
    reasons += map(_describe_untold, untold)
    doubts = [] if row.same == "code" else _doubts(row, rules)
    if doubts and outcome is Outcome.PASSED:
        outcome = Outcome.WARNED
        reasons += doubts
    if outcome is Outcome.FAILED:
        reasons += _added_lines(row)
    # Accepting a cost also accepts the metrics that stand for it.
    costs = [each for each in failed if rules.rule_of(each, row.name).stands_for not in failed]
    return Judged(row, verdict, outcome, tuple(reasons), tuple(costs))


def _doubts(row: Row, rules: Rules) -> list[str]:
    """Say which measured values passed although nobody can be sure of them."""
    found = []
    for each in row.changes:
        if each.rounds and each.word == SAME and _looks_worse(each, rules, row.name):
            text = f"{each.metric}: {describe_change(each)} in {len(each.rounds)} rounds"
            found.append(f"{text}, which scatter too much to tell; run it on an idle machine")
    return found


def _looks_worse(change: Change, rules: Rules, row: str) -> bool:
    """Tell whether a value changed beyond its tolerance, whatever its scatter is."""
    rule = rules.rule_of(change.metric, row, change.unit)
    return rule.compare(change.base, change.head) in (WORSE, CHANGED)


def _is_outweighed(change: Change, row: Row, rules: Rules) -> bool:
    """Tell whether the cost that a metric stands for is known and has not grown.

    Time has not grown if the row passes by it, and `fail_ratio` is not ruled out. Another cost that
    a clock measures has not grown if its rule lets the change pass. A counted cost has not grown if
    head's count is not larger.
    """
    cost = rules.rule_of(change.metric, row.name).stands_for
    if cost == "time":
        return row.evidence is not None and row.evidence.has_passed
    known = next((each for each in row.changes if each.metric == cost), None)
    if known is None:
        return False
    if rules.rule_of(cost, row.name).is_measured:
        return known.word not in (WORSE, UNSURE)
    return known.head <= known.base


def _describe_untold(change: Change) -> str:
    text = f"{change.metric}: {describe_change(change)}"
    if change.word == UNSURE:
        return f"{text} was measured too few times to tell; {_MORE_TIME}"
    return (
        f"{text}; no rule says whether that is worse: add a [[metric]] to gate.toml with "
        f'name = "{change.metric}", this benchmark, worse = "more" or "less", '
        "and the tolerance that you allow"
    )


def _describe_worse(change: Change, rules: Rules) -> str:
    text = f"{rules.cause_of(change.metric)}: {describe_change(change)}"
    if change.metric.startswith(WORKLOAD):
        text = f"{change.metric} {describe_change(change)}: the edited suite makes it do less"
        if change.accepted is None:
            text += f'; if you mean that, accept it with --metric "{change.metric}"'
    if change.accepted is None:
        return text
    return f"{text} (accepted until {change.accepted.expires}: {change.accepted.reason})"


def _added_lines(row: Row) -> list[str]:
    """Name the source lines of head's program that ask for more instructions."""
    if row.base.program is None or row.head.program is None:
        return []
    lines = added_lines(row.base.program, row.head.program).most_common(_MOST_LINES)
    shown = ", ".join(f"{line} ({count})" for line, count in lines)
    return [f"added instructions come from {shown}"] if lines else []
