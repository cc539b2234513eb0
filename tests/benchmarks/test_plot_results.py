import csv
from pathlib import Path

import pytest

from benchmarks.harness.interleave import Outcome
from benchmarks.harness.results import (
    COLUMNS,
    ResultsFile,
    columns_of,
    markdown,
    new_row,
    read_csv,
    samples_beside,
)
from benchmarks.harness.workload import Case, Workload
from benchmarks.plot_results import main
from benchmarks.plots.draw import PLOTS, draw, select
from benchmarks.plots.scaling import finding
from benchmarks.plots.style import caption
from benchmarks.throughput import scaling_table
from myriad.errors import InvalidArgumentError

MACHINE = ("library", "library_version", "device", "device_name", "cores")
MACHINE += ("memory_total_bytes", "jax_version")
SIZES = (100, 1_000, 10_000)


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


def write(path, rows, columns=COLUMNS):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    return path


def outcome(side="myriad", num_envs=1_000, seconds=(0.5, 0.25, 1.0, 0.5, 0.5, 0.5, 0.5), **changes):
    workload = Workload("throughput", "tiny", "cartpole-control", "random", num_envs, 8, ())
    prepared = {"num_steps": 16, "compile_s": 1.5, "argument_bytes": 3, "temp_bytes": None}
    stats = {"num_episodes": 0, "mean_episode_length": None, "peak_bytes": 9}
    hello = {
        "hardware": {"device_kind": "cpu", "cores": 2},
        "versions": {"jax": "0.10"},
        "library_version": "7",
    }
    values = {"hello": hello, "prepared": prepared, "stats": stats, "seconds": list(seconds)}
    return Outcome(Case(side, workload), **(values | changes))


def test_the_title_says_how_many_times_as_fast_in_one_run():
    ours, theirs = [row(num_envs=100), row(num_envs=1_000)], row("gymnax", 1_000, 4e8)
    found = finding([*ours, row("gymnax", 100, 1e7), theirs])
    assert found == "Myriad steps cartpole-control 2.5 to 100 times as fast as gymnax"
    assert finding(ours[:1]) == "cartpole-control: up to 1 G steps per second"
    assert "times as fast" not in finding([*ours, theirs | {"timestamp": "20250101T000000Z"}])


def test_the_caption_names_a_library_on_another_jax():
    theirs = row("gymnax", library_version="1.0.1", jax_version="0.7.2")
    text = caption([row(), theirs], "What is shown.")
    for part in ("What is shown.", "gymnax 1.0.1 (on jax 0.7.2)", "0123456789"):
        assert part in text


