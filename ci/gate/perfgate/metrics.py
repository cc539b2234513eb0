"""The metrics that need no pairs: how they changed, and which cause each of them suggests."""

from collections.abc import Mapping

from perfgate.config import SAME, WORSE, Accepted, Rules
from perfgate.process.protocol import FirstRun, Value
from perfgate.stages import Benchmark, Change, Inspected, SideRun

# Metrics that say most about a cause come first in a report.
CAUSES = {
    "host_callbacks": "the program now calls Python on the host",
    "second_call_compilations": "it compiles again on its second call",
    "compilations": "its first call compiles more programs",
    "wide_instructions": "64-bit types crept into the program",
    "undonated_bytes": "arguments are no longer donated",
    "while_loops": "a loop was added",
    "loop_trips": "its loops run more often",
    "copies": "buffers are copied that were not copied before",
    "fusions": "work that was fused is now split into more kernels",
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


WORKLOAD = "workload"  # the first word of the metrics of `lost_work`
# What tells how much work a benchmark does. Other counts also fall if a program is written better.
_WORK = (
    "time",
    "cpu_instructions",
    "bytes_accessed",
    "peak_bytes",
    "memory",
    "peakmemory",
    "track",
)
_HALF = 0.5


def compare_metrics(row: Inspected, rules: Rules) -> tuple[Change, ...]:
    """Compare every metric that both sides have. The likeliest causes come first."""
    base = numbers_of(row.benchmark, row.base)
    head = numbers_of(row.benchmark, row.head)
    names = sorted(base.keys() & head.keys(), key=_importance)
    return tuple(_compare(row.benchmark, name, base, head, rules) for name in names)


def _importance(name: str) -> tuple[int, str]:
    return [*CAUSES, name].index(name), name


def _compare(
    benchmark: Benchmark,
    metric: str,
    base: Mapping[str, float],
    head: Mapping[str, float],
    rules: Rules,
) -> Change:
    rule = rules.rule_of(metric, benchmark.row)
    word = rule.compare(base[metric], head[metric])
    entry = rules.acceptance(benchmark.row, metric)
    if entry and _is_beyond(entry, base[metric], head[metric]):
        entry = None
    # Accepting a cost also accepts the metrics that stand for it.
    if entry is None and rule.stands_for:
        entry = rules.acceptance(benchmark.row, rule.stands_for)
    if word != WORSE:
        entry = None
    unit = benchmark.unit if metric == "track" else rule.unit
    return Change(metric, base[metric], head[metric], word, unit, entry)


def _is_beyond(entry: Accepted, base: float, head: float) -> bool:
    """Tell whether a change is larger than what was accepted.

    The accepted value is a ratio, or head's value if the base has none.
    """
    allowed = entry.ratio * base if base else entry.ratio
    return head > allowed if head > base else head < allowed


def is_measured_once(change: Change, rules: Rules, row: str) -> bool:
    """Tell whether a tracked value looked equal in its only look, which tells no spread.

    Values that are equal to the last digit are counts.
    """
    rule = rules.rule_of(change.metric, row)
    scatters = change.metric == "track" and rule.is_measured and rule.worse != "never"
    return scatters and change.word == SAME and change.base != change.head and not change.rounds


def lost_work(benchmark: Benchmark, before: SideRun, now: SideRun, rules: Rules) -> list[Change]:
    """Return the metrics of the base's code that a changed suite more than halves.

    They have names such as `workload time`. A rate counts by its inverse.

    Args:
        benchmark: the benchmark.
        before: the base's code with the base's own suite.
        now: the base's code with head's suite.
        rules: they name the entries of accepted.toml, and which tracked values are rates.
    """
    was = {"time": before.seconds or 0.0} | numbers_of(benchmark, before)
    is_now = {"time": now.seconds or 0.0} | numbers_of(benchmark, now)
    found = []
    for name in (each for each in _WORK if each in was and each in is_now):
        rule = rules.rule_of(name, benchmark.row)
        is_rate = rule.worse == "less"
        if not _is_halved(was[name], is_now[name], is_rate=is_rate):
            continue
        metric = f"{WORKLOAD} {name}"
        entry = rules.acceptance(benchmark.row, metric)
        if entry and _is_halved(entry.ratio * was[name], is_now[name], is_rate=is_rate):
            entry = None  # it is less than half of what was accepted
        unit = {"time": "s", "track": benchmark.unit}.get(name, rule.unit)
        found.append(Change(metric, was[name], is_now[name], WORSE, unit, entry))
    return found


def _is_halved(before: float, now: float, *, is_rate: bool) -> bool:
    more, less = (now, before) if is_rate else (before, now)
    return more > 0 and less < _HALF * more


def numbers_of(benchmark: Benchmark, side: SideRun) -> dict[str, float]:
    """Return every metric of one side that needs no pairs."""
    numbers = dict(side.program.metrics) if side.program else {}
    ran = side.ran
    if isinstance(ran, FirstRun) and ran.second_call_compilations is not None:
        numbers["second_call_compilations"] = float(ran.second_call_compilations)
        numbers["compilations"] = float(ran.compilations)
        numbers["compile_s"] = ran.compile_s
    if isinstance(ran, FirstRun) and ran.cpu_instructions:
        numbers["cpu_instructions"] = float(ran.cpu_instructions)
    if isinstance(ran, Value):
        numbers[benchmark.metric] = ran.value
    return numbers


def describe_change(change: Change) -> str:
    """Write `base -> head`, with the ratio if there is one."""
    unit = f" {change.unit}" if change.unit else ""
    ratio = f" ({change.ratio:.3g} times)" if change.base and change.head else ""
    return f"{number(change.base)} -> {number(change.head)}{unit}{ratio}"


def number(value: float) -> str:
    """Write a number as a person would."""
    if abs(value) < 1e15 and value == int(value):
        return f"{int(value):,}"
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
