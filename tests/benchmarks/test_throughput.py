"""Throughput: the asv suite, the sizes that flags choose, its rows and its targets."""

import pkgutil
import re
import sys
from dataclasses import replace
from importlib import import_module

import pytest

import benchmarks
from benchmarks import throughput, utils
from benchmarks.harness import alternation, gpu_programs
from benchmarks.harness.asv_suite import skip_unless_runnable
from benchmarks.harness.process import ROOT
from benchmarks.harness.results import read_csv
from benchmarks.harness.workload import Case, Workload
from benchmarks.harness.workloads import Declaration, Target, sizes_of
from benchmarks.libraries.ours import MyriadStepper
from benchmarks.throughput import Throughput, main
from tests.child_processes import python

TINY = Workload(
    "throughput", "tiny", "cartpole-control", "random", 64, 16, ("quick",), num_steps=32
)


# --- as an asv suite


def test_the_suites_import_where_the_package_and_jax_are_absent():
    modules = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]
    hide = "import sys; sys.path.insert(0, '.'); "
    hide += "sys.modules.update(myriad=None, jax=None, gymnax=None, matplotlib=None, pandas=None)"
    python("-c", f"{hide}; import {', '.join(f'benchmarks.{name}' for name in modules)}", cwd=ROOT)


# asv reads these of a benchmark's module where its class has none.
OF_ASV = {"number", "params", "repeat", "rounds", "setup", "teardown", "timeout", "type", "unit"}


def test_no_module_names_anything_that_asv_would_take_by_mistake():
    for module in pkgutil.iter_modules(benchmarks.__path__):
        names = set(vars(import_module(f"benchmarks.{module.name}")))
        assert not [name for name in names if re.match(r"(time|track|mem|peakmem|timeraw)_", name)]
        assert not names & OF_ASV, module.name


def test_a_commit_without_the_rollout_or_the_environment_is_skipped(monkeypatch):
    with pytest.raises(NotImplementedError, match="this commit lacks warp-drive"):
        skip_unless_runnable(replace(TINY, env="warp-drive"))
    monkeypatch.setitem(sys.modules, "myriad", None)
    with pytest.raises(NotImplementedError, match="this commit can't run cartpole-1k"):
        Throughput().setup("cartpole-1k")


def test_the_documented_timing_functions_are_offered():
    import jax
    import jax.numpy as jnp

    double = jax.jit(lambda x, by=2: by * x)
    utils.warmup_jitted_fn(double, jnp.ones(3), warmup_steps=2)
    stats = utils.time_jitted_fn(double, jnp.ones(3), num_runs=6, warmup_steps=1, by=3)
    assert stats["min"] <= stats["median"] <= stats["max"]
    assert len(stats["all_times"]) == 6
    assert stats["compile_time"] > 0
    with pytest.raises(AttributeError, match="has no attribute 'time_fn'"):
        _ = utils.time_fn


# --- as a command line


@pytest.mark.parametrize(
    ("flags", "sizes"),
    [
        # A given size takes the chunk of the nearest smaller one.
        ("--num-envs 5", [(5, 256)]),
        ("--num-envs 200000", [(200_000, 128)]),
        ("--num-envs 2000000", [(2_000_000, 32)]),
        ("--env CartPole-v1", [(1_000, 256), (10_000, 256), (100_000, 128)]),
        ("--env my_package.envs:Mine", [(1_000, 256), (10_000, 256), (100_000, 128)]),
        ("--scan-chunk-size 7", [(1_000, 7), (10_000, 7), (100_000, 7)]),
    ],
)
def test_flags_choose_the_sizes(flags, sizes):
    workloads = sizes_of("throughput", throughput.SCRIPT.parse(flags.split()), None)
    assert [(each.num_envs, each.scan_chunk_size) for each in workloads] == sizes


def test_the_scan_chunk_size_given_is_the_one_that_runs():
    ours = MyriadStepper(Case("myriad", replace(TINY, scan_chunk_size=5)))
    ours.run(12)
    assert ours.rollout.scan_chunk_size == 5
    assert ours.rollout.summary(ours.state).num_steps == 12 * TINY.num_envs


