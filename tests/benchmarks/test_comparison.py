"""The comparison: every side steps CartPole for real, and the report says where ours is behind."""

import types
from dataclasses import replace

import pytest

from benchmarks import comparison
from benchmarks.comparison import chosen, main, report, sides_of
from benchmarks.harness.interleave import Budget, Outcome
from benchmarks.harness.libraries import TRAINERS
from benchmarks.harness.process import ROOT
from benchmarks.harness.results import COLUMNS, read_csv
from benchmarks.harness.workload import Case, Workload
from benchmarks.sides import array_libraries, training
from benchmarks.sides.ours import MyriadSeeds, MyriadTraining
from benchmarks.sides.server import Totals
from ci.site.measurements import read_measurements
from ci.site.project import read_project
from ci.site.ratios import ratio_tables

BUDGET = Budget(num_rounds=6, min_rounds=6, max_s=2.0, min_call_s=0.01)
TINY = Workload("comparison", "tiny", "cartpole-control", "random", 8, 50, (), num_steps=400)


# --- the sides


def test_the_step_that_only_resets_is_in_no_episodes_length():
    steps = {"ends": [1, 1, 1, 0, 0], "idle": 0}
    batch = types.SimpleNamespace(
        idles=True, sample=lambda: None, step=lambda actions: steps["ends"].pop(0)
    )
    side = array_libraries.VectorStepper(batch, TINY)  # its first three steps are timed
    side.run(2)
    assert side.totals() == Totals(3, None, 3)


# --- whole trainings

TRAINING = replace(TINY, agent="ppo", num_envs=4, scan_chunk_size=256, num_steps=256)


def test_the_trainings_have_the_same_hyperparameters():
    import myriad

    side = MyriadTraining(TRAINING).training
    learner = myriad.make_agent(
        "ppo", myriad.make_env("cartpole-control"), **training.HYPERPARAMETERS
    )
    assert side.num_updates == 256 // learner.steps_per_update == 2
    population = MyriadSeeds(replace(TRAINING, num_seeds=2)).population
    assert (population.num_slots, population.num_updates) == (2, 2)
    agent = population.config.learner.agent
    assert {name: getattr(agent, name) for name in training.HYPERPARAMETERS} == (
        training.HYPERPARAMETERS
    )
    with pytest.raises(NotImplementedError, match="not the agent 'random'"):
        MyriadTraining(TINY)


# --- the command line


def workloads_for(*arguments):
    return chosen(comparison.SCRIPT.parse(arguments))


def test_the_sizes_are_those_of_the_tier_or_the_one_asked_for():
    sizes = [1, 100, 1_000, 10_000, 100_000]
    assert [workload.num_envs for workload in workloads_for()] == [1, 1_000, 10_000]
    assert [workload.num_envs for workload in workloads_for("--full")] == sizes
    flags = "--num-envs 5000 --steps-per-env 7 --policy 64-64 --env pendulum"
    (one,) = workloads_for(*flags.split())
    assert (one.num_envs, one.num_steps, one.scan_chunk_size) == (5_000, 7, 256)
    assert (one.agent, one.env) == ("mlp-64-64", "pendulum-control")


def test_a_training_is_one_chunk_beside_the_libraries_that_train_and_seeds_have_two_sizes():
    (workload,) = workloads_for("--training")
    assert (workload.agent, workload.num_envs, workload.scan_chunk_size) == ("ppo", 4, 100 * 128)
    assert sides_of(TRAINERS, workload) == ["myriad", "rejax"]
    many = workloads_for("--seeds")
    assert [(each.num_seeds, each.num_envs) for each in many] == [(16, 16), (64, 16)]


