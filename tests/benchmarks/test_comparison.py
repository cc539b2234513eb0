"""The comparison: the libraries and sizes that flags choose, and what the report says."""

import types
from dataclasses import replace

import pytest

from benchmarks import comparison
from benchmarks.comparison import chosen, main, names_of, report
from benchmarks.harness.alternation import Outcome
from benchmarks.harness.registry import TRAINERS
from benchmarks.harness.workload import Case, Workload
from benchmarks.libraries import array_libraries, ppo_training
from benchmarks.libraries.ours import MyriadTraining
from benchmarks.libraries.server import Totals

TINY = Workload("comparison", "tiny", "cartpole-control", "random", 8, 50, (), num_steps=400)
TRAINING = replace(TINY, agent="ppo", num_envs=4, scan_chunk_size=256, num_steps=256)


def test_the_step_that_only_resets_is_in_no_episodes_length():
    ends = [1, 1, 1, 0, 0]
    batch = types.SimpleNamespace(idles=True, sample=lambda: None, step=lambda actions: ends.pop(0))
    stepper = array_libraries.VectorStepper(batch, TINY)  # its first three steps are timed
    stepper.run(2)
    assert stepper.totals() == Totals(3, None, 3)


def test_the_trainings_have_the_same_hyperparameters():
    import myriad

    one = MyriadTraining(TRAINING).training
    learner = myriad.make_agent(
        "ppo", myriad.make_env("cartpole-control"), **ppo_training.HYPERPARAMETERS
    )
    assert one.num_updates == 256 // learner.steps_per_update == 2
    agent = one.config.learner.agent
    found = {name: getattr(agent, name) for name in ppo_training.HYPERPARAMETERS}
    assert found == ppo_training.HYPERPARAMETERS
    with pytest.raises(NotImplementedError, match="not the agent 'random'"):
        MyriadTraining(TINY)


# --- the command line


@pytest.mark.parametrize(
    ("flags", "names", "found"),
    [
        ("", ["num_envs"], [(1,), (1_000,), (10_000,)]),
        ("--full", ["num_envs"], [(1,), (100,), (1_000,), (10_000,), (100_000,)]),
        (
            "--num-envs 5000 --steps-per-env 7 --policy 64-64 --env pendulum",
            ["num_envs", "num_steps", "scan_chunk_size", "agent", "env"],
            [(5_000, 7, 256, "mlp-64-64", "pendulum-control")],
        ),
        # A training is one chunk.
        ("--training", ["agent", "num_envs", "scan_chunk_size"], [("ppo", 4, 100 * 128)]),
    ],
)
def test_flags_choose_the_workloads(flags, names, found):
    workloads = chosen(comparison.SCRIPT.parse(flags.split()))
    assert [tuple(getattr(each, name) for name in names) for each in workloads] == found


@pytest.mark.parametrize(
    ("asked", "env", "names"),
    [
        (
            ["gymnax,envpool", "gymnasium", "gymnax"],
            "cartpole-control",
            ["myriad", "gymnax", "envpool", "gymnasium"],
        ),
        (["myriad"], "cartpole-control", ["myriad"]),
        ([], "snake", ["myriad", "jumanji"]),
        (TRAINERS, "cartpole-control", ["myriad", "rejax"]),
    ],
)
def test_the_libraries_are_ours_first_and_those_asked_for_or_all_that_have_it(asked, env, names):
    assert names_of(asked, replace(TINY, env=env)) == names


def test_trainings_and_other_ways_to_run_a_library_are_compared_only_if_asked_for():
    assert not {*TRAINERS, "gymnax-configured"} & {*names_of([], TINY)}


def outcome_of(name, seconds=1.0, compile_s=1.0, argument_bytes=8, **changes):
    prepared = {"num_steps": 1, "compile_s": compile_s, "argument_bytes": argument_bytes}
    return replace(Outcome(Case(name, TINY), prepared=prepared, seconds=[seconds] * 6), **changes)


def test_the_first_lines_say_where_ours_is_not_ahead():
    ours, faster = outcome_of("myriad"), outcome_of("gymnax", seconds=0.5)
    slower_but_sooner = outcome_of("envpool", compile_s=None, seconds=2.0, argument_bytes=None)
    head, steps, compiling = report([[ours, faster, slower_but_sooner]]).splitlines()[:3]
    assert head == "Where Myriad is not ahead:"
    assert "steps/s: gymnax (Myriad's 0.5" in steps
    assert "compiling (1.0): envpool (none)" in compiling
    absent = outcome_of("pufferlib", status="not installed", reason="a command installs it")
    slower = outcome_of("gymnax", seconds=2.0, compile_s=2.0)
    assert report([[ours, slower, absent]]).startswith("Myriad is ahead of every library")


@pytest.mark.parametrize(("statuses", "code"), [(("ok", "failed"), 0), (("failed", "ok"), 1)])
def test_only_a_failure_of_ours_fails_the_command(statuses, code, tmp_path, monkeypatch, capsys):
    def measure(cases, *_, also_check):
        both = zip(cases, statuses, strict=True)
        return [outcome_of(each.side, status=status) for each, status in both]

    monkeypatch.setattr(comparison, "measure", measure)
    assert main(["--num-envs", "8", "--library", "gymnax", "--output", str(tmp_path)]) == code
    assert ("Myriad failed" in capsys.readouterr().out) == bool(code)
