"""The comparison: every side steps CartPole for real, and the report says where ours is behind."""

import sys
import types
from dataclasses import replace

import pytest

from benchmarks import comparison
from benchmarks.comparison import chosen, main, report, sides_of
from benchmarks.harness import peers
from benchmarks.harness.interleave import Budget, Outcome, alternate
from benchmarks.harness.libraries import TRAINERS, env_id_of
from benchmarks.harness.results import COLUMNS, columns_of, read_csv
from benchmarks.harness.sanity import as_declared, check_sanity
from benchmarks.harness.workload import Case, Workload
from benchmarks.harness.workloads import load
from benchmarks.sides import array_libraries, training
from benchmarks.sides.ours import MyriadSeeds, MyriadTraining
from benchmarks.sides.server import Totals

BUDGET = Budget(num_rounds=6, min_rounds=6, max_s=2.0, min_call_s=0.01)
TINY = Workload("comparison", "tiny", "cartpole-control", "random", 8, 50, (), num_steps=400)


def measured(*sides, workload=TINY, budget=BUDGET):
    """Alternate the sides and hold them to the check from a few hundred episodes on."""
    pytest.importorskip("gymnasium")
    check = load().sanity_check_of(workload)
    outcomes = alternate([as_declared(Case(side, workload)) for side in sides], budget)
    for outcome in outcomes:
        check_sanity(outcome, check and replace(check, num_episodes=300, tolerance=2.0))
    return outcomes


# --- the sides


@pytest.mark.slow
def test_every_way_of_gymnasium_steps_the_environment_that_the_sanity_check_knows():
    one = replace(TINY, num_envs=1, num_steps=3_000)
    loop = measured("gymnasium", workload=one)
    for outcome in [*loop, *measured("gymnasium-vector", "gymnasium-sync")]:
        assert (outcome.status, outcome.reason) == ("ok", "")
        assert outcome.stats["num_episodes"] >= 300
        assert len(outcome.steps_per_s()) == 6


def test_the_step_that_only_resets_is_in_no_episodes_length():
    steps = {"ends": [1, 1, 1, 0, 0], "idle": 0}
    batch = types.SimpleNamespace(
        idles=True, sample=lambda: None, step=lambda actions: steps["ends"].pop(0)
    )
    side = array_libraries.VectorStepper(batch, TINY)  # its first three steps are timed
    side.run(2)
    assert side.totals() == Totals(3, None, 3)


@pytest.mark.parametrize(
    ("side", "changes", "reason"),
    [
        ("gymnasium-async", {"num_envs": 17}, "17 environments would need as many processes"),
        ("gymnasium", {"num_envs": 2}, "a loop over one environment, not 2"),
        ("gymnasium-sync", {"agent": "mlp-64-64"}, "only random actions are measured"),
        ("gymnasium-sync", {"env": "snake"}, "no name of snake in envs of [gymnasium-sync]"),
    ],
)
def test_what_a_side_does_not_measure_it_refuses_in_a_sentence(side, changes, reason):
    workload = replace(TINY, **changes)
    case = Case(side, workload, env_id=env_id_of(side, workload.env))
    with pytest.raises(NotImplementedError) as error:
        array_libraries.make_stepper(case)
    assert reason in str(error.value)


def test_pufferlibs_environments_are_counted_by_both_flags(monkeypatch):
    import numpy as np

    # In the shape of PufferLib 3.0.0: flags are bytes, and reset within the step.
    class Cartpole:
        single_action_space = types.SimpleNamespace(n=2)

        def __init__(self, num_envs, report_interval, seed):
            self.num_envs = num_envs

        def reset(self, seed):
            return None, []

        def step(self, actions):
            assert actions.shape == (self.num_envs,)
            flags = np.zeros((2, self.num_envs), np.uint8)
            flags[0, 0] = flags[1, 1] = 1
            return None, None, flags[0], flags[1], []

    ocean = types.SimpleNamespace(env_creator=lambda name: {"puffer_cartpole": Cartpole}[name])
    monkeypatch.setitem(sys.modules, "pufferlib", types.SimpleNamespace(ocean=ocean))
    monkeypatch.setitem(sys.modules, "pufferlib.ocean", ocean)
    envs = array_libraries.PufferLib("puffer_cartpole", 4)
    assert envs.step(envs.sample()) == 2


