"""Measure the targets of suite.toml, and decide whether each is met."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.harness.alternation import Outcome, ratios
from benchmarks.harness.registry import DECLARED, OURS
from benchmarks.harness.tables import markdown, times
from benchmarks.harness.workload import Case
from benchmarks.harness.workloads import Declaration, Target

_PLAIN = f"{OURS}-plain"  # without `configure()`
# A function that alternates cases and returns their outcomes in the same order.
Measure = Callable[[Sequence[Case]], list[Outcome]]


@dataclass(frozen=True)
class Verdict:
    """A target with its outcomes: Myriad, the other library, then those that are only shown."""

    target: Target
    outcomes: Sequence[Outcome]

    @property
    def word(self) -> str:
        """The verdict's word in the table.

        A target beside a peer that is not installed is neither met nor missed.
        """
        ours, theirs = self.outcomes[:2]
        if ours.status == "ok" and theirs.status == "not installed":
            return "not installed"
        if not (_reaches(ours, theirs, self.target.at_least) and self.plain_met):
            return "MISSED"
        asked = self.target.at_least is not None or self.target.at_least_plain is not None
        return "met" if asked else "reported"

    @property
    def plain_met(self) -> bool:
        """Whether Myriad without `configure()` reaches its own target."""
        asked = self.target.at_least_plain
        return asked is None or _reaches(self.shown(_PLAIN), self.outcomes[1], asked)

    def shown(self, name: str) -> Outcome | None:
        """Return the outcome of a library that is only shown, if it was measured."""
        return next((outcome for outcome in self.outcomes[2:] if outcome.case.side == name), None)

    def cells(self) -> list[str]:
        """Return its line of the table."""
        target = self.target
        ours, theirs = self.outcomes[:2]
        workload = ours.case.workload
        configured = self.shown(f"{target.of}-configured")
        plain = self.shown(_PLAIN)
        without = times(plain, theirs) if plain else ""
        if target.at_least_plain is not None:
            word = "met" if self.plain_met else "MISSED"
            without += f", at least {target.at_least_plain:g}: {word}"
        return [
            workload.env,
            f"{workload.num_envs:,}",
            "written" if target.record else "",
            "" if target.at_least is None else f"{target.at_least:g}",
            target.of + (f" at {theirs.case.workload.num_envs:,}" if target.than else ""),
            times(ours, theirs) + ("*" if theirs.status == "ok" and theirs.reason else ""),
            self.word,
            times(ours, configured) if configured else "",
            without,
        ]


def _reaches(of: Outcome | None, to: Outcome, at_least: float | None) -> bool:
    if of is None or not of.status == to.status == "ok":
        return False
    return at_least is None or statistics.median(ratios(of, to)) >= at_least


def check_targets(declaration: Declaration, measure: Measure) -> list[Verdict]:
    """Measure every target of the declaration, each in an alternation of its own."""
    verdicts = []
    declared = declaration.workloads["throughput"]
    for target in declaration.targets:
        workload = declared[target.workload]
        than = declared[target.than or target.workload]
        cases = [Case(OURS, workload, target.record), Case(target.of, than, target.record)]
        if not (target.than or target.record):
            shown = (f"{target.of}-configured", _PLAIN)
            cases += [Case(name, workload) for name in shown if name in DECLARED]
        verdicts.append(Verdict(target, measure(cases)))
    return verdicts


def targets_table(verdicts: Sequence[Verdict]) -> str:
    """Return one line per target, with the results of other settings in the same rounds.

    A star marks a row with a note.
    """
    headers = ["environment", "environments", "trajectory", "at least", "times the steps/s of"]
    headers += ["measured (95% interval)", "verdict"]
    headers += ["the same with our XLA options", "Myriad without configure()"]
    return markdown(headers, [verdict.cells() for verdict in verdicts])
