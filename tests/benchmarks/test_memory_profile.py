import pytest

from benchmarks import memory_profile
from benchmarks.harness import programs
from benchmarks.harness.results import COLUMNS, read_csv
from benchmarks.harness.worker import ChildError
from benchmarks.memory_profile import main, most_that_fit, size_of


def only_file(folder):
    (file,) = folder.glob("*.csv")
    return file


@pytest.mark.slow
def test_a_run_writes_what_is_stated_and_held_and_finds_the_most_that_fit(tmp_path):
    argv = ["--num-envs", "1000", "--limit", "400MiB", "--output", str(tmp_path)]
    assert main(argv) == 0
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".json"}
    stated, *_, most = rows = read_csv(only_file(tmp_path))
    assert only_file(tmp_path).name.startswith(f"memory_envs_{stated['device']}_")
    assert [row["status"] for row in rows] == ["ok"] * len(rows)
    assert tuple(stated) == COLUMNS
    assert [stated[each] for each in ("suite", "num_envs", "scan_chunk_size")] == [
        "memory_envs",
        "1000",
        "128",
    ]
    assert int(stated["argument_bytes"]) > 1_000 * 16
    assert int(stated["temp_bytes"]) > 0
    if stated["device"] == "cpu":
        assert int(stated["peak_bytes"]) > 100e6  # a process with JAX
    assert (most["suite"], most["env"]) == ("memory_limit", "cartpole-control")
    assert int(most["num_envs"]) > 10_000
    # Half of the limit at least is used: the search does not stop far below it.
    assert 200 << 20 < int(most["peak_bytes"]) <= 400 << 20


@pytest.mark.parametrize("fixed", [0, 10_000_000])
@pytest.mark.parametrize("steepness", [1.0, 1.5])
def test_the_search_ends_within_a_few_percent_below_the_limit(steepness, fixed):
    asked = []

    def needed(num_envs):
        asked.append(num_envs)
        return fixed + int(num_envs**steepness)

    most = most_that_fit(needed, 20_000_000)
    assert 0.95 * 20_000_000 <= fixed + most**steepness <= 20_000_001
    assert len(asked) < 25
    assert most_that_fit(lambda num_envs: 1_000, 999) == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GiB", 4 << 30),
        ("1.5kB", 1_500),
        ("2g", 2_000_000_000),
        ("1000000", 1_000_000),
    ],
)
def test_a_size_is_read_with_its_unit(text, size):
    assert size_of(text) == size


def pretended(target, request, **limits):
    """Answer as a child would; 32 steps or 10,000 environments kill it, 100,000 are refused."""
    columns = {"library": "myriad", "device": "cpu", "memory_total_bytes": 8 << 30}
    if target.endswith("_machine_of_child"):
        return {"columns": columns, "available_bytes": 4 << 30}
    if target.endswith("_most_of"):
        return {
            "num_envs": most_that_fit(lambda n: 100 * n + request["overhead"], request["limit"]),
            "stated_bytes": 1,
        }
    if request["scan_chunk_size"] == 32 or request["num_envs"] == 10_000:
        raise ChildError("failed", "the process ended by signal 9: no message")
    if request["num_envs"] == 100_000:
        raise ChildError("refused", "out of memory: it held 9 bytes and may hold 8")
    stated = dict.fromkeys(
        ("argument_bytes", "temp_bytes", "output_bytes", "code_bytes", "stated_bytes"), 1_000
    )
    return stated | {
        "columns": columns,
        "peak_bytes": 100_000_000,
        "scan_chunk_size": request["scan_chunk_size"],
    }


@pytest.fixture
def no_children(monkeypatch):
    monkeypatch.setattr(memory_profile.process, "run", pretended)
    monkeypatch.setattr(programs, "run", pretended)


@pytest.mark.usefixtures("no_children")
def test_a_size_that_fails_costs_its_own_row_and_exit_code_1(tmp_path, capsys):
    assert (
        main(["--profile", "both", "--limit", "1GiB", "--output", str(tmp_path / "rows.csv")]) == 1
    )
    envs, scan = (read_csv(tmp_path / f"rows_{profile}.csv") for profile in ("envs", "scan"))
    assert [(row["suite"], row["status"], row["peak_bytes"]) for row in envs] == [
        ("memory_envs", "ok", "100000000"),
        ("memory_envs", "failed", ""),
        ("memory_envs", "refused", ""),
        ("memory_limit", "ok", "100000000"),
    ]
    assert [(row["scan_chunk_size"], row["status"]) for row in scan] == [
        ("1", "ok"),
        ("32", "failed"),
        ("1024", "ok"),
    ]
    assert {row["suite"] for row in scan} == {"memory_scan"}
    said = capsys.readouterr().err
    assert "10,000 environments, chunk 128: failed: the process ended by signal 9" in said
    assert "100,000 environments, chunk 128: refused: out of memory" in said


@pytest.mark.usefixtures("no_children")
@pytest.mark.parametrize(
    ("limit", "code", "status", "words"),
    [
        ("8GiB", 0, "ok", "stated by the compiler and not run"),
        ("50MB", 1, "refused", "not even 64 environments fit"),
    ],
)
def test_a_limit_that_is_not_tried_says_why(limit, code, status, words, tmp_path):
    assert main(["--num-envs", "64", "--limit", limit, "--output", str(tmp_path)]) == code
    row = read_csv(only_file(tmp_path))[-1]
    assert (row["suite"], row["status"], row["peak_bytes"]) == ("memory_limit", status, "")
    assert words in row["reason"]


@pytest.mark.usefixtures("no_children")
def test_a_run_above_the_limit_is_refused_though_it_ended(tmp_path, monkeypatch):
    heavy = {"peak_bytes": 300_000_000}

    def above(target, request, **limits):
        return pretended(target, request, **limits) | (
            heavy if "memory_limit_bytes" in limits else {}
        )

    monkeypatch.setattr(memory_profile.process, "run", above)
    assert main(["--num-envs", "64", "--limit", "200MB", "--output", str(tmp_path)]) == 1
    row = read_csv(only_file(tmp_path))[-1]
    assert row["status"] == "refused"
    assert "300,000,000 bytes" in row["reason"]