def test_a_workload_that_fails_is_told_and_the_command_exits_with_1(monkeypatch, tmp_path, capsys):
    dying = [sys.executable, "-S", "-c", "raise SystemExit('no more memory')"]
    monkeypatch.setattr(alternation, "library_command", lambda name: dying)
    assert main(["--num-envs", "8", "--output", str(tmp_path / "rows.csv")]) == 1
    ours, _ = read_csv(tmp_path / "rows.csv")
    assert (ours["status"], ours["steps_per_s"]) == ("failed", "")
    assert "exit code 1: no more memory" in ours["reason"]
    assert "8 environments, chunk 256: failed: " in capsys.readouterr().err


# --- on a GPU


@pytest.mark.slow
def test_a_gpu_has_a_row_for_each_program_and_another_device_is_refused(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("MYRIAD_COMPILATION_CACHE", "off")
    columns = gpu_programs.machine_columns() | {"device": "cpu"}
    monkeypatch.setattr(gpu_programs, "machine_columns", lambda: columns)
    programs = [("cartpole-control", agent, 4) for agent in ("random", "pqn")]
    monkeypatch.setattr(gpu_programs, "PROGRAMS", programs)
    flags = ["--gpu", "--output", str(tmp_path / "g.csv")]
    assert main(flags) == 2
    assert "--gpu needs a GPU, but JAX runs on the cpu here" in capsys.readouterr().err
    columns["device"] = "gpu"
    assert main(flags) == 0
    rows = read_csv(tmp_path / "g.csv")
    assert [(row["agent"], row["device"]) for row in rows] == [("random", "gpu"), ("pqn", "gpu")]
    for row in rows:
        low, middle, high = (float(row[f"steps_per_s{end}"]) for end in ("_low", "", "_high"))
        assert 0 < low <= middle <= high


# --- targets

SECONDS = {"myriad": 1.0, "gymnax": 20.0, "jumanji": 8.0, "myriad-plain": 4.0} | {
    "gymnax-configured": 10.0,
    "jumanji-configured": 6.0,
}
OF_GYMNAX = Target("tiny", of="gymnax", at_least=20)
OF_JUMANJI = Target("tiny", of="jumanji", at_least=5)
# With our XLA options in ours alone, in both, and in neither.
ALONE, BOTH, PLAIN = "20 (20 to 20)", "10 (10 to 10)", "5.0 (5.0 to 5.0), at least 5: met"


@pytest.mark.parametrize(
    ("target", "changes", "expected", "code"),
    [
        (replace(OF_GYMNAX, at_least_plain=5), {}, [ALONE, "met", BOTH, PLAIN], 0),
        (replace(OF_GYMNAX, at_least_plain=6), {}, [ALONE, "MISSED"], 1),
        (Target("tiny", of="gymnax", than="tiny"), {}, [ALONE, "reported"], 0),
        (OF_JUMANJI, {"jumanji": {"status": "not installed"}}, ["-", "not installed"], 0),
        (OF_JUMANJI, {"jumanji": {"reason": "a toy"}}, ["8.0 (8.0 to 8.0)*", "met"], 0),
        (OF_JUMANJI, {"myriad": {"status": "failed"}}, ["-", "MISSED"], 1),
    ],
    ids=["met", "missed", "without a bound", "not installed", "noted", "failed"],
)
def test_the_targets_of_an_environment_say_what_became_of_them_and_the_exit_code_is_1_if_missed(
    target, changes, expected, code, monkeypatch, tmp_path, capsys
):
    def measure(cases, *_):
        outcomes = [
            alternation.Outcome(each, prepared={"num_steps": 1}, seconds=[SECONDS[each.side]] * 6)
            for each in cases
        ]
        return [replace(each, **changes.get(each.case.side, {})) for each in outcomes]

    workloads = {"tiny": TINY, "other": replace(TINY, env="pendulum-control")}
    targets = (target, Target("other", of="jumanji"))
    declaration = Declaration({"throughput": workloads}, targets=targets)
    monkeypatch.setattr(throughput, "load", lambda: declaration)
    monkeypatch.setattr(throughput, "measure", measure)
    assert main(["--targets", "--env", "cartpole", "--output", str(tmp_path)]) == code
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "-control |" in each]
    cells = [cell.strip() for cell in line.split("|")][1:-1]
    assert cells[:3] == ["cartpole-control", "64", ""]
    assert cells[4].startswith(target.of)
    assert cells[5 : 5 + len(expected)] == expected
