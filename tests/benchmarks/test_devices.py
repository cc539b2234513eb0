"""Scaling over devices: its points, its rows and its refusals."""

import dataclasses

import pytest

from benchmarks.harness import device_scaling
from benchmarks.harness.device_scaling import Point, curves
from benchmarks.harness.results import read_csv
from benchmarks.harness.workload import Workload
from benchmarks.throughput import main

TRAINING = Workload("devices", "small", "cartpole-control", "ppo", 32, 16, ("quick",))
ROLLOUT = dataclasses.replace(TRAINING, name="rollout", agent="random")


@pytest.fixture
def two_cores(monkeypatch):
    """A machine that says that it has two cores: devices may share one here, since none is fast."""
    columns = {"library": "myriad", "device": "cpu", "device_name": "A Processor", "cores": 2}
    here = {"columns": columns, "usable_devices": 2}
    monkeypatch.setattr(device_scaling, "machine", lambda: here)
    monkeypatch.setattr(device_scaling, "_SAMPLE_S", 0.001)


def test_strong_scaling_keeps_the_environments_and_weak_scaling_those_of_a_device():
    assert curves(32, [2, 3]) == {
        "strong": [Point(1, 32), Point(2, 32), Point(3, 32)],
        "weak": [Point(1, 32), Point(2, 64), Point(3, 96)],
    }


@pytest.mark.slow
def test_each_number_of_devices_has_a_row_and_what_fails_its_reason(
    declare, tmp_path, capsys, two_cores, monkeypatch
):
    strong = {"strong": curves(32, [1, 2])["strong"]}
    monkeypatch.setattr(device_scaling, "curves", lambda *_: strong)
    absent = dataclasses.replace(ROLLOUT, name="absent", env="examples.my_environment:NoSuchCar")
    declare(ROLLOUT, absent)
    assert main(["--devices", "--rounds", "2", "--output", str(tmp_path / "d.csv")]) == 1
    one, two, failed = read_csv(tmp_path / "d.csv")
    columns = ("suite", "arm", "processes", "num_envs", "scan_chunk_size", "devices")
    assert [one[name] for name in columns] == ["devices", "strong", "1", "32", "16", "1"]
    assert [two[name] for name in columns] == ["devices", "strong", "1", "32", "16", "2"]
    assert one["efficiency"] == "1.0"
    assert "efficiency (least to most)" in capsys.readouterr().out
    assert failed["status"] == "failed"
    assert failed["reason"]


def test_more_devices_than_cores_are_refused(declare, tmp_path, capsys, two_cores):
    declare(TRAINING)
    assert main(["--devices", "4", "--output", str(tmp_path)]) == 2
    assert "--devices must be at most 2" in capsys.readouterr().err
