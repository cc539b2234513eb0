"""The suite of presets: its arms, its ladder, and its rows, at a reduced size."""

import dataclasses
import json

import pytest

from benchmarks import presets
from benchmarks.harness.results import read_csv
from benchmarks.harness.rungs import Ladder
from benchmarks.harness.workloads import load
from benchmarks.presets import AS_DOCUMENTED, Arm, arms, config_of, main
from myriad import create_config

DECLARED = load().trainings["presets"]
PPO = DECLARED["cartpole-ppo"]
QUICK_RUNGS = ["jitted step", "no sync", "scanned rollout", "one program", "chunk of updates"]


@pytest.mark.parametrize("workload", DECLARED)
def test_every_arm_is_a_configuration(workload):
    declared = DECLARED[workload]
    found = {arm.name: arm for arm in arms(declared, full=True)}
    assert list(found)[:4] == ["baseline", "optimized", "ultra_fast", "as_documented"]
    assert "baseline without donation" in found
    configs = {name: config_of(declared, arm) for name, arm in found.items()}
    for field, value in AS_DOCUMENTED[declared.agent].items():
        assert configs["as_documented"].value_of(field) == value
    assert found["baseline without donation"].settings == {"donation": False}
    assert all(json.dumps(arm.settings) for arm in found.values())
    singles = [name for name in found if name.startswith("baseline + num_envs")]
    without = found["ultra_fast - num_envs"]
    assert singles
    assert config_of(declared, without).num_envs == configs["baseline"].num_envs


ROLLOUT = {"rollout_steps": 4, "agent.num_minibatches": 2, "agent.num_epochs": 1}
SMALL = {"pqn": ROLLOUT, "ppo": ROLLOUT, "dqn": {"buffer_size": 256, "agent.learning_starts": 32}}


def small(agent):
    options = SMALL[agent] | {"agent.hidden_sizes": (8,)}
    return create_config("cartpole-control", agent, num_envs=8, total_steps=640, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "skipped"),
    [
        ("pqn", ["host loop"]),  # it compiles every operation by itself
        pytest.param("ppo", [], marks=pytest.mark.long),
        pytest.param("dqn", [], marks=pytest.mark.long),
    ],
)
def test_every_rung_does_the_same_updates(agent, skipped):
    ladder = Ladder(small(agent), num_updates=2)
    rungs = ladder.rungs()
    expected = [name for name in QUICK_RUNGS if agent != "dqn" or name != "scanned rollout"]
    assert list(rungs) == ["host loop", *expected]
    ends = {name: rung(ladder.state()) for name, rung in rungs.items() if name not in skipped}
    counts = {name: int(state.num_updates) for name, state in ends.items()}
    assert len(set(counts.values())) == 1, counts
    lengths = {name: int(state.batch_state.episode_length.sum()) for name, state in ends.items()}
    assert all(length > 0 for length in lengths.values())


@pytest.mark.slow
def test_the_command_writes_a_row_for_every_arm_rung_and_seed(
    declare, monkeypatch, tmp_path, capsys
):
    declare(PPO)
    monkeypatch.setattr(presets, "config_of", lambda *_: small("pqn"))
    monkeypatch.setattr(presets, "_LADDER_ENVS", (8,))
    two = QUICK_RUNGS[-2:]  # the test above climbs all of them
    all_of = Ladder.rungs
    monkeypatch.setattr(Ladder, "rungs", lambda self: {name: all_of(self)[name] for name in two})
    monkeypatch.setattr(presets, "_SAMPLE_S", 0.01)
    short = [Arm("baseline"), Arm("once", donates=False)]
    monkeypatch.setattr(presets, "arms", lambda declared, full: short)
    flags = ["--part", "knobs", "--part", "ladder", "--rounds", "3"]
    assert main([*flags, "--output", str(tmp_path / "p.csv")]) == 0
    rows = read_csv(tmp_path / "p.csv")
    arms_of_rows = ["baseline", "once", *(f"ladder: {name}" for name in two)]
    assert [row["arm"] for row in rows] == arms_of_rows
    assert all(float(row["steps_per_s_low"]) > 0 and row["status"] == "ok" for row in rows)
    assert "times baseline (least to most)" in capsys.readouterr().out
    samples = json.loads((tmp_path / "p_samples.json").read_text())["alternations"]
    assert [list(each["arms"]) for each in samples] == [["baseline", "once"], two]


def test_presets_are_timed_to_the_target_from_the_start_of_a_process(
    declare, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(
        presets,
        "trained",
        lambda fields: {
            "row": presets.machine_columns()
            | {"num_steps": 64, "run_s": 1.0, "peak_bytes": 1 << 20, "steps_per_s": 9.0},
            "train_s": 0.5,
        },
    )
    declare(dataclasses.replace(PPO, target_return=9.0))
    assert main(["--part", "target", "--seeds", "1", "--output", str(tmp_path / "p.csv")]) == 0
    rows = read_csv(tmp_path / "p.csv")
    assert [row["arm"] for row in rows] == ["baseline", "optimized", "ultra_fast"]
    assert "1 of 1" in capsys.readouterr().out
    samples = json.loads((tmp_path / "p_samples.json").read_text())["alternations"]
    assert {each["columns"]["run_s"] for each in samples} == {1.0}
