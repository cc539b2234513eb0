from benchmarks.harness import programs
from benchmarks.harness.results import read_csv
from benchmarks.harness.worker import ChildError
from benchmarks.memory_profile import main


def pretended(target, request, **limits):
    """Answer as a child would; 32 steps or 10,000 environments kill it, 100,000 are refused."""
    columns = {"library": "myriad", "device": "cpu", "memory_total_bytes": 8 << 30}
    if target.endswith("_machine_of_child"):
        return {"columns": columns}
    if request["scan_chunk_size"] == 32 or request["num_envs"] == 10_000:
        raise ChildError("failed", "the process ended by signal 9: no message")
    if request["num_envs"] == 100_000:
        raise ChildError("refused", "out of memory: it held 9 bytes and may hold 8")
    stated = dict.fromkeys(("argument_bytes", "temp_bytes", "output_bytes", "code_bytes"), 1_000)
    return stated | {
        "columns": columns,
        "peak_bytes": 100_000_000,
        "scan_chunk_size": request["scan_chunk_size"],
    }


def test_a_size_that_fails_costs_its_own_row_and_exit_code_1(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(programs, "run", pretended)
    assert main(["--profile", "both", "--output", str(tmp_path / "rows.csv")]) == 1
    rows = read_csv(tmp_path / "rows.csv")
    assert [(each["suite"], each["scan_chunk_size"], each["status"]) for each in rows] == [
        ("memory_envs", "128", "ok"),
        ("memory_envs", "128", "failed"),
        ("memory_envs", "128", "refused"),
        ("memory_scan", "1", "ok"),
        ("memory_scan", "32", "failed"),
        ("memory_scan", "1024", "ok"),
    ]
    assert [each["peak_bytes"] for each in rows[:3]] == ["100000000", "", ""]
    said = capsys.readouterr().err
    assert "10,000 environments, chunk 128: failed: the process ended by signal 9" in said
    assert "100,000 environments, chunk 128: refused: out of memory" in said


def test_a_rollout_compiled_ahead_is_the_one_that_runs():
    from tests.compilations import count_compilations

    built = programs.program("cartpole-control", "random", 64, 8)
    built.start()
    with count_compilations() as compilations:
        built.run(16)
    assert compilations == []
    assert built.rollout.summary(built.state).num_steps == 16 * 64