@pytest.mark.skipif(not peers.is_installed("envpool"), reason=peers.how_to_install("envpool"))
def test_envpool_steps_the_environment_that_the_sanity_check_knows():
    (outcome,) = measured("envpool")
    assert (outcome.status, outcome.reason) == ("ok", "")
    assert outcome.stats["num_episodes"] >= 300


# --- policies with a network


@pytest.mark.slow
@pytest.mark.usefixtures("sides_in_this_process")
def test_a_network_is_the_same_policy_in_every_library():
    pytest.importorskip("gymnax")
    workload = replace(TINY, agent="mlp-64-64", num_envs=256, num_steps=100)
    ours, theirs = measured("myriad-plain", "gymnax", workload=workload)
    assert (ours.status, theirs.status) == ("ok", "ok")
    lengths = [outcome.stats["mean_episode_length"] for outcome in (ours, theirs)]
    assert lengths[0] == pytest.approx(lengths[1], abs=0.5)


@pytest.mark.usefixtures("sides_in_this_process")
def test_an_environment_that_no_network_fits_refuses():
    (outcome,) = measured(
        "myriad-plain", workload=replace(TINY, env="pendulum-control", agent="mlp-64-64")
    )
    assert outcome.status == "refused"
    assert "choose among a few actions" in outcome.reason


# --- whole trainings

TRAINING = replace(TINY, agent="ppo", num_envs=4, scan_chunk_size=256, num_steps=256)


@pytest.mark.slow
@pytest.mark.usefixtures("sides_in_this_process")
def test_ours_trains_for_the_steps_of_its_chunk():
    (outcome,) = measured("myriad-plain", workload=TRAINING)
    assert (outcome.status, outcome.reason, outcome.prepared["num_steps"]) == ("ok", "", 256)


def test_the_trainings_have_the_same_hyperparameters():
    import myriad

    side = MyriadTraining(TRAINING).training
    learner = myriad.make_agent(
        "ppo", myriad.make_env("cartpole-control"), **training.HYPERPARAMETERS
    )
    assert side.num_updates == 256 // learner.steps_per_update == 2
    population = MyriadSeeds(SEEDS).population
    assert (population.num_slots, population.num_updates) == (2, 2)
    agent = population.config.learner.agent
    assert {name: getattr(agent, name) for name in training.HYPERPARAMETERS} == (
        training.HYPERPARAMETERS
    )
    with pytest.raises(NotImplementedError, match="not the agent 'random'"):
        MyriadTraining(TINY)


SEEDS = replace(TRAINING, num_seeds=2)


@pytest.mark.slow
@pytest.mark.usefixtures("sides_in_this_process")
def test_ours_trains_many_seeds_and_counts_the_steps_of_all():
    (outcome,) = measured("myriad", workload=SEEDS)
    assert (outcome.status, outcome.reason, outcome.prepared["num_steps"]) == ("ok", "", 256)
    (rate, *_), (seconds, *_) = outcome.steps_per_s(), outcome.seconds
    assert rate * seconds == pytest.approx(2 * 4 * 256)
    assert columns_of(outcome)["arm"] == "2 seeds"


@pytest.mark.slow
@pytest.mark.skipif(not peers.is_installed("rejax"), reason=peers.how_to_install("rejax"))
@pytest.mark.parametrize("num_seeds", [None, 3])
def test_rejax_trains(num_seeds):
    (outcome,) = measured("rejax", workload=replace(TRAINING, num_seeds=num_seeds))
    assert (outcome.status, outcome.reason, outcome.prepared["num_steps"]) == ("ok", "", 256)


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
