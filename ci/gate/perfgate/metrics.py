"""The metrics that need no launches of their own: how they changed between both sides."""

import math

from perfgate.config import SAME, WORSE, Rules
from perfgate.rows import Benchmark, Change, Row, SideRun

WORKLOAD = "workload"  # the first word of the metric of `lost_work`
_HALF = 0.5


def compare_metrics(row: Row, rules: Rules) -> tuple[Change, ...]:
    """Compare every metric that both sides have, in the order of the rules.

    `default.toml` names first what says most about a cause.
    """
    base = numbers_of(row.benchmark, row.base)
    head = numbers_of(row.benchmark, row.head)
    order = {rule.name: place for place, rule in enumerate(rules.metric)}
    names = sorted(base.keys() & head.keys(), key=lambda name: (order.get(name, len(order)), name))
    return tuple(_compare(row.benchmark, name, base[name], head[name], rules) for name in names)


def _compare(benchmark: Benchmark, metric: str, base: float, head: float, rules: Rules) -> Change:
    rule = rules.rule_of(metric, benchmark.row, benchmark.unit)
    word = rule.compare(base, head)
    entry = rules.acceptance(benchmark.row, metric)
    if entry:
        # The accepted value is a ratio, or head's value if the base has none.
        allowed = entry.ratio * base if base else entry.ratio
        if head > allowed if head > base else head < allowed:
            entry = None
    # Accepting a cost also accepts the metrics that stand for it.
    if entry is None and rule.stands_for:
        entry = rules.acceptance(benchmark.row, rule.stands_for)
    if word != WORSE:
        entry = None
    unit = benchmark.unit if metric == "track" else rule.unit
    return Change(metric, base, head, word, unit, entry, allowed=rule.allowed(base))


def grown_counts(row: Row, rules: Rules) -> list[Change]:
    """Return the counts that got worse and stand for time. Only its time settles such a row."""
    return [
        each
        for each in row.changes
        if each.word == WORSE
        and not each.accepted
        and rules.rule_of(each.metric, row.name).stands_for == "time"
    ]


def has_grown(row: Row, rules: Rules) -> bool:
    """Tell whether head's call runs more functions of the repository, or does more by a count.

    It may well be slower then, so it is timed before others.
    """
    more_calls = any(each.metric == "own_calls" and each.head > each.base for each in row.changes)
    return more_calls or bool(grown_counts(row, rules))


def lost_work(benchmark: Benchmark, before: float, now: float, rules: Rules) -> Change | None:
    """Return the change of a workload that more than halves, such as `workload time`.

    Args:
        benchmark: the benchmark.
        before: what the base's code does with the base's own suite: seconds, or the value.
        now: the same with head's suite.
        rules: they accept, and tell which values are rates. A rate rises if there is less work.
    """
    rule = rules.rule_of(benchmark.metric, benchmark.row, benchmark.unit)
    is_rate = rule.worse == "less"
    if not _is_halved(before, now, is_rate=is_rate):
        return None
    metric = f"{WORKLOAD} {benchmark.metric}"
    entry = rules.acceptance(benchmark.row, metric)
    # Work scatters, so half of what was accepted is accepted too.
    if entry and _is_halved(entry.ratio * before, now, is_rate=is_rate):
        entry = None
    unit = {"time": "s", "track": benchmark.unit}.get(benchmark.metric, rule.unit)
    return Change(metric, before, now, WORSE, unit, entry)


def _is_halved(before: float, now: float, *, is_rate: bool) -> bool:
    more, less = (now, before) if is_rate else (before, now)
    return more > 0 and less < _HALF * more


def numbers_of(benchmark: Benchmark, side: SideRun) -> dict[str, float]:
    """Return every metric of one side but time."""
    numbers = dict(side.program.metrics) if side.program else {}
    if side.ran is not None:
        numbers |= side.ran.numbers
        if side.ran.value is not None:
            numbers[benchmark.metric] = side.ran.value
    return numbers


def describe_change(change: Change) -> str:
    """Write `base -> head`, with the ratio and the tolerance that it passed by, if any."""
    unit = f" {change.unit}" if change.unit else ""
    notes = [f"{change.ratio:.3g} times"] if change.base and change.head else []
    if change.word == SAME and change.base and 0 < abs(change.head - change.base) <= change.allowed:
        notes.append(f"within {100 * change.allowed / abs(change.base):.3g}%")
    noted = f" ({', '.join(notes)})" if notes else ""
    return f"{number(change.base)} -> {number(change.head)}{unit}{noted}"


def bound(ratio: float) -> str:
    """Write the upper bound of a ratio, rounded up."""
    return f"{math.ceil(100 * ratio) / 100:.2f}" if math.isfinite(ratio) else "any number of"


def number(value: float) -> str:
    """Write a number as a person would."""
    if abs(value) < 1e15 and value == int(value):
        return f"{int(value):,}"
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
