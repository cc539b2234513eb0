import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.harness import programs
from benchmarks.harness.process.failures import ChildError
from benchmarks.harness.results import COLUMNS, read_csv
from benchmarks.harness.workloads import Workload, load

# By its name: `compile` alone is the built-in.
suite = import_module("benchmarks.compile")
COLUMNS_OF_MACHINE = {"library": "myriad", "device": "cpu"}


def only_file(folder):
    (file,) = folder.glob("*.csv")
    return file


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    """Compile one rollout, cold and from the cache, in real processes."""
    folder = tmp_path_factory.mktemp("compile")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suite, "QUICK_LAUNCHES", 1)
        return suite.main(
            ["--agent", "random", "--num-envs", "64", "--output", str(folder)]
        ), folder


@pytest.mark.slow
def test_a_run_writes_a_row_for_cold_launches_and_one_for_those_from_the_cache(small_run):
    code, folder = small_run
    assert code == 0
    rows = read_csv(only_file(folder))
    assert only_file(folder).name.startswith(f"compile_{rows[0]['device']}_")
    assert [row["suite"] for row in rows] == ["compile", "compile_cached"]
    for row in rows:
        assert tuple(row) == COLUMNS
        assert (row["num_envs"], row["scan_chunk_size"], row["samples"], row["status"]) == (
            "64",
            "128",
            "1",
            "ok",
        )
        assert float(row["compile_s"]) == float(row["run_s"]) > 0


@pytest.mark.slow
def test_the_samples_hold_the_size_of_the_program_and_prove_the_cache(small_run):
    _, folder = small_run
    (file,) = folder.glob("*_samples.json")
    ((launch,),) = json.loads(file.read_text())["alternations"]
    assert launch["instructions"] > 100
    assert launch["cache_bytes"] > 1_000


def test_a_missing_device_is_one_sentence_and_exit_code_2(tmp_path, monkeypatch, capsys):
    def no_device(target, request, **limits):
        raise ChildError("failed", "JAX finds no such device on this machine: JAX_PLATFORMS=gpu.")

    monkeypatch.setattr(programs, "run", no_device)
    assert suite.main(["--output", str(tmp_path)]) == 2
    assert (
        capsys.readouterr().err == "JAX finds no such device on this machine: JAX_PLATFORMS=gpu.\n"
    )


def test_a_launch_that_fails_costs_its_own_rows_and_exit_code_1(tmp_path, monkeypatch, capsys):
    def pretended(target, request, **environ):
        if not request:
            return {"columns": COLUMNS_OF_MACHINE, "available_bytes": None}
        if request["agent"] == "dqn":
            raise ChildError("refused", "out of memory: it held 9 bytes and may hold 8")
        kept = Path(environ["MYRIAD_COMPILATION_CACHE"]) / "program"
        found = {"compile_s": 0.5 if kept.exists() else 2.0, "scan_chunk_size": 128}
        kept.touch()
        return found | {"instructions": 7, "code_bytes": 0}

    monkeypatch.setattr(suite, "run", pretended)
    monkeypatch.setattr(programs, "run", pretended)
    monkeypatch.setenv("MYRIAD_TIER", "full")
    assert suite.main(["--full", "--output", str(tmp_path)]) == 1
    rows = read_csv(only_file(tmp_path))
    assert [
        (row["suite"], row["agent"], row["status"], row["compile_s"], row["samples"])
        for row in rows
    ] == [
        ("compile", "random", "ok", "2.0", "6"),
        ("compile_cached", "random", "ok", "0.5", "6"),
        ("compile", "dqn", "refused", "", ""),
        ("compile_cached", "dqn", "refused", "", ""),
        ("compile", "ppo", "ok", "2.0", "6"),
        ("compile_cached", "ppo", "ok", "0.5", "6"),
    ]
    assert (
        "cartpole-control with dqn, 64 environments, chunk 128: refused: out of memory"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("names", [(), ("run", "another")], ids=["kept none", "compiled again"])
def test_a_cache_that_does_not_do_what_its_row_says_is_a_failure(names, monkeypatch):
    compiled = iter(names)

    def launch(request, folder):
        if (name := next(compiled, None)) is not None:
            (Path(folder) / name).touch()
        return {"compile_s": 1.0}

    monkeypatch.setattr(suite, "_launch", launch)
    launches, error = suite._launches(load().workloads["compile"]["cartpole-random"], 1)
    assert launches == []
    assert str(error) == "a filled cache did not hold every program"


def test_a_rollout_compiled_ahead_is_the_one_that_runs():
    from myriad.xla import count_compilations

    built = programs.program("cartpole-control", "random", 64, 8)
    built.start()
    with count_compilations() as compilations:
        built.run(16)
    assert compilations.names == []
    assert built.rollout.summary(built.state).num_steps == 16 * 64


def test_an_agent_that_learns_is_a_training(monkeypatch):
    monkeypatch.setattr(programs.handles, "TrainingProgram", vars, raising=False)
    config = programs.program("cartpole-control", "dqn", 8, 4)
    assert (config["agent"], config["num_envs"], config["scan_chunk_size"]) == ("dqn", 8, 4)


def test_the_benchmark_launches_what_is_declared(monkeypatch):
    launched = []
    monkeypatch.setattr(
        suite,
        "_launch",
        lambda *call: launched.append(call) or {"compile_s": 2.0, "instructions": 7},
    )
    benchmark, name = suite.Compile(), "cartpole-random"
    benchmark.setup(name)
    assert (benchmark.track_compile_s(name), benchmark.track_instructions(name)) == (2.0, 7)
    assert {(request["num_envs"], cache) for request, cache in launched} == {(1_000, "off")}


def test_a_commit_without_the_package_is_skipped(monkeypatch):
    monkeypatch.setitem(sys.modules, "myriad", None)
    with pytest.raises(NotImplementedError, match="this commit can't run cartpole-random"):
        suite.Compile().setup("cartpole-random")


def test_flags_change_the_workload_of_that_agent():
    options = suite.SCRIPT.parse(["--agent", "ppo", "--env", "pendulum", "--num-envs", "7"])
    (workload,) = suite.chosen(options)
    assert isinstance(workload, Workload)
    assert (workload.agent, workload.env, workload.num_envs) == ("ppo", "pendulum-control", 7)
