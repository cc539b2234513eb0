"""Tables of what settings gain and of how programs scale over devices.

`ci.site.pages` shows them as sections of the pages Comparison and Scaling.
"""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ci.site.arms import Arm, ArmAlternation, ArmTraining, DeviceCurve
from ci.site.formatting import counted, median_rate, quantity, times
from ci.site.measurements import SuiteRun, measured_at
from ci.site.ratios import Ratio, ratio_between


@dataclass(frozen=True)
class GainTable:
    """A table of one run: its title, its columns, and the cells of each line."""

    title: str
    headers: Sequence[str]
    lines: Sequence[Sequence[str]]
    run: SuiteRun


def settings_tables(runs: Sequence[SuiteRun]) -> list[GainTable]:
    """Return the newest table of each comparison of arms."""
    newest: dict[tuple[str, str, float, str], GainTable] = {}
    for run in sorted(runs, key=measured_at):
        targets: dict[tuple[str, str, float], list[ArmTraining]] = {}
        for training in run.trainings:
            key = (training.env, training.agent, training.target_return)
            targets.setdefault(key, []).append(training)
        for (env, agent, target), trainings in targets.items():
            program = _program(env, agent)
            title = f"{program}: the time to a return of {target:,g}"
            newest[program, "target", target, run.hardware] = _of_trainings(title, trainings, run)
        for each in run.arms:
            sizes = {arm.num_envs for arm in each.arms.values()}
            size = sizes.pop() if len(sizes) == 1 else 0
            program = _program(each.env, each.agent)
            what = "each step of a ladder" if each.is_ladder else "settings"
            where = f" at {counted(size, 'environment')}" if size else ""
            if len(each.arms) > 1:
                title = f"{program}: {what}{where}"
                newest[program, what, size, run.hardware] = _of_arms(title, each, run)
    return [newest[key] for key in sorted(newest)]


def _of_arms(title: str, alternation: ArmAlternation, run: SuiteRun) -> GainTable:
    arms = alternation.arms
    first = next(iter(arms))
    headers = ["arm", f"times the {first}", "95% interval"]
    headers += [*(["times the one before"] if alternation.is_ladder else []), "steps/s", "rounds"]
    before: dict[str, str] = dict.fromkeys(arms, "")
    for one, other in itertools.pairwise(arms):
        before[other] = _gain(ratio_between(arms[other].steps_per_s, arms[one].steps_per_s))[0]
    lines = [
        [
            _label(name, arm),
            *_gain(ratio_between(arm.steps_per_s, arms[first].steps_per_s), is_base=name == first),
            *([before[name]] if alternation.is_ladder else []),
            median_rate(arm.steps_per_s),
            f"{len(arm.steps_per_s)}",
        ]
        for name, arm in arms.items()
    ]
    return GainTable(title, headers, lines, run)


def _of_trainings(title: str, trainings: Sequence[ArmTraining], run: SuiteRun) -> GainTable:
    first = trainings[0].arm
    headers = ["arm", "reached", f"times as soon as the {first}", "95% interval"]
    headers += ["s from start, median (least to most)", "of them training", "steps"]
    of_arm: dict[str, dict[int, ArmTraining]] = {}
    for each in trainings:
        of_arm.setdefault(each.arm, {})[each.seed] = each
    lines = []
    for arm, by_seed in of_arm.items():
        reached = [each for each in by_seed.values() if each.reached_s]
        seeds = [seed for seed in by_seed if seed in of_arm[first]]
        base, own = ([of_arm[name][seed].reached_s for seed in seeds] for name in (first, arm))
        seconds = [each.reached_s for each in reached if each.reached_s]
        span = f" ({min(seconds):.2f} to {max(seconds):.2f})" if seconds else ""
        cells = [
            f"{len(reached)} of {len(by_seed)}",
            *_gain(ratio_between(base, own), is_base=arm == first),
            _median([each.reached_s for each in reached], ".2f") + span,
            _median([each.train_s for each in reached], ".2f"),
            _median([each.num_steps for each in reached], ",.0f"),
        ]
        lines.append([arm, *cells])
    return GainTable(title, headers, lines, run)


def device_tables(runs: Sequence[SuiteRun]) -> list[GainTable]:
    """Return the newest table of each curve over devices."""
    newest: dict[tuple[str, str], GainTable] = {}
    for run in sorted(runs, key=measured_at):
        for curve in run.curves:
            what = ", ".join(filter(None, (curve.scaling, curve.arm)))
            title = f"{_program(curve.env, curve.agent)}: {what}"
            newest[title, run.hardware] = _of_devices(title, curve, run)
    return [newest[key] for key in sorted(newest)]


def _of_devices(title: str, curve: DeviceCurve, run: SuiteRun) -> GainTable:
    """Return the table of a curve. Efficiency is rate(n) / (n / n0 x rate(n0)), n0 the fewest."""
    headers = ["devices", "processes", "environments", "steps/s", "efficiency", "95% interval"]
    headers += ["state on a device", "of it shared out"]
    first, *_ = points = sorted(curve.points, key=lambda point: point.num_devices)
    lines = []
    for point in points:
        ideal = [rate * point.num_devices / first.num_devices for rate in first.steps_per_s]
        counts = [max(each, default=None) for each in (point.state_bytes, point.sharded_bytes)]
        cells = [
            f"{point.devices:,}",
            f"{point.processes:,}",
            f"{point.num_envs:,}",
            median_rate(point.steps_per_s),
            *_gain(ratio_between(point.steps_per_s, ideal), is_base=point is first),
            *("" if count is None else quantity(float(count), "bytes") for count in counts),
        ]
        lines.append(cells)
    return GainTable(title, headers, lines, run)


def _program(env: str, agent: str) -> str:
    return f"{agent} on {env}" if agent else env


def _label(name: str, arm: Arm) -> str:
    """Name an arm; one that changes a single setting is named by it."""
    if len(arm.sets) != 1 or not arm.starts_from:
        return name
    ((setting, value),) = arm.sets.items()
    return f"{arm.starts_from} with {setting} = {value}"


def _gain(ratio: Ratio | None, *, is_base: bool = False) -> list[str]:
    """Write a ratio and its interval; what the others are compared with is 1."""
    if is_base or ratio is None:
        return ["1" if is_base else "", ""]
    return [times(ratio.middle), ratio.interval]


def _median(values: Sequence[float | None], form: str) -> str:
    measured = [value for value in values if value is not None]
    return format(statistics.median(measured), form) if measured else ""
