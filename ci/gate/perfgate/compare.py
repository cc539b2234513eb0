"""The regression gate: does this change make a benchmark slower? For any repository with asv.

    perfgate --base origin/main              the working tree against its merge base
    perfgate --base origin/main --no-timing  all metrics except time

Exit codes: 0 no regression, 1 a regression, 2 wrong usage, 3 something could not be measured or
decided.
"""

import argparse
import dataclasses
import math
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from perfgate import machine
from perfgate.budgets import check_budgets
from perfgate.config import Rules, Timing, find_rules, read_rules
from perfgate.errors import UsageError
from perfgate.files import replace_text
from perfgate.measure.confirmation import confirm, tested_changes
from perfgate.measure.discovery import discover
from perfgate.measure.explanation import explain
from perfgate.measure.inspection import inspect
from perfgate.measure.pairing import Session
from perfgate.measure.progress import Progress, Run
from perfgate.options import DEFAULT_OUTPUT
from perfgate.report.gate_json import as_json
from perfgate.report.markdown import markdown
from perfgate.report.result import Result, cover
from perfgate.rows import Row
from perfgate.source.environments import python_version
from perfgate.source.git import WORKING_TREE
from perfgate.source.sides import Sides, checked_out
from perfgate.verdict import judge

# The share of the budget for measuring suspect values again, if there is something to time too.
_CONFIRMATION_SHARE = 0.5
# The share of the budget that the first runs leave even if they would use up `run_s`.
_LEAST_SHARE = 0.25
# The share of the budget for finding causes, which timing leaves.
_CAUSES_SHARE = 0.15


def run(options: argparse.Namespace) -> int:
    """Compare both sides, write the report and return the exit code."""
    start = time.monotonic()
    _make_output(options.output)
    load, _, _ = os.getloadavg()  # before the gate itself does any work
    core = machine.pick_core()
    place = (options.suite_config, options.base, options.head, options.pytest_benchmark)
    with checked_out(*place, python=options.python) as sides:
        rules = _rules_of(sides, options)
        progress = Progress(start + first_runs_s(rules.timing))
        # Somebody who passes --time-identical or --rules wants to see the benchmarks run.
        is_asked_for = options.time_identical or options.rules
        only_documentation = sides.only_documentation and not is_asked_for
        rows = []
        if not only_documentation:
            rows = _selected(discover(sides, rules, options.bench, progress), options)

        def report(pairs: int = 0) -> Result:
            """Write the report on the run so far. What was not reached says so."""
            missing = {row.name: dataclasses.replace(row, not_reached=True) for row in rows}
            found = list((missing | progress.rows).values())
            is_part = bool(options.bench) or options.shard != (1, 1) or only_documentation
            result = Result(
                rows=[judge(row, rules, timing=options.timing) for row in found],
                budgets=check_budgets(found, rules, is_part=is_part, timing=options.timing),
                rules=rules,
                base=sides.base.commit,
                head=sides.head.commit,
                reproduce=_reproduce(sides, options),
                coverage=cover(found, sides),
                environments=sides.environments,
                machine=machine.describe() | {"python": python_version(options.python)},
                notes=_notes(sides, load, core),
                timing=options.timing,
                only_documentation=only_documentation,
                pairs=pairs,
                elapsed_s=time.monotonic() - start,
                seed=options.seed,
            )
            replace_text(options.output / "gate.md", markdown(result))
            replace_text(options.output / "gate.json", as_json(result))
            return result

        report()  # an interrupted run must not leave an older report behind
        progress.kept = report
        whole = Run(sides, rules, core, progress)
        inspected = inspect(whole, rows, time_identical=options.time_identical)
        pairs = _measure(whole, inspected, options, start)
        result = report(pairs)
    print((options.output / ("gate.json" if options.json else "gate.md")).read_text(), end="")
    return 0 if options.report_only else result.exit_code


def _selected(rows: Sequence[Row], options: argparse.Namespace) -> list[Row]:
    """Return the rows of this shard.

    Raises:
        UsageError: there is none, although there should be.
    """
    tests = options.pytest_benchmark
    if not rows and options.bench:
        raise UsageError(f"--bench {options.bench!r} matches no benchmark of either side.")
    if not rows and tests:
        raise UsageError(f"no test in {tests} uses the fixture `benchmark`.")
    number, count = options.shard
    names = set(sorted(row.name for row in rows)[number - 1 :: count])
    if rows and not names:
        raise UsageError(
            f"--shard {number}/{count} holds no benchmark: there are {len(rows)} in all."
        )
    return [row for row in rows if row.name in names]


