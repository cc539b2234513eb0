"""Measure the targets of suite.toml, and decide whether each is met."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.harness.interleave import Case, Outcome, ratios
from benchmarks.harness.libraries import OURS, SIDES
from benchmarks.harness.results import markdown, times
from benchmarks.harness.workloads import Declaration, Target

_PLAIN = f"{OURS}-plain"  # without `configure()`
# A function that alternates cases and returns their outcomes in the same order.
Measure = Callable[[Sequence[Case]], list[Outcome]]


@dataclass(frozen=True)
class Verdict:
    """A target with its outcomes: Myriad, the other side, then sides that are only shown."""

    target: Target
    outcomes: Sequence[Outcome]

    @property
    def met(self) -> bool:
        """Whether the median ratios reach the target."""
        ours, theirs = self.outcomes[:2]
        return _reaches(ours, theirs, self.target.at_least) and self.plain_met

    @property
    def plain_met(self) -> bool:
        """Whether Myriad without `configure()` reaches its own target."""
        plain = self.outcome_of(_PLAIN)
        return self.target.at_least_plain is None or (
            plain is not None and _reaches(plain, self.outcomes[1], self.target.at_least_plain)
        )

    @property
    def word(self) -> str:
        """The verdict's word in the table.

        A target beside a peer that is not installed is neither met nor missed.
        """
        ours, theirs = self.outcomes[:2]
        if ours.status == "ok" and theirs.status == "not installed":
            return "not installed"
        if not self.met:
            return "MISSED"
        asked = self.target.at_least is not None or self.target.at_least_plain is not None
        return "met" if asked else "reported"

    def outcome_of(self, side: str) -> Outcome | None:
        """Return the outcome of a side that is only shown, if it was measured."""
        return next((outcome for outcome in self.outcomes[2:] if outcome.case.side == side), None)


def _reaches(of: Outcome, to: Outcome, at_least: float | None) -> bool:
    succeeded = of.status == to.status == "ok"
    return succeeded and (at_least is None or statistics.median(ratios(of, to)) >= at_least)


def check_targets(declaration: Declaration, measure: Measure) -> list[Verdict]:
    """Measure every target of the declaration, each in an alternation of its own."""
    verdicts = []
    for target in declaration.targets:
        declared = declaration.workloads["throughput"]
        workload = declared[target.workload]
        than = declared[target.than or target.workload]
        cases = [
            Case(OURS, workload, target.record),
            Case(target.of, than, target.record),
        ]
        if not (target.than or target.record):
            shown = (f"{target.of}-configured", _PLAIN)
            cases += [Case(side, workload) for side in shown if side in SIDES]
        verdicts.append(Verdict(target, measure(cases)))
    return verdicts


def targets_table(verdicts: Sequence[Verdict]) -> str:
    """Return one line per target, with the results of other settings in the same rounds.

    A star marks a row with a note.
    """
    headers = [
        "environment",
        "environments",
        "trajectory",
        "at least",
        "times the steps/s of",
        "measured (95% interval)",
        "verdict",
        "the same with our XLA options",
        "Myriad without configure()",
    ]
    return markdown(headers, [_target_cells(verdict) for verdict in verdicts])


def _target_cells(verdict: Verdict) -> list[str]:
    target = verdict.target
    ours, theirs, *_ = verdict.outcomes
    workload = ours.case.workload
    other = f" at {theirs.case.workload.num_envs:,}" if target.than else ""
    star = "*" if theirs.status == "ok" and theirs.reason else ""
    configured = verdict.outcome_of(f"{target.of}-configured")
    plain = verdict.outcome_of(_PLAIN)
    without = times(plain, theirs) if plain else ""
    if target.at_least_plain is not None:
        without += (
            f", at least {target.at_least_plain:g}: {'met' if verdict.plain_met else 'MISSED'}"
        )
    return [
        workload.env,
        f"{workload.num_envs:,}",
        "written" if target.record else "",
        "" if target.at_least is None else f"{target.at_least:g}",
        target.of + other,
        times(ours, theirs) + star,
        verdict.word,
        times(ours, configured) if configured else "",
        without,
    ]
