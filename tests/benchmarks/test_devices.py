"""The suite of several devices: its places, its rows, its refusals, and its plot."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import pytest

from benchmarks import devices
from benchmarks.devices import Place, curves, main, state_bytes
from benchmarks.harness.results import read_csv
from benchmarks.harness.workload import Workload

TRAINING = Workload("devices", "small", "cartpole-control", "ppo", 32, 16, ("quick",))
ROLLOUT = dataclasses.replace(TRAINING, name="rollout", agent="random")


@pytest.fixture
def two_cores(monkeypatch):
    """A machine that says that it has two cores: devices may share one here, since none is fast."""
    columns = {"library": "myriad", "device": "cpu", "device_name": "A Processor", "cores": 2}
    monkeypatch.setattr(devices, "machine", lambda: {"columns": columns, "usable_devices": 2})
    monkeypatch.setattr(devices, "_SAMPLE_S", 0.001)


def test_strong_scaling_keeps_the_environments_and_processes_share_the_devices_out():
    found = curves(32, [1, 2, 3], [1, 2])
    one = Place(1, 32)
    assert found == {
        "strong": [one, Place(2, 32), Place(3, 32)],
        "weak": [one, Place(2, 64), Place(3, 96)],
        "strong, 2 processes": [one, Place(2, 32, 2)],
        "weak, 2 processes": [one, Place(2, 64, 2)],
    }
    assert Place(2, 32, 2).devices_of_one == 1


def test_weak_scaling_changes_the_environments_and_nothing_else():
    one, eight = (
        devices.training_config(TRAINING, Place(n, n * TRAINING.num_envs)) for n in (1, 8)
    )
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
    whole, sharded = state_bytes(state)
    assert sharded == [8 * 3 * 4 // 2] * 2
    assert whole == [8 * 3 * 4 // 2 + 5 * 4 + key_bytes] * 2


@pytest.mark.slow
def test_each_number_of_devices_has_a_row_and_its_share_of_the_state(
    declare, tmp_path, capsys, two_cores, monkeypatch
):
    strong = {name: each for name, each in curves(32, [1, 2], [1, 2]).items() if "strong" in name}
    monkeypatch.setattr(devices, "curves", lambda *_: strong)
    declare(ROLLOUT)
    assert main(["--rounds", "2", "--output", str(tmp_path / "d.csv")]) == 0
    rows = read_csv(tmp_path / "d.csv")
    assert [(row["arm"], row["devices"], row["processes"], row["num_envs"]) for row in rows] == [
        ("strong", "1", "1", "32"),
        ("strong", "2", "1", "32"),
        ("strong, 2 processes", "1", "1", "32"),
        ("strong, 2 processes", "1", "2", "32"),
    ]
    assert int(rows[1]["sharded_bytes"]) == int(rows[3]["sharded_bytes"]) > 0
    assert [row["efficiency"] for row in rows[::2]] == ["1.0"] * 2
    assert "efficiency (least to most)" in capsys.readouterr().out
    samples = json.loads((tmp_path / "d_samples.json").read_text())["alternations"]
    assert [point["devices"] for point in samples[0]["points"]] == [1, 2]


@pytest.mark.slow
def test_a_place_that_fails_is_a_row_with_its_reason(declare, tmp_path, two_cores):
    declare(dataclasses.replace(ROLLOUT, env="examples.my_environment:NoSuchCar"))
    assert main(["--rounds", "1", "--output", str(tmp_path / "d.csv")]) == 1
    (row,) = read_csv(tmp_path / "d.csv")
    assert row["status"] == "failed"
    assert row["reason"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--devices", "4"], "--devices must be at most 2"),
        (
            ["--env", "pendulum"],
            "declares no devices of any agent in pendulum-control; there are ppo in",
        ),
        (["--devices", "0"], "must be a whole number of at least 1"),
    ],
)
def test_what_can_not_be_measured_is_one_sentence(
    declare, tmp_path, capsys, two_cores, arguments, says
):
    declare(TRAINING)
    assert main([*arguments, "--output", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
