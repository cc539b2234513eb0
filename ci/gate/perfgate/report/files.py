"""Reports for programs: JSON with every raw number, and JUnit XML for dashboards."""

import dataclasses
import json
import math
from collections import Counter
from typing import Any
from xml.etree import ElementTree as ET

from perfgate.budgets import UNKNOWN, BudgetFinding
from perfgate.report.markdown import command, measured
from perfgate.report.result import Result
from perfgate.rows import SIDES, Judged, Outcome

_TAGS = {
    Outcome.FAILED: "failure",
    Outcome.UNMEASURED: "error",
    Outcome.UNDECIDED: "error",
    Outcome.NEUTRAL: "skipped",
    Outcome.OPEN: "skipped",
}


def as_json(result: Result) -> str:
    """Return everything, raw numbers included."""
    limits = result.rules.verdict.limits
    table = {
        "exit_code": result.exit_code,
        "headline": result.headline,
        "base": result.base,
        "head": result.head,
        "timing": result.timing,
        "only_documentation": result.only_documentation,
        "pairs": result.pairs,
        "elapsed_s": result.elapsed_s,
        "seed": result.seed,
        "environments": result.environments,
        "machine": result.machine,
        "notes": result.notes,
        "coverage": dataclasses.asdict(result.coverage),
        "limits": dataclasses.asdict(limits),
        "rows": [_row_json(row, result) for row in result.rows],
        "budgets": [
            dataclasses.asdict(each.budget)
            | {"row": each.row, "figure": each.figure, "word": each.word}
            for each in result.budgets
        ],
    }
    return json.dumps(_finite(table), indent=1, default=str) + "\n"


def _row_json(judged: Judged, result: Result) -> dict[str, Any]:
    row = judged.row
    table: dict[str, Any] = {
        "name": row.name,
        "kind": row.benchmark.kind,
        "verdict": judged.verdict,
        "outcome": judged.outcome.name.lower(),
        "reasons": judged.reasons,
        "changes": [dataclasses.asdict(each) | {"ratio": each.ratio} for each in row.changes],
        "seconds": {side: row.seconds_of(side) for side in SIDES},
        "programs": {side: program.identity for side, program in row.programs.items()},
        "reproduce": command(row, result),
    }
    evidence = row.evidence
    if evidence is not None:
        table |= {
            "log_ratios": evidence.first,
            "confirming_log_ratios": evidence.fresh,
            "shared": row.shared,
        }
    if evidence is not None and evidence.num_pairs > 1:
        table |= dict(zip(("ratio", "low", "high"), evidence.ratio(), strict=True))
        table |= {
            "sd": evidence.sd,
            "smallest_detectable": evidence.plan.smallest_detectable(evidence.sd),
        }
    return table


def _finite(value: Any) -> Any:
    """Replace NaN and infinities by null, because JSON has neither."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def junit(result: Result) -> str:
    """Return the rows as test cases.

    A regression is a failure. A benchmark that could not be decided is an error.
    """
    num_cases = len(result.rows) + len(result.budgets)
    suite = ET.Element("testsuite", name="performance gate", tests=str(num_cases))
    counts = Counter(row.outcome for row in result.rows)
    unknown = counts[Outcome.UNMEASURED] + counts[Outcome.UNDECIDED]
    suite.set("failures", str(counts[Outcome.FAILED] + result.count_budgets("missed")))
    suite.set("errors", str(unknown + result.count_budgets(*UNKNOWN)))
    for row in result.rows:
        _add_row(suite, row, result)
    for found in result.budgets:
        _add_budget(suite, found)
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _add_row(suite: ET.Element, judged: Judged, result: Result) -> None:
    row = judged.row
    group, _, name = row.benchmark.name.rpartition(".")
    parameters = row.name[len(row.benchmark.name) :]
    case = ET.SubElement(suite, "testcase", classname=group, name=name + parameters)
    if judged.outcome in _TAGS:
        message = _printable(f"{judged.verdict} {measured(row)}")
        element = ET.SubElement(case, _TAGS[judged.outcome], message=message)
        element.text = _printable("\n".join([*judged.reasons, command(row, result)]))


def _add_budget(suite: ET.Element, found: BudgetFinding) -> None:
    name = f"{found.row} {found.budget.metric}"
    case = ET.SubElement(suite, "testcase", classname="budget", name=name)
    message = f"{found.word}: {found.figure} {found.budget.unit}"
    if found.word == "missed":
        ET.SubElement(case, "failure", message=message)
    elif found.word in UNKNOWN:
        ET.SubElement(case, "error", message=message)


def _printable(text: str) -> str:
    """Leave out the characters that XML can't hold; a benchmark's message may hold any."""
    return "".join(each for each in text.strip() if each in "\t\n" or each.isprintable())
