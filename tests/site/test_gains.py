"""What the tables of settings and of devices say, and that a damaged file is left out."""

from ci.site.arms import ArmAlternation
from ci.site.measurements import read_measurements
from ci.site.pages.gains import device_tables, settings_tables
from made_up_arms import arm_samples, write_arms

ROUNDS = 7


def runs(folder, samples=None):
    write_arms(folder, samples)
    return read_measurements([folder]).runs


def point(devices, share=1.0, **changed):
    rates = [100.0 * devices * share * (1 + 0.01 * place) for place in range(ROUNDS)]
    shared = 4_096 // devices
    return {
        "devices": devices,
        "processes": 1,
        "num_envs": 64,
        "state_bytes": [shared + 500] * devices,
        "sharded_bytes": [shared] * devices,
        "steps_per_s": rates,
    } | changed


def curve(*points, **changed):
    named = {"env": "maze", "agent": "walker", "scaling": "strong", "arm": "exact"}
    return named | {"points": list(points)} | changed


def test_an_arm_stands_beside_the_first_and_one_setting_names_it(tmp_path):
    found = runs(tmp_path)
    # the newest run counts
    ladder, settings, target = settings_tables([*found, *found])
    assert settings.title == "walker on maze: settings"
    assert settings.headers == ["arm", "times the baseline", "95% interval", "steps/s", "rounds"]
    assert settings.lines[:3] == [
        ["baseline", "1", "", "103", "7"],
        ["fast", "6.0", "6.0 to 6.0", "618", "7"],
        ["baseline with passes = 1", "4.0", "3.8 to 4.2", "412", "7"],
    ]
    assert ladder.title == "walker on maze: each step of a ladder at 64 environments"
    assert [(line[1], line[3]) for line in ladder.lines] == [
        ("1", ""),
        ("70", "70"),
        ("350", "5.0"),
    ]
    assert target.title == "walker on maze: the time to a return of 850"
    assert [line[:4] for line in target.lines] == [
        ["baseline", "7 of 7", "1", ""],
        ["fast", "7 of 7", "1.33", "1.32 to 1.33"],
        ["hasty", "1 of 7", "1.78", "too few rounds"],
    ]
    assert target.lines[0][4:] == ["16.30 (16.00 to 16.60)", "8.00", "1,000"]


def test_trainings_that_broke_off_have_neither_ratio_nor_seconds(tmp_path):
    samples = arm_samples()
    for each in samples[2:]:
        if each["arm"] == "fast":
            each["columns"] = {"status": "failed", "run_s": "", "num_steps": ""}
    *_, target = settings_tables(runs(tmp_path, samples))
    assert target.lines[1] == ["fast", "0 of 7", "", "", "", "", ""]


def test_a_curve_has_a_line_for_each_number_of_devices(tmp_path):
    weak = curve(point(1), point(2, 0.5, processes=4), scaling="weak")
    found = runs(tmp_path, [curve(point(2, 0.9), point(1)), weak])
    strong, weak = device_tables([*found, *found])
    assert strong.title == "walker on maze: strong, exact"
    assert strong.lines == [
        ["1", "1", "64", "103", "1", "", "4.49 KiB", "4 KiB"],
        ["2", "1", "64", "185", "0.90", "0.90 to 0.90", "2.49 KiB", "2 KiB"],
    ]
    # devices of several processes count together
    assert weak.lines[1][:2] + weak.lines[1][4:5] == ["2", "4", "0.12"]


def test_a_switch_is_on_or_off():
    arm = {"num_envs": 1, "steps_per_s": [1.0], "starts_from": "a", "sets": {"b": False}}
    read = ArmAlternation(env="maze", agent="", arms={"a": arm})  # pyright: ignore[reportArgumentType]
    assert read.arms["a"].sets == {"b": "off"}
