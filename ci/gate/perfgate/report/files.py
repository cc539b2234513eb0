"""What a run found, for programs: JSON with every raw number, JUnit XML for dashboards."""

import dataclasses
import json
import math
from collections import Counter
from typing import Any
from xml.etree import ElementTree as ET

from perfgate.budgets import UNKNOWN
from perfgate.report.markdown import Result, command, measured
from perfgate.verdict import Outcome, Row


def as_json(result: Result) -> str:
    """Return everything, raw numbers included."""
    limits = result.rules.verdict.limits
    table = {
        "exit_code": result.exit_code,
        "headline": result.headline,
        "base": result.base,
        "head": result.head,
        "timing": result.timing,
        "pairs": result.pairs,
        "elapsed_s": result.elapsed_s,
        "seed": result.seed,
        "environments": result.environments,
        "machine": result.machine,
        "notes": result.notes,
        "limits": dataclasses.asdict(limits),
        "rows": [_row_json(row, result) for row in result.rows],
        "budgets": [
            dataclasses.asdict(budget) | {"row": name, "figure": figure, "word": word}
            for budget, name, figure, word in result.budgets
        ],
    }
    return json.dumps(_finite(table), indent=1, default=str) + "\n"


def _row_json(row: Row, result: Result) -> dict[str, Any]:
    table: dict[str, Any] = {
        "name": row.name,
        "kind": row.benchmark.kind,
        "verdict": row.verdict,
        "outcome": row.outcome.name.lower(),
        "reasons": row.reasons,
        "changes": [dataclasses.asdict(each) | {"ratio": each.ratio} for each in row.changes],
        "seconds": {side: row.median_s(side) for side in ("base", "head")},
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
    """Replace what JSON can't say by null."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def junit(result: Result) -> str:
    """Return the rows as test cases: a regression is a failure, what could not be told an error."""
    suite = ET.Element(
        "testsuite", name="performance gate", tests=str(len(result.rows) + len(result.budgets))
    )
    counts = Counter(row.outcome for row in result.rows)
    suite.set("failures", str(counts[Outcome.FAILED] + result.count_budgets("missed")))
    unknown = (
        counts[Outcome.UNMEASURED] + counts[Outcome.UNDECIDED] + result.count_budgets(*UNKNOWN)
    )
    suite.set("errors", str(unknown))
    tags = {
        Outcome.FAILED: "failure",
        Outcome.UNMEASURED: "error",
        Outcome.UNDECIDED: "error",
        Outcome.NEUTRAL: "skipped",
    }
    for row in result.rows:
        group, _, name = row.benchmark.name.rpartition(".")
        case = ET.SubElement(
            suite, "testcase", classname=group, name=name + row.name[len(row.benchmark.name) :]
        )
        if row.outcome in tags:
            ET.SubElement(
                case, tags[row.outcome], message=_printable(f"{row.verdict} {measured(row)}")
            ).text = _printable("\n".join([*row.reasons, command(row, result)]))
    for budget, name, figure, word in result.budgets:
        case = ET.SubElement(suite, "testcase", classname="budget", name=f"{name} {budget.metric}")
        if word == "missed" or word in UNKNOWN:
            ET.SubElement(
                case,
                "failure" if word == "missed" else "error",
                message=f"{word}: {figure} {budget.unit}",
            )
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """Leave out the characters that XML can't hold; a benchmark's message may hold any."""
    return "".join(each for each in text.strip() if each in "\t\n" or each.isprintable())
