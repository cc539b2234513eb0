"""Summarise the rows of the self-test in small tables."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ci.site.formatting import is_number
from perfgate.config import Rules
from perfgate.stats.evidence import Plan, noise

Recorded = Sequence[dict[str, str]]
Cells = dict[str, str | int]


@dataclass(frozen=True)
class Summary:
    """One table: its file, its title, and its rows, which all have the same columns."""

    name: str
    title: str
    rows: Sequence[Cells]

    def markdown(self) -> str:
        """Return the table below its title, or nothing if it has no rows."""
        if not self.rows:
            return ""
        columns = list(self.rows[0])
        lines = [
            columns,
            ["---:" if is_number(str(self.rows[0][column])) else "---" for column in columns],
        ]
        lines += [[str(cell) for cell in row.values()] for row in self.rows]
        return self.title + "\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def false_alarms(runs: Recorded) -> Summary:
    """Return how the runs of a tree against itself ended."""
    rows: list[Cells] = []
    for core in ("idle", "busy"):
        of_core = [run for run in runs if run["other_core"] == core]
        codes = [run["exit_code"] for run in of_core]
        counts = {f"exit {code}": codes.count(code) for code in "013"}
        seconds = [float(run["seconds"]) for run in of_core]
        if of_core:
            another = len(codes) - sum(counts.values())
            rest = {"median s": f"{np.median(seconds):.0f}", "longest s": f"{max(seconds):.0f}"}
            rows.append(
                {"other core": core, "runs": len(codes), **counts, "another": another, **rest}
            )
    return Summary("noise_false_alarms", "A tree against itself", rows)


def scatter(pairs: Recorded, rules: Rules) -> Summary:
    """Return the scatter of pairs of a tree against itself, and the slowdowns that can be found."""
    names = sorted({pair["benchmark"] for pair in pairs})
    plan = Plan.make(rules.verdict.limits, max(1, len(names)))
    rows: list[Cells] = []
    for name in names:
        of_name = [pair for pair in pairs if pair["benchmark"] == name]
        idle, busy = (_log_ratios(of_name, "other_core", core) for core in ("idle", "busy"))
        every = np.concatenate([idle, busy])
        noises = {
            f"noise, {word} (sd)": _percent(each) for word, each in (("idle", idle), ("busy", busy))
        }
        found = f"{plan.smallest_detectable(noise(every)):.3f}" if len(every) > 1 else "-"
        rows.append({"benchmark": name, "pairs": len(every), **noises, "smallest found": found})
    return Summary(
        "noise_by_benchmark", "Noise of the benchmarks, one pair of a tree against itself", rows
    )


def lived(runs: Recorded, planted: Sequence[float]) -> Summary:
    """Return the gate's verdicts in whole runs on planted slowdowns."""
    rows: list[Cells] = []
    for ratio in planted:
        of_ratio = [run for run in runs if float(run["planted"]) == ratio]
        for name in dict.fromkeys(run["benchmark"] for run in of_ratio):
            said = [run["verdict"] for run in of_ratio if run["benchmark"] == name]
            known = {word: said.count(word) for word in ("slower", "not slower")}
            rest = {"undecided": len(said) - sum(known.values())}
            rows.append(
                {"planted": f"{ratio:g}", "benchmark": name, "runs": len(said), **known, **rest}
            )
    return Summary("noise_planted_live", "Planted slowdowns, live", rows)


def _log_ratios(pairs: Recorded, column: str, value: str) -> NDArray[np.float64]:
    return np.asarray([float(pair["log_ratio"]) for pair in pairs if pair[column] == value])


def _percent(log_ratios: NDArray[np.float64]) -> str:
    return f"{noise(log_ratios):.2%}" if len(log_ratios) > 1 else "-"