def test_the_libraries_are_ours_first_and_those_asked_for_or_all_that_have_the_environment():
    def sides(*asked, env="cartpole-control"):
        return sides_of(asked, replace(TINY, env=env))

    assert sides("gymnax,envpool", "gymnasium", "gymnax") == [
        "myriad",
        "gymnax",
        "envpool",
        "gymnasium",
    ]
    assert sides("myriad") == ["myriad"]
    assert sides(env="snake") == ["myriad", "jumanji"]
    ours, *others = sides()
    assert ours == "myriad"
    assert {"gymnax", "gymnasium-vector", "envpool"} <= set(others)
    # Each has other environments, only whole trainings, or the library of another side.
    assert not {"jumanji", "rejax", "gymnax-configured"} & set(others)


@pytest.mark.slow
def test_a_run_writes_its_rows_and_prints_a_table_of_them(tmp_path, monkeypatch, capsys):
    pytest.importorskip("gymnasium")
    monkeypatch.setattr(comparison, "BUDGET", BUDGET)
    arguments = ["--num-envs", "4", "--steps-per-env", "200"]
    arguments += ["--library", "gymnasium,gymnasium-vector"]
    assert main([*arguments, "--output", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("comparison_cpu_*.csv")
    rows = read_csv(path)
    assert list(rows[0]) == list(COLUMNS)
    statuses = [(row["library"], row["status"]) for row in rows]
    assert statuses == [("myriad", "ok"), ("gymnasium", "refused"), ("gymnasium-vector", "ok")]
    assert {row["suite"] for row in rows} == {"comparison"}
    assert rows[2]["device_name"] == rows[0]["device_name"] != ""
    assert [bool(row["ratio"]) for row in rows] == [False, False, True]
    # The site shows the same number, from the samples.
    (table,) = ratio_tables(read_measurements([tmp_path]).runs, read_project(ROOT, ()))
    ((shown,),) = (row.cells for row in table.rows)
    assert [float(rows[2][f"ratio{end}"]) for end in ("", "_low", "_high")] == pytest.approx(
        [shown.middle, shown.low, shown.high]
    )
    printed = capsys.readouterr().out
    assert printed.startswith("Where Myriad is not ahead:\n")  # Gymnasium compiles nothing
    assert "| gymnasium-vector |" in printed
    assert "* gymnasium: a loop over one environment, not 4" in printed
    assert f"python benchmarks/comparison.py {' '.join(arguments)}" in printed.splitlines()[-1]


def outcome_of(side, seconds=1.0, compile_s=1.0, argument_bytes=8, **changes):
    prepared = {"num_steps": 1, "compile_s": compile_s, "argument_bytes": argument_bytes}
    return replace(Outcome(Case(side, TINY), prepared=prepared, seconds=[seconds] * 6), **changes)


def test_the_first_lines_say_where_ours_is_not_ahead():
    ours, faster = outcome_of("myriad"), outcome_of("gymnax", seconds=0.5)
    slower_but_sooner = outcome_of("envpool", compile_s=None, seconds=2.0, argument_bytes=None)
    head, steps, compiling = report([[ours, faster, slower_but_sooner]]).splitlines()[:3]
    assert head == "Where Myriad is not ahead:"
    assert "steps/s: gymnax (Myriad's 0.5" in steps
    assert "compiling (1.0): envpool (none)" in compiling
    slower = outcome_of("gymnax", seconds=2.0, compile_s=2.0)
    absent = outcome_of("pufferlib", status="not installed", reason="a command installs it")
    assert report([[ours, slower, absent]]).startswith("Myriad is ahead of every library")


@pytest.mark.parametrize(("statuses", "code"), [(("ok", "failed"), 0), (("failed", "ok"), 1)])
def test_only_a_failure_of_ours_fails_the_command(statuses, code, tmp_path, monkeypatch, capsys):
    def measure(cases, *_, also_check):
        return [
            outcome_of(each.side, status=status)
            for each, status in zip(cases, statuses, strict=True)
        ]

    monkeypatch.setattr(comparison, "measure", measure)
    assert main(["--num-envs", "8", "--library", "gymnax", "--output", str(tmp_path)]) == code
    assert ("Myriad failed" in capsys.readouterr().out) == bool(code)
