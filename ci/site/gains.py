"""What arms gain over the first of them, and the finding in one sentence, computed from the rounds.

`ci.site.pages.settings` calls it with what `ci.site.arms` read.
"""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ci.site.arms import Arm, ArmAlternation, ArmTraining
from ci.site.formatting import counted, times
from ci.site.speedups import median_interval


@dataclass(frozen=True)
class Gain:
    """How many times as fast as the first arm an arm is.

    Attributes:
        name: the arm's name.
        label: what the pages call it.
        ratios: one per round.
        round_name: what a round is: a round, or a seed.
    """

    name: str
    label: str
    ratios: Sequence[float]
    round_name: str = "round"

    @property
    def middle(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.ratios)

    @property
    def ends(self) -> tuple[float, float] | None:
        """The ends of the 95% interval, None where there are too few rounds for one."""
        low, high = median_interval(self.ratios)
        return None if low is None or high is None else (low, high)

    @property
    def span(self) -> str:
        """The interval, or else the least and the most of the rounds."""
        low, high = self.ends or (min(self.ratios), max(self.ratios))
        text = f"{times(low)} to {times(high)}"
        if self.ends:
            return text
        return f"{text} in {counted(len(self.ratios), self.round_name)}, too few for an interval"

    @property
    def is_clear(self) -> bool:
        """Whether all of the span is on one side of 1."""
        low, high = self.ends or (min(self.ratios), max(self.ratios))
        return low > 1 or high < 1


def gains(alternation: ArmAlternation) -> list[Gain]:
    """Return what each arm but the first gains.

    Those with one setting changed come last: from the first arm, and then from others.
    """
    first, *others = alternation.arms
    if not alternation.is_ladder:
        singles = [arm for arm in others if len(arm.sets) == 1]
        others = [arm for arm in others if arm not in singles]
        others += sorted(singles, key=lambda arm: arm.starts_from != first.name)
    return [_gain(arm, first) for arm in others]


def steps_between(alternation: ArmAlternation) -> list[Gain]:
    """Return what each rung of a ladder gains over the one before it."""
    rungs = alternation.arms
    return [_gain(rung, before) for before, rung in itertools.pairwise(rungs)]


def target_gains(trainings: Sequence[ArmTraining]) -> list[Gain]:
    """Return how many times as soon as the first arm each other one reaches the target, by seed.

    An arm without a seed in which both reach it is left out.
    """
    first = trainings[0].arm
    reached: dict[str, dict[int, float]] = {}
    for each in trainings:
        if each.is_reached and each.run_s is not None:
            reached.setdefault(each.arm, {})[each.seed] = each.run_s
    base = reached.pop(first, {})
    found = []
    for arm, seconds in reached.items():
        ratios = [base[seed] / own for seed, own in seconds.items() if seed in base]
        if ratios:
            found.append(Gain(arm, arm, ratios, "seed"))
    return found


def settings_finding(alternation: ArmAlternation) -> str:
    """Say what the arm with the most settings gains, and which setting gains most of that alone."""
    first, *others = alternation.arms
    gain_of = {gain.name: gain for gain in gains(alternation)}
    singles = [arm for arm in others if len(arm.sets) == 1]
    # From a whole, others start that lack one of its settings.
    started = {arm.starts_from for arm in singles} - {first.name}
    wholes = [arm for arm in others if arm.name in started] or others
    best = max((gain_of[arm.name] for arm in wholes), key=lambda gain: gain.middle)
    if not best.is_clear:
        return (
            f"{best.label} is neither clearly faster nor slower than the {first.name}: "
            f"{times(best.middle)} times its steps/s ({best.span})"
        )
    text = (
        f"{best.label}: {times(best.middle)} times the {first.name}'s steps/s"
        f"{_where(alternation)} ({best.span})"
    )
    held = {key for arm in singles if arm.starts_from == best.name for key in arm.sets}
    alone = {
        _setting(arm.sets): gain_of[arm.name]
        for arm in singles
        if arm.starts_from == first.name and arm.sets.keys() <= held
    }
    return text + _largest_part(alone, best)


def ladder_finding(alternation: ArmAlternation) -> str:
    """Say what the last rung gains over the first, and which rung gains most of that."""
    first = alternation.arms[0]
    last = gains(alternation)[-1]
    text = (
        f"{last.label}: {times(last.middle)} times the {first.name}'s steps/s"
        f"{_where(alternation)} ({last.span})"
    )
    return text + _largest_part({gain.label: gain for gain in steps_between(alternation)}, last)


def target_finding(trainings: Sequence[ArmTraining]) -> str:
    """Say which arm reaches the target first, and which ones missed it."""
    first = trainings[0].arm
    target = f"a return of {trainings[0].target_return:,g}"
    missed = {
        arm: sum(not each.is_reached for each in trainings if each.arm == arm)
        for arm in dict.fromkeys(each.arm for each in trainings)
    }
    found = target_gains(trainings)
    whole = [gain for gain in found if not missed[gain.name]] or found
    text = f"No arm can be compared with the {first} on the way to {target}"
    if whole:
        best = max(whole, key=lambda gain: gain.middle)
        own, base = (statistics.median(_seconds(trainings, arm)) for arm in (best.name, first))
        text = f"{best.label} reaches {target} {times(best.middle)} times as soon as the {first}"
        if not best.is_clear or best.middle < 1:
            text = (
                f"No arm reaches {target} clearly sooner than the {first}: {best.label} is nearest"
            )
        text += f" ({best.span}), {own:.1f} s against {base:.1f} s from the start of a process"
    lost = [
        f"; {arm} missed it in {count} of {sum(each.arm == arm for each in trainings)} trainings"
        for arm, count in missed.items()
        if count
    ]
    return text + "".join(lost)


def _seconds(trainings: Sequence[ArmTraining], arm: str) -> list[float]:
    return [
        each.run_s
        for each in trainings
        if each.arm == arm and each.is_reached and each.run_s is not None
    ]


def _gain(arm: Arm, first: Arm) -> Gain:
    label = arm.name
    if len(arm.sets) == 1 and arm.starts_from != arm.name:
        label = f"{arm.starts_from} with {_setting(arm.sets)}"
    return Gain(arm.name, label, [a / b for a, b in zip(arm.rates, first.rates, strict=True)])


def _setting(sets: Mapping[str, str]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in sets.items())


def _where(alternation: ArmAlternation) -> str:
    return f" at {counted(alternation.num_envs, 'environment')}" if alternation.num_envs else ""


def _largest_part(parts: Mapping[str, Gain], whole: Gain) -> str:
    """Say which part of a gain is the largest, where one of them is clear."""
    clear = {name: gain for name, gain in parts.items() if gain.is_clear and gain.middle > 1}
    if not clear or whole.middle <= 1:
        return ""
    name, part = max(clear.items(), key=lambda item: item[1].middle)
    # Factors multiply, so shares are those of the logarithms.
    share = math.log(part.middle) / math.log(whole.middle)
    if share >= 1:
        return f"; {name} alone reaches {times(part.middle)}"
    word = "most of it" if share > 0.5 else "its largest part"
    return f"; {word} {name} ({times(part.middle)})"
