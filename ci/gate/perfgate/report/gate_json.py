"""The report for programs: JSON with every raw number."""

import dataclasses
import json
import math
from typing import Any

from perfgate.report.markdown import command
from perfgate.report.result import Result
from perfgate.rows import SIDES, Judged


def as_json(result: Result) -> str:
    """Return everything, raw numbers included."""
    table = {
        "exit_code": result.exit_code,
        "headline": result.headline,
        "base": result.base,
        "head": result.head,
        "timing": result.timing,
        "nothing_matters": result.nothing_matters,
        "launches": result.launches,
        "elapsed_s": result.elapsed_s,
        "seed": result.seed,
        "environments": result.environments,
        "machine": result.machine,
        "notes": result.notes,
        "coverage": dataclasses.asdict(result.coverage),
        "worst": result.worst,
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
        "failed": judged.failed,
        "changes": [dataclasses.asdict(each) | {"ratio": each.ratio} for each in row.changes],
        "value_on_head": row.value_on_head,
        "looked_s": row.looked_s,
        "seconds": {side: row.seconds_of(side) for side in SIDES},
        "programs": {side: program.identity for side, program in row.programs.items()},
        "reproduce": command([row], result),
    }
    evidence = row.evidence
    if evidence is not None:
        table |= {
            "class": "hot" if row.is_hot else "host",
            "log_ratios": evidence.first,
            "confirming_log_ratios": evidence.fresh,
            "scatter": evidence.scatter,
            "limits": dataclasses.asdict(evidence.limits),
        }
        table |= dict(zip(("ratio", "low", "high"), evidence.ratio(), strict=True))
    return table


def _finite(value: Any) -> Any:
    """Replace NaN and infinities by null, because JSON has neither."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
