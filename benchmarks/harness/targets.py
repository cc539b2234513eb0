"""The bars of suite.toml: what is measured for each, whether it is reached, and the table that says so."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.harness.interleave import Contender, Outcome, ratios
from benchmarks.harness.results import markdown, times
from benchmarks.harness.workloads import SIDES, Bar, Declaration

# Alternates contenders and returns their outcomes, in their order.
Measure = Callable[[Sequence[Contender]], list[Outcome]]


@dataclass(frozen=True)
class Verdict:
    """A bar and what was measured for it: Myriad, the side it is held against, then sides that are only shown."""

    bar: Bar
    outcomes: Sequence[Outcome]

    @property
    def met(self) -> bool:
        """Whether the median ratios reach what the bar asks."""
        ours, theirs = self.outcomes[:2]
        return _reaches(ours, theirs, self.bar.at_least) and self.plain_met

    @property
    def plain_met(self) -> bool:
        """Whether Myriad without `configure()` reaches what the bar asks of it."""
        plain = self.outcome_of("myriad-plain")
        return self.bar.at_least_plain is None or (
            plain is not None and _reaches(plain, self.outcomes[1], self.bar.at_least_plain)
        )

    @property
    def word(self) -> str:
        """The verdict as the table has it: a bar beside a peer that is not installed is neither met nor missed."""
        ours, theirs = self.outcomes[:2]
        if ours.status == "ok" and theirs.status == "not installed":
            return "not installed"
        asked = self.bar.at_least is not None or self.bar.at_least_plain is not None
        return ("met" if asked else "reported") if self.met else "MISSED"

    def outcome_of(self, side: str) -> Outcome | None:
        """Return what a side that is only shown did, if it was measured."""
        return next(
            (outcome for outcome in self.outcomes[2:] if outcome.contender.side == side), None
        )


def _reaches(of: Outcome, to: Outcome, at_least: float | None) -> bool:
    succeeded = of.status == to.status == "ok"
    return succeeded and (at_least is None or statistics.median(ratios(of, to)) >= at_least)


def check_bars(declaration: Declaration, measure: Measure) -> list[Verdict]:
    """Measure every bar of the declaration, each in an alternation of its own."""
    verdicts = []
    for bar in declaration.bars:
        declared = declaration.workloads["throughput"]
        workload, than = declared[bar.workload], declared[bar.than or bar.workload]
        contenders = [
            Contender("myriad", workload, bar.record),
            Contender(bar.of, than, bar.record),
        ]
        if not (bar.than or bar.record):
            shown = (f"{bar.of}-configured", "myriad-plain")
            contenders += [Contender(side, workload) for side in shown if side in SIDES]
        verdicts.append(Verdict(bar, measure(contenders)))
    return verdicts


def bars_table(verdicts: Sequence[Verdict]) -> str:
    """Return one line per bar, and beside it what the same calls say of other settings; a note is marked by a star."""
    headers = ["environment", "environments", "trajectory", "at least", "times the steps/s of",
               "measured (95% interval)", "verdict", "the same with our XLA options",
               "Myriad without configure()"]  # fmt: skip
    return markdown(headers, [_bar_cells(verdict) for verdict in verdicts])


def _bar_cells(verdict: Verdict) -> list[str]:
    bar, (ours, theirs, *_) = verdict.bar, verdict.outcomes
    workload = ours.contender.workload
    other = f" at {theirs.contender.workload.num_envs:,}" if bar.than else ""
    star = "*" if theirs.status == "ok" and theirs.reason else ""
    configured, plain = (
        verdict.outcome_of(side) for side in (f"{bar.of}-configured", "myriad-plain")
    )
    without = times(plain, theirs) if plain else ""
    if bar.at_least_plain is not None:
        without += f", at least {bar.at_least_plain:g}: {'met' if verdict.plain_met else 'MISSED'}"
    return [
        workload.env,
        f"{workload.num_envs:,}",
        "written" if bar.record else "",
        "" if bar.at_least is None else f"{bar.at_least:g}",
        bar.of + other,
        times(ours, theirs) + star,
        verdict.word,
        times(ours, configured) if configured else "",
        without,
    ]
