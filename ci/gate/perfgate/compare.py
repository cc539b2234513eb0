"""The regression gate: does this change make a benchmark slower? For any repository with an asv suite.

    perfgate --base origin/main              the working tree against its merge base with origin/main
    perfgate --base origin/main --no-timing  only what needs no clock

Exit codes: 0 no regression, 1 a regression, 2 wrong usage, 3 something could not be measured or
told.
"""

import argparse
import dataclasses
import random
import sys
import time
from pathlib import Path
from typing import Any

from perfgate import machine
from perfgate.budgets import check_budgets
from perfgate.config import Rules, find_rules, read_rules
from perfgate.errors import UsageError
from perfgate.files import replace_text
from perfgate.measure.confirmation import confirm
from perfgate.measure.explanation import explain
from perfgate.measure.inspection import discover, inspect
from perfgate.measure.pairing import Session
from perfgate.report.files import as_json, junit
from perfgate.report.markdown import Result, markdown
from perfgate.source.git import WORKING_TREE
from perfgate.source.sides import Sides, checked_out
from perfgate.verdict import Row, judge


def run(options: argparse.Namespace) -> int:
    """Compare both sides, write the report and return the exit code."""
    start, before = time.monotonic(), machine.observe()
    core = machine.pick_core()
    with checked_out(options.suite_config, options.base, options.head) as both:
        sides = both if options.exoneration else dataclasses.replace(both, same_code=False)
        rules = _rules_of(sides, options)
        rows = discover(sides, rules, options.bench)
        if not rows and options.bench:
            raise UsageError(f"--bench {options.bench!r} fits no benchmark of either side.")
        inspect(rows, sides, rules, core, _say, clocks=options.timing)
        confirm(rows, sides, rules, core, _say)
        pairs = _time(rows, sides, rules, options, core)
        explain(rows, sides, core, _say)
    for row in rows:
        judge(row, rules, timing=options.timing, same_code=sides.same_code)
    result = Result(
        rows=rows,
        budgets=_budgets(rows, rules, options),
        rules=rules,
        base=sides.base.commit,
        head=sides.head.commit,
        reproduce=_reproduce(sides, options),
        environments=sides.environments,
        machine=machine.describe(),
        notes=[*_same_commit(sides), *machine.uncontrolled(before, machine.observe(), core)],
        timing=options.timing,
        pairs=pairs,
        elapsed_s=time.monotonic() - start,
        seed=options.seed,
    )
    _write(result, options)
    return result.exit_code


def _time(
    rows: list[Row], sides: Sides, rules: Rules, options: argparse.Namespace, core: int | None
) -> int:
    """Exonerate what runs the same program on both sides, time the rest, and return how many pairs that took."""
    comparable = [row for row in rows if row.is_comparable and row.benchmark.is_timed]
    for row in comparable:
        row.exonerated = options.exoneration and (sides.same_code or row.is_same_program())
    if not options.timing:
        return 0
    deadline = time.monotonic() + (
        rules.timing.budget_s if options.budget is None else options.budget
    )
    # orders, no secrets
    session = Session(sides, rules, core, deadline, random.Random(options.seed), _say)  # noqa: S311
    session.run([row for row in comparable if not row.exonerated])
    return session.launched


def _same_commit(sides: Sides) -> list[str]:
    same = sides.base.commit == sides.head.commit
    return (
        ["Base and head are the same commit: this run says something about the machine alone."]
        if same
        else []
    )


def _rules_of(sides: Sides, options: argparse.Namespace) -> Rules:
    """Read the rules of head: they are reviewed with the change."""
    if options.rules:
        return read_rules(options.rules, options.rules.with_name("accepted.toml"))
    return read_rules(*find_rules(sides.head.root / sides.config.folder))


def _budgets(rows: list[Row], rules: Rules, options: argparse.Namespace) -> list[Any]:
    """Check the budgets that this run can know of."""
    found = check_budgets(rows, rules)
    if options.bench:  # what it left out is no budget's fault
        names = {row.name for row in rows}
        found = [
            each
            for each in found
            if each[3] != "no such benchmark" and each[0].over in {"", *names}
        ]
    if not options.timing:
        put_off = {row.name for row in rows if row.put_off}
        clocks = ("seconds", "rate", "ratio")
        found = [each for each in found if each[0].metric not in clocks and each[1] not in put_off]
    return found


def _reproduce(sides: Sides, options: argparse.Namespace) -> list[str]:
    head = [] if options.head == WORKING_TREE else ["--head", sides.head.commit]
    config = (
        []
        if options.suite_config == Path("asv.conf.json")
        else ["--suite-config", str(options.suite_config)]
    )
    rules = ["--rules", str(options.rules)] if options.rules else []
    flags = [] if options.timing else ["--no-timing"]
    flags += [] if options.exoneration else ["--no-exoneration"]
    return ["perfgate", "--base", sides.base.commit, *head, *config, *rules, *flags]


def _write(result: Result, options: argparse.Namespace) -> None:
    options.output.mkdir(parents=True, exist_ok=True)
    texts = {"gate.md": markdown(result), "gate.json": as_json(result), "junit.xml": junit(result)}
    for name, text in texts.items():
        replace_text(options.output / name, text)
    print(texts["gate.json" if options.json else "gate.md"], end="")


def _say(text: str) -> None:
    """Tell a waiting person what goes on; the report alone goes to stdout."""
    print(text, file=sys.stderr, flush=True)
