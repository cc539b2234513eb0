"""What the rows of `ci.selftest` say, as Markdown: false alarms, what is found, what the live runs said."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ci.evidence import NOT_SLOWER, SLOWER, Plan, replay
from ci.planted import BENCHMARKS
from ci.rules import Rules

_DRAWS = 1_000


def false_alarms(rows: Sequence[dict[str, str]]) -> str:
    """Return how the runs of a tree against itself ended, or nothing where there were none."""
    if not rows:
        return ""
    lines = [
        "| other core | runs | exit 0 | exit 1 | exit 3 | another | median s |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for core in ("idle", "busy"):
        of_core = [row for row in rows if row["other_core"] == core]
        codes = [row["exit_code"] for row in of_core]
        seconds = f"{np.median([float(row['seconds']) for row in of_core]):.0f}" if of_core else "-"
        counts = [codes.count(code) for code in "013"]
        cells = [core, len(codes), *counts, len(codes) - sum(counts), seconds]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "A tree against itself\n\n" + "\n".join(lines)


def found(rows: Sequence[dict[str, str]], rules: Rules, planted: Sequence[float]) -> str:
    """Return what the gate's decisions make of draws of the recorded pairs, or nothing where there are none."""
    if not rows:
        return ""
    lines = ["| planted | benchmark | pairs | noise (sd) | smallest found | found | undecided | called not slower |"]
    lines.append("|---:|---|---:|---:|---:|---:|---:|---:|")
    plan = Plan.make(rules.verdict.limits, len(BENCHMARKS))
    for ratio in planted:
        for name in dict.fromkeys(row["benchmark"] for row in rows):
            recorded = [
                float(row["log_ratio"]) for row in rows if float(row["planted"]) == ratio and row["benchmark"] == name
            ]
            if len(recorded) > 1:
                lines.append(_replayed(ratio, name, np.asarray(recorded), plan))
    return f"Planted slowdowns: the gate's decisions on {_DRAWS:,} draws of the recorded pairs\n\n" + "\n".join(lines)


def _replayed(ratio: float, name: str, recorded: NDArray[np.float64], plan: Plan) -> str:
    draw = np.random.default_rng(0).integers
    first, fresh = (
        recorded[draw(len(recorded), size=(_DRAWS, test.looks[-1]))] for test in (plan.suspect, plan.confirm)
    )
    verdicts, _ = replay(plan, first, fresh)
    slower, passed = (float(np.mean(verdicts == word)) for word in (SLOWER, NOT_SLOWER))
    sd = float(np.std(recorded, ddof=1))
    return (
        f"| {ratio:g} | {name} | {len(recorded)} | {sd:.2%} | {plan.smallest_detectable(sd):.3f} | "
        f"{slower:.1%} | {max(0.0, 1 - slower - passed):.1%} | {passed:.1%} |"
    )


def lived(rows: Sequence[dict[str, str]], planted: Sequence[float]) -> str:
    """Return what the gate said in whole runs on planted slowdowns, or nothing where there were none."""
    if not rows:
        return ""
    lines = ["| planted | runs of one benchmark | slower | not slower | undecided |", "|---:|---:|---:|---:|---:|"]
    for ratio in planted:
        verdicts = [row["verdict"] for row in rows if float(row["planted"]) == ratio]
        known = [verdicts.count(word) for word in ("slower", "not slower")]
        lines.append(f"| {ratio:g} | {len(verdicts)} | {known[0]} | {known[1]} | {len(verdicts) - sum(known)} |")
    return "Planted slowdowns, live\n\n" + "\n".join(lines)
