"""Scaling over devices: its points, its rows and its refusals."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import pytest

from benchmarks.harness import device_scaling
from benchmarks.harness.device_scaling import Point, curves, state_bytes, training_config
from benchmarks.harness.workload import Workload
from benchmarks.throughput import main
from tests.benchmarks.csv_rows import read_csv

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


def test_weak_scaling_changes_the_environments_and_nothing_else():
    one, eight = (training_config(TRAINING, Point(n, n * TRAINING.num_envs)) for n in (1, 8))
    assert eight.num_envs == 8 * one.num_envs
    for name in ("agent_options", "batch_size", "steps_per_env"):
        assert getattr(one, name) == getattr(eight, name)
    assert one.learner.steps_per_update == eight.learner.steps_per_update


def test_bytes_are_counted_for_each_device_and_for_what_is_sharded():
    mesh = jax.make_mesh((2,), ("shard",))
    state = {
        "envs": jax.device_put(jnp.zeros((8, 3)), jax.NamedSharding(mesh, jax.P("shard"))),
        "params": jax.device_put(jnp.zeros(5), jax.NamedSharding(mesh, jax.P())),
        "key": jax.device_put(jax.random.key(0), jax.NamedSharding(mesh, jax.P())),
    }
    key_bytes = jax.random.key_data(state["key"]).nbytes
    assert state_bytes(state) == {
        "state_bytes": [8 * 3 * 4 // 2 + 5 * 4 + key_bytes] * 2,
        "sharded_bytes": [8 * 3 * 4 // 2] * 2,
    }


@pytest.mark.slow
def test_each_number_of_devices_has_a_row_and_its_share_of_the_state(
    declare, tmp_path, capsys, two_cores, monkeypatch
):
    strong = {"strong": curves(32, [1, 2])["strong"]}
    monkeypatch.setattr(device_scaling, "curves", lambda *_: strong)
    declare(ROLLOUT)
    assert main(["--devices", "--rounds", "2", "--output", str(tmp_path / "d.csv")]) == 0
    one, two = read_csv(tmp_path / "d.csv")
    columns = ("suite", "arm", "devices", "processes", "num_envs", "scan_chunk_size")
    assert [one[name] for name in columns] == ["devices", "strong", "1", "1", "32", "16"]
    assert [two[name] for name in columns] == ["devices", "strong", "2", "1", "32", "16"]
    assert int(two["sharded_bytes"]) > 0
    assert one["efficiency"] == "1.0"
    assert "efficiency (least to most)" in capsys.readouterr().out
    samples = json.loads((tmp_path / "d_samples.json").read_text())["alternations"]
    assert [point["devices"] for point in samples[0]["points"]] == [1, 2]


@pytest.mark.slow
def test_a_program_that_fails_is_a_row_with_its_reason(declare, tmp_path, two_cores):
    declare(dataclasses.replace(ROLLOUT, env="examples.my_environment:NoSuchCar"))
    assert main(["--devices", "--rounds", "1", "--output", str(tmp_path / "d.csv")]) == 1
    (row,) = read_csv(tmp_path / "d.csv")
    assert row["status"] == "failed"
    assert row["reason"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["4"], "--devices must be at most 2"),
        (["--env", "pendulum"], "declares no devices of any agent in pendulum-control; there are"),
    ],
)
def test_what_can_not_be_measured_is_one_sentence(
    declare, tmp_path, capsys, two_cores, arguments, says
):
    declare(TRAINING)
    assert main(["--devices", *arguments, "--output", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
