"""The page of devices shows what curves over devices reach, and leaves out what is damaged."""

import pytest

from ci.site.device_scaling import read_curve
from ci.site.measurements import read_measurements
from ci.site.pages.devices import HEADERS, devices_page, finding_of
from made_up_arms import write_arms

ROUNDS = 7


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


@pytest.mark.parametrize(
    ("points", "finding"),
    [
        (
            [point(4, 0.7), point(1), point(2, 0.9)],
            "strong, exact: 4 devices reach 0.70 of the ideal (0.70 to 0.70)",
        ),
        # devices of several processes count together
        ([point(1), point(2, 0.5, processes=4)], "strong, exact: 8 devices reach 0.12 of"),
        ([point(1)], "strong, exact: measured on 1 device alone"),
        (
            [point(1, steps_per_s=[100.0, 110.0]), point(2, steps_per_s=[100.0, 110.0])],
            "in 2 rounds, too few for an interval",
        ),
    ],
)
def test_the_finding_is_what_the_most_devices_reach(points, finding):
    assert finding in finding_of(read_curve(curve(*points)))


def test_the_newest_run_of_a_curve_has_a_line_for_each_number_of_devices(tmp_path):
    weak = curve(point(1), point(2, 0.95), scaling="weak")
    write_arms(tmp_path, [curve(point(1), point(2, 0.9)), weak])
    runs = read_measurements([tmp_path]).runs
    plots = ["plots/device_scaling.png", "plots/memory_scaling.png"]
    page = devices_page([*runs, *runs], plots)
    ((title, tables),) = page["sections"].items()
    assert title == "walker on maze"
    assert [each.finding.partition(":")[0] for each in tables] == ["strong, exact", "weak, exact"]
    one, two = tables[0].lines
    assert len(one) == len(two) == len(HEADERS)
    assert one[0] == "1"
    assert two[:1] + two[4:6] == ["2", "0.90", "0.90 to 0.90"]
    assert (one[-1], two[-1]) == ("4 KiB", "2 KiB")
    assert page["plots"] == plots[:1]


@pytest.mark.parametrize(
    "damaged",
    [
        curve(),
        curve(point(1) | {"devices": 0}),
        curve(point(1, steps_per_s=[])),
        curve(point(1), point(2, steps_per_s=[1.0])),
        curve(point(1, sharded_bytes=[-1])),
    ],
    ids=["no points", "no devices", "no rounds", "other rounds", "bytes below 0"],
)
def test_a_damaged_file_is_left_out_and_named(tmp_path, damaged):
    write_arms(tmp_path, [damaged])
    found = read_measurements([tmp_path])
    assert not found.runs
    assert [name.rpartition("/")[2] for name in found.unreadable] == ["arms_samples.json"]
