from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.harness import programs
from benchmarks.harness.worker import ChildError
from benchmarks.harness.workloads import load
from tests.benchmarks.csv_rows import read_csv

# By its name: `compile` alone is the built-in.
suite = import_module("benchmarks.compile")
COLUMNS_OF_MACHINE = {"library": "myriad", "device": "cpu"}


def test_a_launch_that_fails_costs_its_own_rows_and_exit_code_1(tmp_path, monkeypatch, capsys):
    def compiled(request, cache):
        if request["agent"] == "dqn":
            raise ChildError("refused", "out of memory: it held 9 bytes and may hold 8")
        kept = Path(cache) / "program"
        found = {"compile_s": 0.5 if kept.exists() else 2.0, "scan_chunk_size": 128}
        kept.touch()
        return found | {"instructions": 7, "code_bytes": 0}

    monkeypatch.setattr(suite, "compile_in_child", compiled)
    monkeypatch.setattr(suite, "machine", lambda: {"columns": COLUMNS_OF_MACHINE})
    assert suite.main(["--full", "--output", str(tmp_path / "rows.csv")]) == 1
    rows = read_csv(tmp_path / "rows.csv")
    columns = ("suite", "agent", "status", "compile_s", "samples")
    found = [tuple(row[each] for each in columns) for row in rows]
    assert found[:4] == [
        ("compile", "random", "ok", "2.0", "6"),
        ("compile_cached", "random", "ok", "0.5", "6"),
        ("compile", "dqn", "refused", "", ""),
        ("compile_cached", "dqn", "refused", "", ""),
    ]
    assert "cartpole-control with dqn, 64 environments" in capsys.readouterr().err


@pytest.mark.parametrize("names", [(), ("run", "another")], ids=["kept none", "compiled again"])
def test_a_cache_that_does_not_do_what_its_row_says_is_a_failure(names, monkeypatch):
    compiled = iter(names)

    def launch(request, cache):
        if (name := next(compiled, None)) is not None:
            (Path(cache) / name).touch()
        return {"compile_s": 1.0}

    monkeypatch.setattr(suite, "compile_in_child", launch)
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
