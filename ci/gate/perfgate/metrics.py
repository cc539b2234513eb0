"""The metrics that need no pairs: how they changed, and which cause each of them suggests."""

from collections.abc import Mapping

from perfgate.config import WORSE, Accepted, Rules
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
