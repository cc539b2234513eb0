"""The comparison of two commits, from their checkouts to the report and the exit code."""

import argparse
import contextlib
import dataclasses
import functools
import math
import os
import random
import re
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from perfgate import machine
from perfgate.budgets import check_budgets
from perfgate.config import Rules, find_rules, read_rules
from perfgate.errors import UsageError
from perfgate.files import DAMAGE, read_json, replace_text
from perfgate.measure.confirmation import confirm, tested_changes
from perfgate.measure.discovery import discover
from perfgate.measure.explanation import explain
from perfgate.measure.inspection import inspect
from perfgate.measure.pairing import Session
from perfgate.measure.run import Run
from perfgate.options import DEFAULT_OUTPUT
from perfgate.report.gate_json import as_json
from perfgate.report.markdown import markdown
from perfgate.report.result import Result, cover
from perfgate.rows import Row
from perfgate.source.environments import python_version
from perfgate.source.git import WORKING_TREE
from perfgate.source.sides import Sides, checked_out
from perfgate.verdict import judge

# The shares of a run's time after which no row is looked at before others are timed again: of what
# is timed itself, and of the rest.
_LOOKING_SHARE, _TRACKING_SHARE = 0.7, 0.5
_LAUNCHES = 3  # of each row that the time should be enough for
# The shares of the budget that timing leaves for measuring suspect values again, and for causes.
_CONFIRMATION_SHARE = 0.25
_CAUSES_SHARE = 0.15


def compare(options: argparse.Namespace) -> int:
    """Compare both sides, write the report and return the exit code."""
    start = time.monotonic()
    _make_output(options.output)
    load, _, _ = os.getloadavg()  # before the gate itself does any work
    core = machine.pick_core()
    place = (options.suite_config, options.base, options.head, options.pytest_benchmark)
    asked = {"python": options.python, "pytest_args": options.pytest_args}
    with checked_out(*place, **asked) as sides:
        rules = _rules_of(sides, options)
        deadline = start + _LOOKING_SHARE * (rules.timing.run_s or math.inf)
        run = Run(sides, rules, core, deadline)
        # Somebody who passes --time-identical or --rules wants to see the benchmarks run.
        is_asked_for = options.time_identical or options.rules
        nothing_matters = "" if is_asked_for else sides.nothing_matters
        notes = [*sides.notes]
        if core is None:
            notes.append("Processes can't be pinned to a core here, which makes timings noisier.")
        if load > 0.5:
            notes.append(f"The 1-minute load average was {load:.1f} when the run began.")
        rows = []
        if not nothing_matters:
            rows = _selected(discover(run, options.bench), rules, options)
            rows = cheapest_first(rows, options.output / "gate.json")

        def report() -> Result:
            """Write the report on the run so far. What was not reached says so."""
            missing = {row.name: dataclasses.replace(row, not_reached=True) for row in rows}
            found = list((missing | run.rows).values())
            is_part = bool(options.bench) or options.shard != (1, 1) or bool(nothing_matters)
            result = Result(
                rows=[judge(row, rules, timing=options.timing) for row in found],
                budgets=check_budgets(found, rules, is_part=is_part, timing=options.timing),
                base=sides.base.commit,
                head=sides.head.commit,
                reproduce=_reproduce(sides, options),
                coverage=cover(found, sides),
                environments=sides.environments,
                machine=machine.describe() | {"python": python_version(options.python)},
                notes=notes,
                timing=options.timing,
                nothing_matters=nothing_matters,
                elapsed_s=time.monotonic() - start,
                seed=options.seed,
            )
            replace_text(options.output / "gate.md", markdown(result))
            replace_text(options.output / "gate.json", as_json(result))
            return result

        report()  # an interrupted run must not leave an older report behind
        run.kept = report
        _measure(run, rows, options, start)
        result = report()
    print((options.output / ("gate.json" if options.json else "gate.md")).read_text(), end="")
    return 0 if options.report_only else result.exit_code


