"""The model of devices beyond this machine: its formulas, what it reads of a program, its table."""

import csv
import dataclasses
import math

import jax
import jax.numpy as jnp
import pytest

from benchmarks import communication
from benchmarks.communication import (
    Collective,
    MeasuredTraining,
    Network,
    collectives_of,
    estimated,
    main,
    table,
)
from myriad.agents.shards import SHARD_AXIS, Shards, shard_mesh

# A step takes a second, and so does a byte.
SLOW = Network("slow", 1.0, 1.0)
INSTANT = Network("instant", math.inf, 0.0)


@pytest.mark.parametrize(
    ("primitive", "algorithm", "num_devices", "seconds"),
    [
        ("all_gather", "ring", 8, 7 + 7 * 10),
        ("all_gather", "tree", 8, 3 + 7 * 10),
        ("psum", "ring", 8, 2 * 7 + 2 * 7 / 8 * 10),
        ("psum", "tree", 8, 2 * 3 + 2 * 7 / 8 * 10),
        ("psum", "tree", 1_024, 2 * 10 + 2 * 1_023 / 1_024 * 10),
    ],
)
def test_a_collective_takes_what_the_formula_says(primitive, algorithm, num_devices, seconds):
    collective = Collective(primitive, 10, times=3)
    assert collective.seconds(num_devices, SLOW, algorithm) == pytest.approx(3 * seconds)


def test_efficiency_is_the_share_that_is_a_device_s_own_work():
    alone = MeasuredTraining("exact", [77.0], [Collective("all_gather", 10, 1)], {})
    assert alone.efficiency(8, SLOW, "ring") == pytest.approx(0.5)
    assert alone.efficiency(8, INSTANT, "ring") == 1.0
    adding = dataclasses.replace(alone, adding_s={8: 77.0})
    assert adding.efficiency(8, INSTANT, "ring") == pytest.approx(0.5)


def test_the_most_devices_are_the_last_power_of_two_before_four_fifths_are_lost():
    # Two devices have one step of 11 s, and four three of them.
    training = MeasuredTraining("exact", [50.0], [Collective("all_gather", 10, 1)], {})
    found, _ = estimated([training], [SLOW], [4])
    assert found.algorithm == "ring"
    assert found.most_devices == 2
    assert found.efficiency == pytest.approx(50 / 83)
    assert "| 0.60 |" in " ".join(table([found], [4]).split())


@pytest.mark.parametrize(("reduction", "primitive"), [("exact", "all_gather"), ("fast", "psum")])
def test_a_gradient_step_counts_as_often_as_its_scan_has_it(reduction, primitive):
    mean = Shards(4, reduction).mean

    def train(gradients):
        return jax.lax.scan(lambda carry, _: (carry, mean(gradients)), 0, None, length=6)[1]

    by_shard = jax.P(SHARD_AXIS)
    sharded = jax.shard_map(
        train, mesh=shard_mesh(1), in_specs=by_shard, out_specs=jax.P(), check_vma=False
    )
    (found,) = collectives_of(jax.jit(sharded).trace(jnp.ones((4, 5))).jaxpr.jaxpr, 4)
    assert found.primitive.startswith(primitive)
    # Of one shard where they are gathered, and of their sum where it is reduced.
    assert (found.num_bytes, found.times) == (5 * 4, 6)


@pytest.mark.slow
def test_the_command_measures_and_writes_a_row_for_each_cell(monkeypatch, tmp_path, capsys):
    argv = ["--num-envs", "16", "--num-shards", "2", "--devices", "2", "4", "--rounds", "2"]
    # This process has two devices, and the model measures one of them.
    monkeypatch.setattr("myriad.configure", lambda *_: None)
    assert main([*argv, "--output", str(tmp_path / "c.csv")]) == 0
    said = capsys.readouterr().out
    assert "exact: a shard's part of an update takes" in said
    assert "gradient steps of" in said
    assert "bytes by all_gather" in said
    assert "bytes by psum" in said
    with (tmp_path / "c.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(communication.NETWORKS) * 2 * 2 * 2
    assert all(0 < float(row["efficiency"]) < 1 for row in rows)
    assert {row["network"] for row in rows} == {each.name for each in communication.NETWORKS}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--devices", "6"], "--devices must be powers of two from 2 on, but got 6"),
        (["--devices", "1"], "--devices must be powers of two from 2 on, but got 1"),
        (["--agent", "dqn"], "--agent must be one of ppo, pqn, but got dqn"),
        (["--num-shards", "1"], "--num-shards must be at least 2, but got 1"),
        (["--latency-us", "5"], "--bandwidth-gbit must be a number above 0"),
        (["--bandwidth-gbit", "-1", "--latency-us", "5"], "--bandwidth-gbit must be a number"),
    ],
)
def test_bad_input_is_one_sentence(arguments, says, capsys):
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
