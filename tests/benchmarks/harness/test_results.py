"""The rows of a run, and the tables that scripts print of them."""

import pytest

from benchmarks.harness.alternation import Outcome
from benchmarks.harness.results import COLUMNS, ResultsFile, columns_of
from benchmarks.harness.tables import markdown, ratio_table, readable
from benchmarks.harness.workload import Case, Workload
from benchmarks.throughput import scaling_table
from tests.benchmarks.csv_rows import read_csv


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
FAILED = {"status": "failed", "reason": "out of memory"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, MEASURED), (FAILED | {"prepared": {}, "stats": {}}, FAILED | {"steps_per_s": ""})],
    ids=["measured", "failed"],
)
def test_a_row_states_the_median_rate_with_its_interval_or_why_it_failed(
    changes, expected, tmp_path
):
    file = ResultsFile("throughput", tmp_path, "make bench")
    file.add([columns_of(outcome(**changes))], [])
    assert file.path.name == f"throughput_cpu_{file.timestamp}.csv"
    (written,) = read_csv(file.path)
    assert tuple(written) == COLUMNS
    assert written | expected | {"device": "cpu"} == written


def test_tables_read_in_a_terminal_and_in_markdown_also_where_a_library_failed():
    assert markdown(["a", "long"], [["12", "b"]]).split("\n") == [
        "|  a | long |",
        "|---:|-----:|",
        "| 12 |    b |",
    ]
    table = scaling_table([[outcome(), outcome("gymnax", seconds=[5.0] * 7)]])
    assert "| times as fast (95% interval) |" in table
    assert "10 (5 to 20)" in table
    absent = outcome("gymnax", status="not installed", prepared={}, seconds=[None] * 7)
    table = scaling_table([[outcome(), absent]])
    assert "not installed" in table
    assert "nan" not in table


def test_ratios_are_taken_round_by_round():
    table = ratio_table("variant", {"slow": [100.0, 200.0], "fast": [300.0, 600.0]})
    assert "| times slow (least to most) |" in table
    assert " 3.00 (3.00 to 3.00) |" in table


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(0, "-"), (12, "12 B"), (2048, "2.0 KiB"), (3 << 30, "3.0 GiB")]
)
def test_bytes_are_written_in_the_unit_that_fits(num_bytes, text):
    assert readable(num_bytes) == text