def _selected(rows: Sequence[Row], rules: Rules, options: argparse.Namespace) -> list[Row]:
    """Return the rows of this shard, with those that its budgets divide by.

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
    names |= {
        budget.over
        for budget in rules.budget
        if any(re.search(budget.benchmark, name) for name in names)
    }
    return [row for row in rows if row.name in names]


def cheapest_first(rows: Sequence[Row], report: Path) -> list[Row]:
    """Sort rows by the seconds that a first look at each takes, as far as the last report knows.

    Others follow the timeouts that their authors gave. Statements that run in interpreters of their
    own come first: they are short, and other rows then begin on new workers. What tracks a value
    comes last, because it often takes long.
    """
    known: dict[str, float] = {}
    with contextlib.suppress(*DAMAGE):
        last = read_json(report)["rows"]
        known = {row["name"]: float(row["looked_s"]) for row in last if row["looked_s"]}
    usual = statistics.median(known.values()) if known else 0.0
    groups = {"timeraw": 0, "memory": 1, "time": 1}

    def cost(row: Row) -> tuple[int, float, float]:
        benchmark = row.benchmark
        return groups.get(benchmark.kind, 2), known.get(row.name, usual), benchmark.timeout_s

    return sorted(rows, key=cost)


def _measure(run: Run, rows: Sequence[Row], options: argparse.Namespace, start: float) -> None:
    """Look at the rows, time those that may differ, confirm what is suspect, and find causes.

    What a first look did not reach comes last, in the time that is left. The run's allowed error is
    shared among all tests that can fail it.
    """
    timing = run.rules.timing
    budget_s = timing.budget_s if options.budget is None else options.budget
    rng = random.Random(options.seed)  # noqa: S311 - orders, no secrets
    num_launches = _LAUNCHES * sum(row.benchmark.is_timed for row in rows)
    session = Session(run, rng, budget_s, budget_s / max(1, num_launches))
    begin = session.begin if options.timing else None
    look = functools.partial(inspect, run, time_identical=options.time_identical, begin=begin)
    looked = look(rows, tracking_end=start + _TRACKING_SHARE * (timing.run_s or math.inf))
    late = [row for row in looked if row.not_reached]
    tests = sum(
        (options.timing and (row.is_to_time or row.not_reached))
        + len(tested_changes(row, run.rules))
        for row in looked
    )
    # The other shards test the same change, so they share the error too.
    num_tests = max(1, tests) * options.shard[1]
    now = time.monotonic()
    left_s = budget_s - session.spent_s
    if options.budget is None and timing.run_s:
        left_s = min(left_s, timing.run_s - (now - start))
    _decide(session, looked, options, num_tests, now + left_s)
    if late and timing.run_s:
        run.deadline = start + timing.run_s
        seen = look(late)
        is_bound = options.budget is not None
        _decide(session, seen, options, num_tests, now + left_s if is_bound else run.deadline)


def _decide(
    session: Session, looked: Sequence[Row], options: argparse.Namespace, num_tests: int, end: float
) -> None:
    """Time rows that were looked at, find causes, and confirm what is suspect, until `end`."""
    run = session.run
    left_s = max(0.0, end - time.monotonic())
    suspect = [row.name for row in looked if tested_changes(row, run.rules)]
    later = _CAUSES_SHARE + (_CONFIRMATION_SHARE if suspect else 0.0)
    run.deadline = end - later * left_s
    to_time = [row for row in looked if options.timing and row.is_to_time]
    timed = session.time(to_time, num_tests)
    run.deadline = end
    explain(run, timed)
    confirm(run, [run.rows[name] for name in suspect], num_tests)


def _rules_of(sides: Sides, options: argparse.Namespace) -> Rules:
    """Read head's rules, because they are reviewed with the change."""
    files = find_rules(sides.head.root / sides.config.folder)
    if options.rules:
        files = options.rules, options.rules.with_name("accepted.toml")
    rules = read_rules(*files)
    undecided = options.undecided or rules.verdict.undecided
    verdict = dataclasses.replace(rules.verdict, undecided=undecided)
    return dataclasses.replace(rules, verdict=verdict)


def _reproduce(sides: Sides, options: argparse.Namespace) -> list[str]:
    words = ["perfgate", "--base", sides.base.commit]
    if options.head != WORKING_TREE:
        words += ["--head", sides.head.commit]
    if options.pytest_benchmark:
        words += ["--pytest-benchmark", str(options.pytest_benchmark)]
        if options.pytest_args:  # in one word, since it begins with a dash
            words.append(f"--pytest-args={shlex.join(options.pytest_args)}")
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
