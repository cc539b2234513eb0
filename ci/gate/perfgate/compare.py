"""The regression gate: does this change make a benchmark slower? For any repository with asv.

    perfgate --base origin/main              the working tree against its merge base
    perfgate --base origin/main --no-timing  only what needs no clock

Exit codes: 0 no regression, 1 a regression, 2 wrong usage, 3 something could not be measured or
told.
"""

import argparse
import dataclasses
import random
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from perfgate import machine
from perfgate.accept import DEFAULT_OUTPUT, Parser, add_suite_config
from perfgate.budgets import BudgetFinding, check_budgets, keep_selected, keep_untimed
from perfgate.config import DEFAULT_FILE, Rules, find_rules, read_rules
from perfgate.errors import UsageError
from perfgate.measure.confirmation import confirm
from perfgate.measure.discovery import discover
from perfgate.measure.explanation import explain
from perfgate.measure.inspection import inspect
from perfgate.measure.pairing import Session
from perfgate.process.entry import guarded, replace_text
from perfgate.report.files import as_json, junit
from perfgate.report.markdown import Result, markdown
from perfgate.source.sides import WORKING_TREE, Sides, checked_out
from perfgate.stages import Inspected, Timed
from perfgate.verdict import judge


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; bad input gives one sentence and exit code 2."""
    argv = sys.argv[1:] if argv is None else list(argv)
    return guarded(lambda: run(_parse(argv)), "stopped; nothing was decided")


def run(options: argparse.Namespace) -> int:
    """Compare both sides, write the report and return the exit code."""
    start = time.monotonic()
    before = machine.observe()
    core = machine.pick_core()
    with checked_out(options.suite_config, options.base, options.head) as both:
        sides = dataclasses.replace(both, same_code=False) if options.time_identical else both
        rules = _rules_of(sides, options)
        discovered = discover(sides, rules, options.bench)
        if not discovered.rows and options.bench:
            raise UsageError(f"--bench {options.bench!r} fits no benchmark of either side.")
        inspected = inspect(discovered.rows, sides, rules, core, _say, clocks=options.timing)
        confirmed = confirm(inspected, sides, rules, core, _say)
        timed, pairs = _time(confirmed, sides, rules, options, core)
        explained = explain(timed, sides, core, _say)
    counts_instructions = discovered.counts_instructions
    after = machine.observe()
    notes = machine.uncontrolled(before, after, core, counts_instructions=counts_instructions)
    result = Result(
        rows=[
            judge(row, rules, timing=options.timing, same_code=sides.same_code) for row in explained
        ],
        budgets=_budgets(explained, rules, options),
        rules=rules,
        base=sides.base.commit,
        head=sides.head.commit,
        reproduce=_reproduce(sides, options),
        environments=sides.environments,
        machine=machine.describe(),
        notes=[*_same_commit(sides), *notes],
        timing=options.timing,
        pairs=pairs,
        elapsed_s=time.monotonic() - start,
        seed=options.seed,
    )
    _write(result, options)
    return result.exit_code


def _time(
    rows: Sequence[Inspected],
    sides: Sides,
    rules: Rules,
    options: argparse.Namespace,
    core: int | None,
) -> tuple[list[Timed], int]:
    """Time what can't be known to be identical on both sides.

    Return every row in its order, and how many pairs were launched.
    """
    done: dict[str, Timed] = {}
    to_time = []
    for row in rows:
        is_comparable = row.is_comparable and row.benchmark.is_timed
        is_identical = not options.time_identical and (sides.same_code or row.is_same_program)
        done[row.name] = Timed(row, is_identical=is_comparable and is_identical)
        if is_comparable and not is_identical:
            to_time.append(row)
    if not options.timing:
        return list(done.values()), 0
    budget_s = rules.timing.budget_s if options.budget is None else options.budget
    deadline = time.monotonic() + budget_s
    rng = random.Random(options.seed)  # noqa: S311 - orders, no secrets
    session = Session(sides, rules, core, deadline, rng, _say)
    for row in session.run(to_time):
        done[row.name] = row
    return list(done.values()), session.launched


def _same_commit(sides: Sides) -> list[str]:
    if sides.base.commit != sides.head.commit:
        return []
    return ["Base and head are the same commit: this run says something about the machine alone."]


def _rules_of(sides: Sides, options: argparse.Namespace) -> Rules:
    """Read the rules of head: they are reviewed with the change."""
    if options.rules:
        return read_rules(options.rules, options.rules.with_name("accepted.toml"))
    file, accepted = find_rules(sides.head.root / sides.config.folder)
    rules = read_rules(file, accepted)
    # In another repository our metrics and limits hold, but nobody there has promised what our
    # budgets say.
    return dataclasses.replace(rules, budget=()) if file == DEFAULT_FILE else rules


def _budgets(
    rows: Sequence[Timed], rules: Rules, options: argparse.Namespace
) -> list[BudgetFinding]:
    """Check the budgets that this run can know of."""
    found = check_budgets(rows, rules)
    if options.bench:
        found = keep_selected(found, rows)
    if not options.timing:
        found = keep_untimed(found, rows)
    return found


def _reproduce(sides: Sides, options: argparse.Namespace) -> list[str]:
    words = ["perfgate", "--base", sides.base.commit]
    if options.head != WORKING_TREE:
        words += ["--head", sides.head.commit]
    if options.suite_config != Path("asv.conf.json"):
        words += ["--suite-config", str(options.suite_config)]
    if options.rules:
        words += ["--rules", str(options.rules)]
    if not options.timing:
        words.append("--no-timing")
    if options.time_identical:
        words.append("--time-identical")
    return words


def _write(result: Result, options: argparse.Namespace) -> None:
    options.output.mkdir(parents=True, exist_ok=True)
    texts = {"gate.md": markdown(result), "gate.json": as_json(result), "junit.xml": junit(result)}
    for name, text in texts.items():
        replace_text(options.output / name, text)
    print(texts["gate.json" if options.json else "gate.md"], end="")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="perfgate", description="Does this change make a benchmark slower?", allow_abbrev=False
    )
    parser.add_argument(
        "--base",
        required=True,
        metavar="REF",
        help="branch or commit; its merge base with head is compared",
    )
    parser.add_argument(
        "--head",
        default=WORKING_TREE,
        metavar="REF",
        help="commit to judge (default: the working tree)",
    )
    add_suite_config(parser)
    parser.add_argument(
        "--bench",
        default="",
        type=_regex,
        metavar="REGEX",
        help="only benchmarks that it is found in",
    )
    parser.add_argument(
        "--no-timing", dest="timing", action="store_false", help="compare only what needs no clock"
    )
    parser.add_argument(
        "--time-identical",
        action="store_true",
        help="also time programs that are identical on both sides, to test the statistics",
    )
    # what the flag above was called before
    parser.add_argument(
        "--no-exoneration", dest="time_identical", action="store_true", help=argparse.SUPPRESS
    )
    parser.add_argument(
        "--budget",
        type=_seconds,
        metavar="SECONDS",
        help="for paired timing (default: gate.toml's)",
    )
    parser.add_argument(
        "--rules", type=Path, metavar="FILE", help="rules instead of head's ci/gate.toml"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=DEFAULT_OUTPUT,
        metavar="DIR",
        help=f"default: {DEFAULT_OUTPUT}",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=time.time_ns() % 2**32,
        help="draws every order (default: the clock)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    return parser.parse_args(argv)


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be seconds of at least 0, but got {text!r}")
    return value


def _say(text: str) -> None:
    """Tell a waiting person what goes on; the report alone goes to stdout."""
    print(text, file=sys.stderr, flush=True)