def test_the_newest_row_of_a_size_counts_and_other_machines_are_left_out():
    old, new = row(steps_per_s=1.0), row(steps_per_s=2.0, timestamp="20260103T000000Z")
    other = row(num_envs=500, device_name="Another", timestamp="20260101T000000Z")
    assert select([new, other, old], PLOTS["throughput"]) == [new]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "holds no results to draw"),
        (["--input", "absent.csv"], "absent.csv does not exist"),
        (["--input", "other.csv"], "other.csv is not a table of results: it lacks the column"),
        (["--input", "c.csv", "--plot-type", "memory"], "no memory results to draw"),
        (["--plot-type", "librery"], "invalid choice: 'librery'"),
    ],
)
def test_what_can_not_be_drawn_is_refused(flags, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("other.csv").write_text("a,b\n1,2\n")
    Path("empty").mkdir()
    write(Path("c.csv"), throughput_rows())
    assert main(["--input", "empty", "--output", "plots", *flags]) == 2
    assert says in (stderr := capsys.readouterr().err)
    assert stderr.count("\n") == 1


def test_a_table_of_another_schema_in_the_folder_is_left_out(tmp_path):
    (tmp_path / "noise.csv").write_text("run,verdict\n1,ok\n")
    (tmp_path / "empty.csv").write_text("")
    write(tmp_path / "throughput.csv", [row(num_envs=n) for n in (100, 1_000)])
    assert len(draw(tmp_path, tmp_path / "plots", ["throughput"])) == 2


def test_a_row_states_the_median_rate_with_its_interval(tmp_path):
    file = ResultsFile("throughput", tmp_path, "make bench")
    file.add([columns_of(outcome())], [])
    (written,) = read_csv(file.path)
    assert tuple(written) == COLUMNS
    assert file.path.name == f"throughput_cpu_{file.timestamp}.csv"
    assert float(written["steps_per_s"]) == 1_000 * 16 / 0.5
    assert float(written["steps_per_s_low"]) == 1_000 * 16 / 1.0
    assert float(written["steps_per_s_high"]) == 1_000 * 16 / 0.25
    read = [written[each] for each in ("run_s", "samples", "temp_bytes", "peak_bytes")]
    assert read == ["0.5", "7", "", "9"]


def test_a_failed_row_keeps_what_is_known_and_the_reason(tmp_path):
    file = ResultsFile("throughput", tmp_path / "mine.csv", "make bench")
    failed = outcome(status="failed", reason="out of memory", prepared={}, stats={})
    file.add([columns_of(failed)], [])
    (written,) = read_csv(tmp_path / "mine.csv")
    read = [written[each] for each in ("status", "reason", "device")]
    assert read == ["failed", "out of memory", "cpu"]
    assert written["steps_per_s"] == written["samples"] == ""


def test_the_raw_samples_and_the_command_lie_beside_the_table(tmp_path):
    file = ResultsFile("throughput", tmp_path, "make bench")
    file.add([columns_of(outcome())], [0.25])
    file.add([columns_of(outcome("gymnax"))], [])
    assert len(read_csv(file.path)) == 2
    text = samples_beside(file.path).read_text()
    assert '"command": "make bench"' in text
    assert "0.25" in text
    assert len(list(tmp_path.iterdir())) == 2


def test_the_table_reads_in_a_terminal_and_in_markdown_also_where_a_side_failed():
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


def made(suite, **columns):
    """Return a row that `results.new_row` made, as a CSV gives it back."""
    known = {name: value for name, value in row().items() if name in MACHINE} | {
        "env": "snake",
        "agent": "random",
    }
    return {
        name: str(value)
        for name, value in new_row(suite, "20260102T030405Z", **known | columns).items()
    }


def rate(middle, name="steps_per_s"):
    return {name: middle, f"{name}_low": 0.9 * middle, f"{name}_high": 1.1 * middle, "samples": 11}


def without_machine(suite, library, **columns):
    """Return the row of a library that never started, and so never named the machine."""
    machine = dict.fromkeys(("library_version", "device", "device_name", "cores"), "")
    return made(suite, library=library, **machine, **columns)


def memory_rows():
    peaks = {100: 1_000_000, 1_000: 1_900_000, 10_000: 10_900_000}
    envs = [
        made("memory_envs", num_envs=n, argument_bytes=28 * n, temp_bytes=8 * n, peak_bytes=peak)
        for n, peak in peaks.items()
    ]
    refused = made("memory_envs", num_envs=10**6, status="refused", reason="out of memory")
    of_chunk = {"num_envs": 1_000, "argument_bytes": 28_000}
    scan = [
        made("memory_scan", scan_chunk_size=c, temp_bytes=c * 400, peak_bytes=peak, **of_chunk)
        for c, peak in ((1, 1_000_000), (256, 3_000_000))
    ]
    return [*envs, refused, *scan]


def chunk_rows():
    rates = {8: 1e6, 64: 3e6, 256: 3.1e6, 1_024: 2e6}
    rows = [
        made("scan_chunk", num_envs=1_000, scan_chunk_size=c, temp_bytes=c, compile_s=c, **rate(r))
        for c, r in rates.items()
    ]
    refused = {"scan_chunk_size": 4_096, "status": "refused", "reason": "out of memory"}
    return [*rows, made("scan_chunk", num_envs=1_000, **refused)]


def comparison_rows():
    rates = {"myriad": 6e6, "gymnax": 6e4, "gymnasium": 2e3, "envpool": 2e4}
    rows = [
        made("comparison", library=library, num_envs=n, **rate(n * r))
        for n in (1, 1_000)
        for library, r in rates.items()
    ]
    absent = {"status": "not installed", "reason": "it needs C"}
    refused = {"status": "refused", "reason": "no memory"}
    return [
        *rows,
        without_machine("comparison", "pufferlib", num_envs=1_000, **absent),
        made("comparison", library="rejax", num_envs=1_000, **refused),
    ]


def throughput_rows():
    return [
        row(library, n, r * n / (n + 100))
        for library, r in (("myriad", 1e9), ("gymnax", 1e7))
        for n in SIZES
    ]


ROWS = {
    "throughput": throughput_rows,
    "efficiency": throughput_rows,
    "memory": memory_rows,
    "scan_chunk": chunk_rows,
    "comparison": comparison_rows,
}
FINDINGS = {
    "throughput": "Myriad steps cartpole-control 100 times as fast as gymnax",
    "efficiency": (
        "Myriad on cartpole-control comes within 10% of its best rate at 1 k environments"
    ),
    "memory": "snake: 10 k environments peak at 10.9 MB, 1 kB per environment added; 1 M don't fit",
    "scan_chunk": "snake: the fastest scan chunk is 64 to 256 at 1 k environments",
    "comparison": "Myriad steps snake 100 times as fast as gymnax",
}


def figure_of(kind, rows=None):
    plot = PLOTS[kind]
    return plot.figure(select(ROWS[kind]() if rows is None else rows, plot))


def title_of(figure):
    return " ".join(figure.get_suptitle().split())


@pytest.mark.parametrize("kind", PLOTS)
def test_the_title_says_what_the_rows_show_and_the_caption_on_what(kind):
    figure = figure_of(kind)
    assert title_of(figure) == FINDINGS[kind]
    below = figure.get_supxlabel().replace("\n", " ")
    for part in ("A Processor 9000, 2 cores, 8 GiB", "myriad 1.0", "Measured 2026-01-02."):
        assert part in below


@pytest.mark.slow
def test_a_folder_becomes_every_plot_as_png_and_svg(tmp_path, capsys):
    for name, rows in ROWS.items():
        write(tmp_path / f"{name}.csv", rows())
    assert main(["--input", str(tmp_path), "--output", str(tmp_path / "plots")]) == 0
    printed = capsys.readouterr().out.split()
    assert len(printed) == 2 * len(PLOTS)
    for plot in PLOTS.values():
        png, svg = (
            (tmp_path / "plots" / f"{plot.file}.{kind}").read_bytes() for kind in ("png", "svg")
        )
        assert png.startswith(b"\x89PNG")
        assert b"<svg" in svg
        assert min(len(png), len(svg)) > 10_000
    assert len(list((tmp_path / "plots").iterdir())) == 2 * len(PLOTS)


def test_the_efficiency_is_the_share_of_what_the_smallest_size_promises():
    rows = [row(num_envs=10, steps_per_s=100.0), row(num_envs=100, steps_per_s=400.0)]
    promised, best = figure_of("efficiency", rows).axes
    assert list(promised.containers[0].lines[0].get_ydata()) == pytest.approx([1, 0.4])
    assert list(best.containers[0].lines[0].get_ydata()) == pytest.approx([0.25, 1])


def test_memory_marks_what_was_refused():
    envs, scan = figure_of("memory").axes
    assert [line.get_xdata()[0] for line in envs.lines if line.get_gid() == "refused"] == [10**6]
    assert not [line for line in scan.lines if line.get_gid() == "refused"]
    assert "refused" in [text.get_text() for text in envs.texts]


def test_libraries_are_ranked_with_ours_marked_and_the_absent_ones_explained():
    one, thousand = figure_of("comparison").axes
    names = [label.get_text() for label in thousand.get_yticklabels()]
    assert names == ["myriad", "gymnax", "envpool", "gymnasium", "pufferlib", "rejax"]
    assert thousand.get_yticklabels()[0].get_fontweight() == "bold"
    said = {text.get_text() for text in thousand.texts}
    assert said >= {"60 M; ours is 100 times that", "refused", "not installed"}
    assert all(each.has_xerr for each in thousand.containers)
    assert len(one.containers) == 4


def test_the_title_says_first_where_ours_is_slower():
    rows = [*comparison_rows(), made("comparison", library="envpool", num_envs=1, **rate(12e6))]
    said = "Myriad is slower on snake: 0.5 times envpool at 1 environment"
    assert title_of(figure_of("comparison", rows)) == said


def test_a_library_is_compared_with_the_same_agent_and_run_only():
    rows = [*comparison_rows(), made("comparison", agent="policy-64-64", num_envs=1, **rate(1e3))]
    later = made("comparison", library="gymnax", num_envs=1, **rate(1e9)) | {
        "timestamp": "20260103T000000Z"
    }
    figure = figure_of("comparison", [*rows, later])
    assert len(figure.axes) == 3
    said = "Myriad steps snake 100 to 300 times as fast as the fastest other library"
    assert title_of(figure) == said


@pytest.mark.parametrize("kind", PLOTS)
def test_one_row_of_a_new_library_is_enough(kind):
    (first, *_) = ROWS[kind]()
    assert title_of(figure_of(kind, [first | {"library": "a-library-of-tomorrow"}]))


@pytest.mark.parametrize("kind", PLOTS)
def test_rows_without_any_measurement_are_nothing_to_draw(kind, tmp_path):
    rows = [each | {"status": "refused"} for each in ROWS[kind]()]
    with pytest.raises(InvalidArgumentError, match=f"holds no {kind} results to draw"):
        draw(write(tmp_path / "t.csv", rows), tmp_path, [kind])


@pytest.mark.slow
def test_each_environment_has_its_plot_and_cartpole_the_plain_name(tmp_path):
    rows = [
        row(env=env, num_envs=size)
        for env in ("cartpole-control", "snake", "my.module:Mine")
        for size in (100, 1_000)
    ]
    source = write(tmp_path / "rows.csv", rows)
    paths = draw(source, tmp_path / "plots", ["throughput"])
    assert [path.name for path in paths if path.suffix == ".png"] == [
        "throughput_scaling.png",
        "throughput_scaling_my_module_Mine.png",
        "throughput_scaling_snake.png",
    ]
    (only, _) = draw(source, tmp_path / "plots", ["throughput"], "snake")
    assert only.name == "throughput_scaling_snake.png"


def test_a_column_that_a_file_of_an_older_version_lacks_is_read_as_empty(tmp_path):
    newer = ("package_version", "steps_per_s_low", "steps_per_s_high", "memory_total_bytes")
    rows = [
        {name: value for name, value in row(num_envs=size).items() if name not in newer}
        for size in SIZES
    ]
    write(tmp_path / "older.csv", rows, columns=list(rows[0]))
    read = read_csv(tmp_path / "older.csv")
    assert list(read[0]) == list(COLUMNS)
    assert read == [each | dict.fromkeys(newer, "") for each in rows]
    assert len(draw(tmp_path / "older.csv", tmp_path, ["throughput"])) == 2
