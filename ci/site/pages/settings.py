"""What settings gain: a chart and its table for each comparison of arms, by agent and environment.

`ci.site.pages` calls it.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from ci.site import gains
from ci.site.arms import ArmAlternation, ArmTraining
from ci.site.formatting import rate, times
from ci.site.gain_chart import gain_svg
from ci.site.measurements import SuiteRun

_TARGET, _SETTINGS, _LADDER = range(3)  # in the order of the page: what is reached comes first
_Key = tuple[str, str, int, float, str]


@dataclass(frozen=True)
class GainFigure:
    """A comparison of arms: its finding, its chart, and the table of the chart.

    Attributes:
        finding: the title.
        svg: the chart, empty where no arm can be compared.
        headers: the table's columns.
        lines: the table's cells, the arm first.
        run: the run that measured it.
    """

    finding: str
    svg: Markup
    headers: Sequence[str]
    lines: Sequence[Sequence[str]]
    run: SuiteRun


def settings_page(runs: Sequence[SuiteRun]) -> dict[str, Any]:
    """Return the context of the page: the newest figure of each comparison."""
    newest: dict[_Key, GainFigure] = {}
    for run in sorted(runs, key=lambda run: run.measured or datetime.min.replace(tzinfo=UTC)):
        for each in run.arms:
            if len(each.arms) > 1:
                kind = _LADDER if each.is_ladder else _SETTINGS
                size = each.num_envs or 0
                key = (each.env, each.agent, kind, float(size), run.hardware)
                newest[key] = _alternation_figure(each, run)
        by_target: dict[_Key, list[ArmTraining]] = {}
        for each in run.trainings:
            key = (each.env, each.agent, _TARGET, each.target_return, run.hardware)
            by_target.setdefault(key, []).append(each)
        newest |= {key: _target_figure(own, run) for key, own in by_target.items()}
    sections: dict[str, list[GainFigure]] = {}
    for key in sorted(newest):
        env, agent = key[:2]
        title = f"{agent} on {env}" if agent else env
        sections.setdefault(title, []).append(newest[key])
    return {"sections": sections}


def _alternation_figure(alternation: ArmAlternation, run: SuiteRun) -> GainFigure:
    first = alternation.arms[0]
    found = gains.gains(alternation)
    finding = gains.settings_finding
    before: dict[str, str] = {}
    if alternation.is_ladder:
        finding = gains.ladder_finding
        before = {each.name: times(each.middle) for each in gains.steps_between(alternation)}
    rates = {arm.name: rate(statistics.median(arm.rates)) for arm in alternation.arms}
    num_rounds = f"{len(first.rates)}"
    lines = [[first.name, "1", "", *([""] if before else []), rates[first.name], num_rounds]]
    for gain in found:
        over = [before[gain.name]] if before else []
        cells = [times(gain.middle), _interval(gain), *over, rates[gain.name], num_rounds]
        lines.append([gain.label, *cells])
    over = ["times the rung before"] if before else []
    headers = ["arm", f"times the {first.name}", "95% interval", *over, "steps/s", "rounds"]
    title = finding(alternation)
    svg = gain_svg(found, title, f"times the {first.name}'s steps/s")
    return GainFigure(title, svg, headers, lines, run)


def _target_figure(trainings: Sequence[ArmTraining], run: SuiteRun) -> GainFigure:
    first = trainings[0].arm
    found = gains.target_gains(trainings)
    by_name = {gain.name: gain for gain in found}
    headers = ["arm", "reached", f"times as soon as the {first}", "95% interval"]
    headers += ["s from start, median (least to most)", "of them training", "steps"]
    lines = []
    for arm in dict.fromkeys(each.arm for each in trainings):
        own = [each for each in trainings if each.arm == arm]
        reached = [each for each in own if each.is_reached]
        gain = by_name.get(arm)
        ratio = [times(gain.middle), _interval(gain)] if gain else ["1" if arm == first else "", ""]
        seconds = [each.run_s for each in reached if each.run_s is not None]
        shown = ""
        if seconds:
            middle = statistics.median(seconds)
            shown = f"{middle:.2f} ({min(seconds):.2f} to {max(seconds):.2f})"
        train_s = [each.train_s for each in reached if each.train_s is not None]
        steps = [each.num_steps for each in reached if each.num_steps is not None]
        cells = [shown, _median(train_s, ".2f"), _median(steps, ",.0f")]
        lines.append([arm, f"{len(reached)} of {len(own)}", *ratio, *cells])
    title = gains.target_finding(trainings)
    svg = gain_svg(found, title, f"times as soon as the {first}") if found else Markup("")
    return GainFigure(title, svg, headers, lines, run)


def _interval(gain: gains.Gain) -> str:
    return gain.span if gain.ends else "too few " + f"{gain.round_name}s"


def _median(values: Sequence[float], form: str) -> str:
    return format(statistics.median(values), form) if values else ""
