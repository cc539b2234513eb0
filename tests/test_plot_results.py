import csv

import pytest

from benchmarks import plot_results
from benchmarks.alternation import Contender, Outcome
from benchmarks.plot_results import STYLES, caption, draw, finding, main, newest, short_number
from benchmarks.results import COLUMNS, ResultsFile, markdown, read_csv, scaling_table
from benchmarks.workloads import Workload
from myriad.errors import InvalidArgumentError


def row(library="myriad", num_envs=100, steps_per_s=1e9, **changes):
    """Return a row as a CSV gives it back."""
    values = dict.fromkeys(COLUMNS, "") | {
        "suite": "throughput",
        "library": library,
        "library_version": "1.0",
        "env": "cartpole-control",
        "agent": "random",
        "num_envs": num_envs,
        "device": "cpu",
        "device_name": "A Processor 9000",
        "cores": 2,
        "memory_total_bytes": 8 * 2**30,
        "steps_per_s": steps_per_s,
        "steps_per_s_low": 0.9 * steps_per_s,
        "steps_per_s_high": 1.1 * steps_per_s,
        "samples": 11,
        "status": "ok",
        "commit": "0123456789abcdef",
        "jax_version": "0.10.2",
        "timestamp": "20260102T030405Z",
    }
    return {column: str(value) for column, value in (values | changes).items()}


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return path


def outcome(side="myriad", num_envs=1_000, seconds=(0.5, 0.25, 1.0, 0.5, 0.5, 0.5, 0.5), **changes):
    workload = Workload("throughput", "tiny", "cartpole-control", "random", num_envs, 8, (), ("cpu",))
    prepared = {"num_steps": 16, "compile_s": 1.5, "argument_bytes": 3, "temp_bytes": None}
    stats = {"num_episodes": 0, "mean_episode_length": None, "peak_bytes": 9}
    hello = {"hardware": {"device_kind": "cpu", "cores": 2}, "versions": {"jax": "0.10"}, "library_version": "7"}
    values = {"hello": hello, "prepared": prepared, "stats": stats, "seconds": list(seconds)}
    return Outcome(Contender(side, workload), **(values | changes))


def test_a_file_of_results_becomes_the_documented_plot(tmp_path):
    rows = [row(num_envs=n) for n in (100, 1_000)] + [row("gymnax", n, 1e7) for n in (100, 1_000)]
    (path,) = draw(write(tmp_path / "throughput.csv", rows), tmp_path / "plots", ["throughput"])
    assert path == tmp_path / "plots" / "throughput_scaling.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_the_title_says_how_many_times_as_fast():
    rows = [row(num_envs=100), row(num_envs=1_000), row("gymnax", 100, 1e7), row("gymnax", 1_000, 4e8)]
    assert finding(rows) == "Myriad steps cartpole-control 2.5 to 100 times as fast as gymnax"
    assert finding(rows[:1]) == "cartpole-control: up to 1 G steps per second"


def test_the_title_never_divides_figures_of_two_runs():
    rows = [row(timestamp="20260102T000000Z"), row("gymnax", 100, 1e7, timestamp="20260101T000000Z")]
    assert "times as fast" not in finding(rows)


def test_the_caption_names_the_machine_the_versions_the_commit_and_the_day():
    text = caption([row(), row("gymnax", library_version="1.0.1")])
    for part in ("A Processor 9000", "2 cores", "8 GiB", "gymnax 1.0.1", "jax 0.10.2", "0123456789", "2026-01-02"):
        assert part in text


def test_the_newest_row_of_a_size_counts_and_other_machines_are_left_out():
    old, new = row(steps_per_s=1.0), row(steps_per_s=2.0, timestamp="20260103T000000Z")
    other = row(num_envs=500, device_name="Another")
    assert newest([new, other, old]) == [new]


def test_lines_differ_without_their_colours():
    looks = {(style["marker"], style["linestyle"]) for style in STYLES.values()}
    assert len(looks) == len(STYLES)


def test_lines_carry_their_intervals_and_markers(tmp_path):
    figure = plot_results.throughput_scaling([row(num_envs=100), row(num_envs=1_000)])
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.containers[0].has_yerr
    assert axes.get_ylabel() == "environment steps per second"


def test_an_empty_folder_is_one_sentence_and_exit_code_2(tmp_path, capsys):
    assert main(["--input", str(tmp_path)]) == 2
    stderr = capsys.readouterr().err
    assert stderr.count("\n") == 1
    assert "holds no throughput results to draw; `make bench` measures the first." in stderr


def test_a_file_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["--input", str(tmp_path / "absent.csv")]) == 2
    assert "absent.csv does not exist" in capsys.readouterr().err


def test_a_table_of_another_schema_is_named(tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidArgumentError, match=r"other\.csv is no table of results: it lacks the column 'agent'\."):
        draw(tmp_path, tmp_path, ["throughput"])


def test_failed_rows_are_not_drawn(tmp_path):
    with pytest.raises(InvalidArgumentError):
        draw(write(tmp_path / "t.csv", [row(status="failed")]), tmp_path, ["throughput"])


@pytest.mark.parametrize(("value", "text"), [(1, "1"), (100, "100"), (1e4, "10 k"), (2.5e6, "2.5 M"), (1e9, "1 G")])
def test_numbers_on_the_axes_are_short(value, text):
    assert short_number(value) == text


def test_a_row_states_the_median_rate_with_its_interval(tmp_path):
    file = ResultsFile("throughput", tmp_path, "make bench")
    file.add([outcome()])
    (written,) = read_csv(file.path)
    assert tuple(written) == COLUMNS
    assert file.path.name == f"throughput_cpu_{file.timestamp}.csv"
    assert float(written["steps_per_s"]) == 1_000 * 16 / 0.5
    assert float(written["steps_per_s_low"]) == 1_000 * 16 / 1.0
    assert float(written["steps_per_s_high"]) == 1_000 * 16 / 0.25
    assert (written["run_s"], written["samples"], written["temp_bytes"], written["peak_bytes"]) == ("0.5", "7", "", "9")


def test_a_failed_row_keeps_what_is_known_and_the_reason(tmp_path):
    file = ResultsFile("throughput", tmp_path / "mine.csv", "make bench")
    file.add([outcome(status="failed", reason="out of memory", prepared={}, stats={})])
    (written,) = read_csv(tmp_path / "mine.csv")
    assert (written["status"], written["reason"], written["device"]) == ("failed", "out of memory", "cpu")
    assert written["steps_per_s"] == written["samples"] == ""


def test_the_raw_samples_and_the_command_lie_beside_the_table(tmp_path):
    file = ResultsFile("throughput", tmp_path, "make bench")
    file.add([outcome()])
    file.add([outcome("gymnax")])
    assert len(read_csv(file.path)) == 2
    text = file.samples_path.read_text()
    assert '"command": "make bench"' in text
    assert "0.25" in text
    assert len(list(tmp_path.iterdir())) == 2


def test_the_table_reads_in_a_terminal_and_in_markdown():
    assert markdown(["a", "long"], [["12", "b"]]).split("\n") == ["|  a | long |", "|---:|-----:|", "| 12 |    b |"]
    table = scaling_table([[outcome(), outcome("gymnax", seconds=[5.0] * 7)]])
    assert "| times as fast (95% interval) |" in table
    assert "10 (5 to 20)" in table


def test_a_side_that_failed_leaves_its_cells_without_a_figure():
    table = scaling_table([[outcome(), outcome("gymnax", status="not installed", prepared={}, seconds=[None] * 7)]])
    assert "not installed" in table
    assert "nan" not in table
