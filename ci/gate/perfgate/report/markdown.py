"""The report for a person, in Markdown.

The verdict comes first, then what is wrong, then short tables.
"""

import math
import re
import shlex
from collections.abc import Sequence

from perfgate.metrics import describe_change, number
from perfgate.report.result import Result
from perfgate.rows import MODULE, Judged, Outcome, Row
from perfgate.stats.evidence import FALSE_ALARMS
from perfgate.verdict import BROKEN_BEFORE

_MOST_NAMES = 10  # names listed before "and N more"


def markdown(result: Result) -> str:
    """Return the report for a person."""
    # Words follow the hash of a working tree, which is short already.
    head = result.head if " " in result.head else result.head[:12]
    parts = [f"# {result.headline}", f"Base `{result.base[:12]}` (merge base), head `{head}`."]
    rows = [row for row in result.rows if not row.row.not_reached]
    undecided = {Outcome.UNMEASURED, Outcome.UNDECIDED}
    for title, found in (
        ("What got worse", [row for row in rows if row.outcome is Outcome.FAILED]),
        ("What could not be decided", [row for row in rows if row.outcome in undecided]),
        ("Passed with a warning", [row for row in rows if row.outcome is Outcome.WARNED]),
        ("Broken on the base too", [row for row in rows if row.verdict == BROKEN_BEFORE]),
    ):
        if found:
            parts += [f"## {title}", *(_section(row, result) for row in found)]
    if len(still_open := [row.row for row in rows if row.outcome is Outcome.UNDECIDED]) > 1:
        parts.append(
            f"To go on with what is undecided:\n\n```sh\n{command(still_open, result)}\n```"
        )
    parts += [*_budgets(result), *_unseen(result), *_table(result), *_conditions(result)]
    return "\n\n".join(parts) + "\n"


def _section(row: Judged, result: Result) -> str:
    first, *others = row.reasons or ("",)
    found = f"**{row.verdict}** {measured(row.row)}".rstrip()
    lines = [f"### `{row.name}`", "", f"{found}: {first}" if first else found, ""]
    more = [f"- {reason}" for reason in others]
    changed = [each for each in row.row.changes if each.base != each.head]
    if row.outcome is Outcome.FAILED and len(row.row.programs) == 2 and changed:
        more += ["", "| program | base -> head |", "|---|---|"]
        more += [f"| {each.metric} | {describe_change(each)} |" for each in changed]
    if more:
        lines += [*_folded("More about it", more), ""]
    return "\n".join([*lines, "```sh", command([row.row], result), "```"])


def _folded(title: str, lines: Sequence[str]) -> list[str]:
    """Return lines that GitHub shows after a click. `perfgate comment` lets these tags pass."""
    return [f"<details><summary>{title}</summary>", "", *lines, "", "</details>"]


def command(rows: Sequence[Row], result: Result) -> str:
    """Return the command that repeats rows on a laptop."""
    patterns = []
    for row in rows:
        is_module = row.benchmark.kind == MODULE
        # The names of a module's benchmarks begin with its own name.
        name = row.benchmark.name.partition(".")[2] if is_module else row.name
        # with few backslashes, to stay readable inside the shell's quotes
        pattern = re.escape(name).replace("'", ".").replace("\\-", "-")
        patterns.append(pattern if is_module else f"{pattern}$")
    joined = patterns[0] if len(patterns) == 1 else f"({'|'.join(patterns)})"
    return shlex.join([*result.reproduce, "--bench", f"^{joined}"])


def measured(row: Row) -> str:
    """Return the ratio with its interval, the change of a value, or a value that only head has."""
    if row.evidence is not None and row.evidence.launches:
        ratio, low, high = row.evidence.ratio()
        if math.isinf(high):
            return f"{ratio:.3f} in one launch, which bounds nothing"
        return f"{ratio:.3f} ({low:.3f} to {high:.3f})"
    values = [change for change in row.changes if change.metric == row.benchmark.metric]
    if values:
        return describe_change(values[0])
    value = row.value_on_head
    if row.base.ran or value is None:
        return ""
    return f"{number(value)} {row.benchmark.unit}, on head alone"


def _table(result: Result) -> list[str]:
    if result.nothing_matters:
        return []
    lines = ["| benchmark | verdict | head / base |", "|---|---|---|"]
    for row in sorted(result.rows, key=lambda row: (-row.outcome, row.name)):
        name = row.name.replace("|", "\\|")
        lines.append(f"| `{name}` | {row.verdict} | {measured(row.row)} |")
    return ["## All benchmarks", "\n".join(lines)]


def _budgets(result: Result) -> list[str]:
    if not result.budgets:
        return []
    lines = ["| budget | head | |", "|---|---|---|"]
    for found in result.budgets:
        budget = found.budget
        limits = [f"at least {number(budget.floor)}"] if budget.floor is not None else []
        limits += [f"at most {number(budget.ceiling)}"] if budget.ceiling is not None else []
        shown = "-" if found.figure is None else number(found.figure)
        what = f"`{found.row}` {budget.metric} {' '.join(limits)} {budget.unit}"
        lines.append(f"| {what} | {shown} | {found.word} |")
    return ["## Budgets", "\n".join(lines)]


def _unseen(result: Result) -> list[str]:
    """Say what the run did not measure, and how the change alters its own measurement."""
    rows = result.rows
    known = f"{result.coverage.num_known} of {len(rows)}"
    unseen = {
        "this change also alters how it is measured": result.coverage.measures,
        "not reached before the run ended; run fewer at once with --bench, or raise run_s": (
            result.not_reached
        ),
        f"none of the benchmarks whose imports are known ({known}) imported these changed files": (
            result.coverage.not_imported
        ),
        "tracked 0 on both sides in every run, so a change would not show": [
            row.name for row in rows if row.row.tracks_nothing
        ],
        "not timed, since both sides run the same program or code": [
            row.name for row in rows if row.row.same and row.row.benchmark.is_timed
        ],
    }
    lines = []
    for what, names in unseen.items():
        shown = ", ".join(f"`{name}`" for name in names[:_MOST_NAMES])
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        lines += [f"- {what} ({len(names)}): {shown}{more}."] if names else []
    return ["## What was not measured", "\n".join(lines)] if lines else []


def _conditions(result: Result) -> list[str]:
    lines = [f"- {note}" for note in result.notes]
    machine = ", ".join(f"{name} {value}" for name, value in result.machine.items())
    lines += [f"- Machine: {machine}.", f"- Environments: {result.environments}."]
    if result.nothing_matters:
        lines.append(
            f"- {result.nothing_matters.capitalize()}, so neither benchmarks nor budgets were "
            f"measured, in {result.elapsed_s:.0f} s. --time-identical measures them anyway."
        )
    elif result.launches:
        lines.append(
            f"- {result.launches} launches in {result.elapsed_s:.0f} s, orders drawn from seed "
            f"{result.seed}. A bound is wrong 1 time in 20; a run in which nothing got worse fails "
            f"at most {FALSE_ALARMS:.1%} of the time, if launches scatter about normally."
        )
    else:
        why = "Nothing was timed" if result.timing else "Timing was switched off (--no-timing)"
        lines.append(f"- {why}. The run took {result.elapsed_s:.0f} s.")
    return ["\n".join(_folded("What this run stands on", lines))]
