"""The rows of a run, and the tables that scripts print of them."""

from benchmarks.harness.alternation import Outcome
from benchmarks.harness.results import COLUMNS, ResultsFile, columns_of, read_csv
from benchmarks.harness.tables import ratio_table
from benchmarks.harness.workload import Case, Workload
from benchmarks.throughput import scaling_table


def outcome(library="myriad", seconds=(0.5, 0.25, 1.0, 0.5, 0.5, 0.5, 0.5), **changes):
    workload = Workload("throughput", "tiny", "cartpole-control", "random", 1_000, 8, ())
    prepared = {"num_steps": 16, "compile_s": 1.5, "argument_bytes": 3, "temp_bytes": None}
    stats = {"num_episodes": 0, "mean_episode_length": None, "peak_bytes": 9}
    hello = {
        "hardware": {"device_kind": "cpu", "cores": 2},
        "versions": {"jax": "0.10"},
        "library_version": "7",
    }
    values = {"hello": hello, "prepared": prepared, "stats": stats, "seconds": list(seconds)}
    return Outcome(Case(library, workload), **(values | changes))


MEASURED = {
    "steps_per_s": "32000.0",
    "steps_per_s_low": "16000.0",
    "steps_per_s_high": "64000.0",
    "run_s": "0.5",
    "samples": "7",
    "temp_bytes": "",
    "peak_bytes": "9",
}


def test_a_row_states_the_median_rate_with_its_interval_or_why_it_failed(tmp_path):
    failed = {"status": "failed", "reason": "out of memory"}
    both = [outcome(), outcome(**failed, prepared={}, stats={})]
    file = ResultsFile("throughput", tmp_path, "make bench")
    file.add([columns_of(each) for each in both], [])
    assert file.path.name == f"throughput_cpu_{file.timestamp}.csv"
    for row, expected in zip(
        read_csv(file.path), (MEASURED, failed | {"steps_per_s": ""}), strict=True
    ):
        assert tuple(row) == COLUMNS
        assert row | expected | {"device": "cpu"} == row


def test_ratios_are_taken_round_by_round():
    table = ratio_table({"slow": [100.0, 200.0], "fast": [300.0, 600.0]})
    assert " 3.00 (3.00 to 3.00) |" in table


def test_a_table_compares_libraries_also_where_one_failed():
    table = scaling_table([[outcome(), outcome("gymnax", seconds=[5.0] * 7)]])
    assert "| times as fast (95% interval) |" in table
    assert "10 (5 to 20)" in table
    absent = outcome("gymnax", status="not installed", prepared={}, seconds=[None] * 7)
    table = scaling_table([[outcome(), absent]])
    assert "not installed" in table
    assert "nan" not in table