def first_runs_s(timing: Timing) -> float:
    """Return the seconds after which a run leaves the rest of its time to the timing."""
    if not timing.run_s:
        return math.inf
    return timing.run_s - _LEAST_SHARE * min(timing.budget_s, timing.run_s)


def timing_budget_s(timing: Timing, elapsed_s: float, asked_s: float | None = None) -> float:
    """Return how many seconds a run has left for timing and for finding causes.

    Args:
        timing: the limits on timing and on the whole run.
        elapsed_s: the seconds since the run began.
        asked_s: the value of `--budget`, which overrides everything else; None if it was not given.
    """
    if asked_s is not None:
        return asked_s
    left_s = timing.run_s - elapsed_s if timing.run_s else math.inf
    return max(0.0, min(timing.budget_s, left_s))


def _measure(whole: Run, rows: Sequence[Row], options: argparse.Namespace, start: float) -> int:
    """Confirm suspect values, time every benchmark that may differ, and find the causes.

    All of them spend one time budget. The run's allowed error is shared among all tests that can
    fail it. Return how many pairs were launched.
    """
    now = time.monotonic()
    progress = whole.progress
    budget_s = timing_budget_s(whole.rules.timing, now - start, options.budget)
    names = {row.name for row in rows if options.timing and _is_to_time(row)}
    num_tests = len(names) + sum(len(tested_changes(row, whole.rules)) for row in rows)
    # The other shards test the same change, so they share the error too.
    num_tests *= options.shard[1]
    # Fresh processes take seconds each. Without a limit they would leave no time for timing.
    progress.deadline = now + (_CONFIRMATION_SHARE if names else 1.0) * budget_s
    confirmed = confirm(whole, rows, num_tests)
    progress.deadline = now + (1 - _CAUSES_SHARE) * budget_s
    session = Session(whole, random.Random(options.seed))  # noqa: S311 - orders, no secrets
    timed = session.time(
        [row for row in confirmed if row.name in names and _is_to_time(row)], num_tests
    )
    progress.deadline = now + budget_s
    explain(whole, timed)
    return session.launched


def _is_to_time(row: Row) -> bool:
    return row.benchmark.is_timed and row.is_comparable and not row.same


def _notes(sides: Sides, load: float, core: int | None) -> list[str]:
    """Return a sentence for each thing that a reader of the numbers should know."""
    notes = [*sides.notes]
    if sides.base.commit == sides.head.commit:
        notes.append("Base and head are the same commit, so this run only measures noise.")
    if core is None:
        notes.append("Processes can't be pinned to a core here, which makes timings much noisier.")
    if load > 0.5:
        notes.append(f"The 1-minute load average was {load:.1f} when the run began.")
    return notes


def _rules_of(sides: Sides, options: argparse.Namespace) -> Rules:
    """Read head's rules, because they are reviewed with the change."""
    files = find_rules(sides.head.root / sides.config.folder)
    if options.rules:
        files = options.rules, options.rules.with_name("accepted.toml")
    rules = read_rules(*files)
    verdicts = rules.verdict
    if options.undecided:
        verdicts = dataclasses.replace(verdicts, undecided=options.undecided)
    return dataclasses.replace(rules, verdict=verdicts)


def _reproduce(sides: Sides, options: argparse.Namespace) -> list[str]:
    words = ["perfgate", "--base", sides.base.commit]
    if options.head != WORKING_TREE:
        words += ["--head", sides.head.commit]
    if options.pytest_benchmark:
        words += ["--pytest-benchmark", str(options.pytest_benchmark)]
    elif options.suite_config != Path("asv.conf.json"):
        words += ["--suite-config", str(options.suite_config)]
    if options.python != sys.executable:
        words += ["--python", options.python]
    if options.rules:
        words += ["--rules", str(options.rules)]
    if not options.timing:
        words.append("--no-timing")
    if options.time_identical:
        words.append("--time-identical")
    return words


def _make_output(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Git must ignore the report. Else the next run takes it as a part of its head.
        if folder == DEFAULT_OUTPUT:
            replace_text(folder / ".gitignore", "*\n")
    except OSError as error:
        raise UsageError(f"--output {folder} can't be written: {error.strerror}.") from None
