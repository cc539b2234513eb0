"""What the page of settings says of arms: the findings, the charts and their tables."""

import pytest

from ci.site.arms import ArmAlternation, ArmTraining, read_alternation, read_training
from ci.site.gains import (
    gains,
    ladder_finding,
    settings_finding,
    steps_between,
    target_finding,
    target_gains,
)
from ci.site.measurements import read_measurements
from ci.site.pages.settings import settings_page
from made_up_arms import arm_samples, write_arms

SVG = "{http://www.w3.org/2000/svg}"


def settings(num_rounds=7, **rates) -> ArmAlternation:
    samples = arm_samples(num_rounds)[0]
    for name, rate in rates.items():
        rising = [rate + place for place in range(num_rounds)] if isinstance(rate, float) else rate
        samples["arms"][name]["steps_per_s"] = rising
    return read_alternation(samples)


def ladder() -> ArmAlternation:
    return read_alternation(arm_samples()[1])


def trainings(num_seeds=7, **columns) -> list[ArmTraining]:
    found = arm_samples(num_seeds)[2:]
    for each in found:
        if each["arm"] == "fast":
            each["columns"] |= columns
    return [read_training(each) for each in found]


@pytest.mark.parametrize(
    ("found", "finding", "names_a_part"),
    [
        (
            settings(),
            "fast: 6.0 times the baseline's steps/s (6.0 to 6.0); most of it passes = 1 (4.0)",
            True,
        ),
        (settings(fast=50.0), "fast: 0.51 times the baseline's", False),
        (settings(fast=[90.0, 120.0, 95.0, 110.0, 101.0, 99.0, 130.0]), "fast is neither", False),
        (settings(num_rounds=3), "in 3 rounds, too few for an interval", True),
    ],
    ids=["faster", "slower", "unclear", "few rounds"],
)
def test_the_finding_is_the_whole_s_gain_and_its_largest_part(found, finding, names_a_part):
    assert finding in settings_finding(found)
    assert ("passes" in settings_finding(found)) is names_a_part


def test_wholes_come_before_single_settings_which_carry_their_values():
    assert [gain.label for gain in gains(settings())] == [
        "fast",
        "baseline with passes = 1",
        "baseline with rate = 0.002",
        "fast with passes = 8",
        "fast with rate = 0.001",
    ]


def test_a_ladder_says_its_size_and_which_rung_gains_most():
    assert ladder_finding(ladder()) == (
        "one program: 350 times the host loop's steps/s at 64 environments (350 to 350); "
        "most of it one step (70)"
    )
    assert [gain.middle for gain in steps_between(ladder())] == pytest.approx([70, 5])


def test_the_first_to_the_target_reached_it_every_time_and_misses_are_counted():
    assert target_finding(trainings()) == (
        "fast reaches a return of 850 1.33 times as soon as the baseline (1.32 to 1.33), "
        "12.3 s against 16.3 s from the start of a process; hasty missed it in 6 of 7 trainings"
    )
    (one_seed,) = [gain for gain in target_gains(trainings()) if gain.name == "hasty"]
    assert len(one_seed.ratios) == 1


def test_no_arm_comes_first_that_is_later_or_never_there():
    assert "No arm reaches a return of 850 clearly sooner" in target_finding(trainings(run_s=20.0))
    broken_off = trainings(status="failed", run_s="", num_steps="")
    assert "fast missed it in 7 of 7 trainings" in target_finding(broken_off)


def test_the_page_has_a_table_under_each_chart_and_the_newest_run_counts(tmp_path):
    write_arms(tmp_path)
    runs = read_measurements([tmp_path]).runs
    ((title, figures),) = settings_page([*runs, *runs])["sections"].items()
    assert title == "walker on maze"
    assert [len(figure.lines) for figure in figures] == [3, 6, 3]
    for figure in figures:
        assert figure.svg
        assert {len(line) for line in figure.lines} == {len(figure.headers)}
    assert figures[0].lines[2][:2] == ["hasty", "1 of 7"]
    assert figures[2].headers[3] == "times the rung before"
