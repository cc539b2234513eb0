"""The suite of presets: its variants and its rows, at a reduced size."""

import dataclasses
import json

import pytest

from benchmarks import presets
from benchmarks.harness import trainings
from benchmarks.harness.results import read_csv
from benchmarks.harness.workloads import load
from benchmarks.presets import AS_DOCUMENTED, Variant, config_of, main, variants
from myriad import create_config

DECLARED = load().trainings["presets"]
PPO = DECLARED["cartpole-ppo"]


@pytest.mark.parametrize("workload", DECLARED)
def test_every_variant_is_a_configuration(workload):
    declared = DECLARED[workload]
    found = {each.name: each for each in variants(declared, full=True)}
    assert list(found)[:4] == ["baseline", "optimized", "ultra_fast", "as_documented"]
    assert "baseline without donation" in found
    configs = {name: config_of(declared, each) for name, each in found.items()}
    for field, value in AS_DOCUMENTED[declared.agent].items():
        assert configs["as_documented"].value_of(field) == value
    assert not found["baseline without donation"].donates
    assert all(json.dumps(dataclasses.asdict(each)) for each in found.values())
    singles = [name for name in found if name.startswith("baseline + num_envs")]
    without = found["ultra_fast - num_envs"]
    assert singles
    assert config_of(declared, without).num_envs == configs["baseline"].num_envs


@pytest.mark.slow
def test_variants_are_timed_in_turns_and_presets_to_a_target_that_the_guides_sizes_may_miss(
    declare, monkeypatch, tmp_path, capsys
):
    config = create_config("cartpole-control", "random", num_envs=8, total_steps=640)
    monkeypatch.setattr(presets, "config_of", lambda *_: config)
    monkeypatch.setattr(presets, "_SAMPLE_S", 0.01)
    short = [Variant("baseline"), Variant("once", donates=False)]
    monkeypatch.setattr(presets, "variants", lambda declared, full: short)

    def run(target, request, **_):
        missed = "agent.num_epochs" in request["fields"]
        row = {"num_steps": 64, "run_s": 1.0, "peak_bytes": 1 << 20, "steps_per_s": 9.0}
        row |= {"compile_s": 0.5, "library_version": "1", "jax_version": "2"}
        status = {"status": "failed", "reason": "short of 9"} if missed else {"status": "ok"}
        return {"row": row | status, "train_s": 0.5}

    monkeypatch.setattr(trainings, "run", run)
    declare(dataclasses.replace(PPO, target_return=9.0))
    flags = ["--full", "--rounds", "3", "--seeds", "1"]
    assert main([*flags, "--output", str(tmp_path / "p.csv")]) == 0
    rows = read_csv(tmp_path / "p.csv")
    targets = ["baseline", "optimized", "ultra_fast", "as_documented"]
    assert [row["arm"] for row in rows] == ["baseline", "once", *targets]
    assert all(float(row["steps_per_s_low"]) > 0 for row in rows[:2])
    assert {row["status"] for row in rows} == {"ok"}
    printed = capsys.readouterr().out
    assert "times baseline (least to most)" in printed
    assert printed.count("1 of 1") == 3
    assert printed.count(" 0 of 1 ") == 1
