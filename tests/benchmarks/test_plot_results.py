import csv
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.interleave import Outcome
from benchmarks.harness.results import (
    COLUMNS,
    ResultsFile,
    columns_of,
    markdown,
    new_row,
    read_csv,
)
from benchmarks.harness.workload import Case, Workload
from benchmarks.plot_results import main
from benchmarks.plots import draw as drawing
from benchmarks.plots.draw import PLOTS, draw, select
from benchmarks.plots.style import caption
from benchmarks.throughput import scaling_table
from myriad.errors import InvalidArgumentError

MACHINE = {
    "library_version": "1.0",
    "device": "cpu",
    "device_name": "A Processor 9000",
    "cores": 2,
    "memory_total_bytes": 8 * 2**30,
    "jax_version": "0.10.2",
}


def row(suite, day=2, **columns):
    """Return a row as a CSV gives it back."""
    known = MACHINE | {"library": "myriad", "env": "snake", "agent": "random", "commit": "01234567"}
    made = new_row(suite, f"202601{day:02}T030405Z", **known | columns)
    return {name: str(value) for name, value in made.items()}


def rate(middle, name="steps_per_s") -> dict[str, Any]:
    return {name: middle, f"{name}_low": 0.9 * middle, f"{name}_high": 1.1 * middle, "samples": 11}


def ratio(middle: float, low: float | None = None) -> dict[str, Any]:
    return {"ratio": middle, "ratio_low": low or 0.9 * middle, "ratio_high": 1.1 * middle}


def throughput_rows(**columns):
    rates = {n: n / (n + 100) for n in (100, 1_000, 10_000)}
    beside = row("throughput", library="gymnax", **ratio(100), **columns)
    theirs = {
        n: {name: str(value) for name, value in rate(1e7 * r).items()} for n, r in rates.items()
    }
    return [
        *(row("throughput", num_envs=n, **rate(1e9 * r), **columns) for n, r in rates.items()),
        *(beside | {"num_envs": str(n)} | own for n, own in theirs.items()),
    ]


def memory_rows():
    peaks = {100: 1_000_000, 1_000: 1_900_000, 10_000: 10_900_000}
    envs = [
        row("memory_envs", num_envs=n, argument_bytes=28 * n, temp_bytes=8 * n, peak_bytes=peak)
        for n, peak in peaks.items()
    ]
    refused = row("memory_envs", num_envs=10**6, status="refused", reason="out of memory")
    of_chunk = {"num_envs": 1_000, "argument_bytes": 28_000}
    scan = [
        row("memory_scan", scan_chunk_size=c, temp_bytes=c * 400, peak_bytes=peak, **of_chunk)
        for c, peak in ((1, 1_000_000), (256, 3_000_000))
    ]
    return [*envs, refused, *scan]


def chunk_rows():
    rates = {8: 1e6, 64: 3e6, 256: 3.1e6, 1_024: 2e6}
    rows = [
        row("scan_chunk", num_envs=1_000, scan_chunk_size=c, temp_bytes=c, compile_s=c, **rate(r))
        for c, r in rates.items()
    ]
    refused = {"scan_chunk_size": 4_096, "status": "refused", "reason": "out of memory"}
    return [*rows, row("scan_chunk", num_envs=1_000, **refused)]


def comparison_rows():
    rates = {"myriad": 6e6, "gymnax": 6e4, "gymnasium": 2e3, "envpool": 2e4}
    rows = [
        row("comparison", library=library, num_envs=n, **rate(n * r), **ratio(6e6 / r))
        for n in (1, 1_000)
        for library, r in rates.items()
    ]
    # A library that never started, and so never named the machine.
    absent = dict.fromkeys(MACHINE, "") | {"status": "not installed", "reason": "it needs C"}
    refused = {"status": "refused", "reason": "no memory"}
    return [
        *rows,
        row("comparison", library="pufferlib", num_envs=1_000, **absent),
        row("comparison", library="rejax", num_envs=1_000, **refused),
    ]


ROWS = {
    "throughput": throughput_rows,
    "efficiency": throughput_rows,
    "memory": memory_rows,
    "scan_chunk": chunk_rows,
    "comparison": comparison_rows,
}
FINDINGS = {
    "throughput": "Myriad steps snake 100 times as fast as gymnax",
    "efficiency": "Myriad on snake reaches its best rate at 1 k environments",
    "memory": "snake: 10 k environments peak at 10.9 MB, 1 kB per environment added; 1 M don't fit",
    "scan_chunk": "snake: the fastest scan chunk is 64 to 256 at 1 k environments",
    "comparison": "Myriad steps snake 100 times as fast as gymnax",
}
UNITS = {
    "throughput": "environment steps per second",
    "efficiency": "efficiency against the smallest size",
    "memory": "bytes",
    "scan_chunk": "environment steps/s",
    "comparison": "environment steps per second",
}


def write(path, rows, columns=COLUMNS):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    return path


def figure_of(kind, rows=None):
    plot = PLOTS[kind]
    return plot.figure(select(ROWS[kind]() if rows is None else rows, plot))


def title_of(figure):
    return " ".join(figure.get_suptitle().split())


# --- what plots say


@pytest.mark.parametrize("kind", PLOTS)
def test_the_title_says_what_the_rows_show_and_the_caption_on_what(kind):
    figure = figure_of(kind)
    assert title_of(figure) == FINDINGS[kind]
    labels = [label for axes in figure.axes for label in (axes.get_xlabel(), axes.get_ylabel())]
    assert UNITS[kind] in labels
    below = figure.get_supxlabel().replace("\n", " ")
    for part in ("A Processor 9000, 2 cores, 8 GiB", "myriad 1.0", "Measured 2026-01-02."):
        assert part in below
    # One row of a new library is enough.
    (first, *_) = ROWS[kind]()
    assert title_of(figure_of(kind, [first | {"library": "a-library-of-tomorrow"}]))


def test_the_title_says_the_least_and_the_most_ratio_if_each_is_clear():
    ours = throughput_rows()[:2]

    def title(*ratios):
        beside = [
            row("throughput", library="gymnax", num_envs=size, **rate(1e6), **each)
            for size, each in zip((100, 1_000), ratios, strict=False)
        ]
        return title_of(figure_of("throughput", [*ours, *beside]))

    assert title(ratio(100), ratio(2.3)) == "Myriad steps snake 2.3 to 100 times as fast as gymnax"
    nothing = "snake: up to 909 M steps per second"
    assert title(ratio(100), ratio(2.3, low=0.9)) == nothing
    assert title(ratio(100), {}) == title() == nothing


def test_the_title_names_no_best_size_where_no_interval_parts():
    wide = {"steps_per_s_low": 1.0, "steps_per_s_high": 1e10}
    rows = [row("throughput", num_envs=n, **rate(1e6 * n) | wide) for n in (1, 10)]
    said = "Myriad on snake: steps per second by the number of environments"
    assert title_of(figure_of("efficiency", rows)) == said


def test_the_title_says_first_where_ours_is_slower():
    rows = [
        *comparison_rows(),
        row("comparison", library="envpool", num_envs=1, **rate(12e6), **ratio(0.5)),
    ]
    said = "Myriad is slower on snake: 0.5 times envpool at 1 environment"
    assert title_of(figure_of("comparison", rows)) == said
    rows[-1] |= {"ratio_high": "1.2"}
    assert title_of(figure_of("comparison", rows)) == "snake: steps per second of every library"


def test_the_title_compares_with_no_limit():
    limit = row("comparison", library="c", num_envs=1, **rate(12e6), **ratio(0.5))
    title = title_of(figure_of("comparison", comparison_rows()))
    assert title_of(figure_of("comparison", [*comparison_rows(), limit])) == title


def test_a_library_is_compared_with_the_newest_run():
    later = row("comparison", day=3, library="gymnax", num_envs=1, **rate(1e9), **ratio(300))
    figure = figure_of("comparison", [*comparison_rows(), later])
    assert len(figure.axes) == 2
    said = "Myriad steps snake 100 to 300 times as fast as gymnax"
    assert title_of(figure) == said


def test_the_caption_names_a_library_on_another_jax():
    theirs = row("throughput", library="gymnax", library_version="1.0.1", jax_version="0.7.2")
    text = caption([row("throughput"), theirs], "What is shown.")
    for part in ("What is shown.", "gymnax 1.0.1 (on jax 0.7.2)", "01234567"):
        assert part in text


def test_the_newest_row_of_a_size_counts_and_other_machines_are_left_out():
    old, new = (row("throughput", day=day, num_envs=100, **rate(day)) for day in (2, 3))
    other = row("throughput", day=1, num_envs=500, device_name="Another", **rate(1))
    assert select([new, other, old], PLOTS["throughput"]) == [new]


def test_the_efficiency_is_the_share_of_what_the_smallest_size_promises():
    rows = [row("throughput", num_envs=n, **rate(r)) for n, r in ((10, 100.0), (100, 400.0))]
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


# --- files to draw


@pytest.mark.slow
def test_a_folder_becomes_every_plot_as_png_and_svg(tmp_path, capsys):
    for name, rows in ROWS.items():
        write(tmp_path / f"{name}.csv", rows())
    # Tables of another schema are left out.
    (tmp_path / "noise.csv").write_text("run,verdict\n1,ok\n")
    (tmp_path / "empty.csv").write_text("")
    assert main(["--input", str(tmp_path), "--output", str(tmp_path / "plots")]) == 0
    assert len(capsys.readouterr().out.split()) == 2 * len(PLOTS)
    for png in (tmp_path / "plots").glob("*.png"):
        svg = png.with_suffix(".svg").read_bytes()
        assert png.read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in svg
        assert min(png.stat().st_size, len(svg)) > 10_000
    assert len(list((tmp_path / "plots").iterdir())) == 2 * len(PLOTS)


def test_each_environment_has_its_plot_and_cartpole_the_plain_name(tmp_path, monkeypatch):
    monkeypatch.setattr(drawing, "_save", lambda figure, stem: [stem])
    rows = [
        each
        for env in ("cartpole-control", "snake", "my.module:Mine")
        for each in throughput_rows(env=env)
    ]
    source = write(tmp_path / "rows.csv", rows)
    assert [path.name for path in draw(source, tmp_path, ["throughput"])] == [
        "throughput_scaling",
        "throughput_scaling_my_module_Mine",
        "throughput_scaling_snake",
    ]
    (only,) = draw(source, tmp_path, ["throughput"], "snake")
    assert only.name == "throughput_scaling_snake"


def test_libraries_are_compared_apart_for_each_agent(tmp_path, monkeypatch):
    monkeypatch.setattr(drawing, "_save", lambda figure, stem: [stem])
    rows = [*comparison_rows(), row("comparison", agent="mlp-64-64", num_envs=1, **rate(1e3))]
    paths = draw(write(tmp_path / "rows.csv", rows), tmp_path, ["comparison"])
    assert [path.name for path in paths] == ["library_comparison_mlp_64_64", "library_comparison"]


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


@pytest.mark.parametrize("kind", PLOTS)
def test_rows_without_any_measurement_are_nothing_to_draw(kind, tmp_path):
    rows = [each | {"status": "refused"} for each in ROWS[kind]()]
    with pytest.raises(InvalidArgumentError, match=f"holds no {kind} results to draw"):
        draw(write(tmp_path / "t.csv", rows), tmp_path, [kind])


def test_a_column_that_a_file_of_an_older_version_lacks_is_read_as_empty(tmp_path):
    newer = ("package_version", "steps_per_s_low", "steps_per_s_high", "memory_total_bytes")
    rows = [
        {name: value for name, value in each.items() if name not in newer}
        for each in throughput_rows()
    ]
    write(tmp_path / "older.csv", rows, columns=list(rows[0]))
    read = read_csv(tmp_path / "older.csv")
    assert list(read[0]) == list(COLUMNS)
    assert read == [each | dict.fromkeys(newer, "") for each in rows]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: b"\xff\xfe\x00", "can't be read"),
        (lambda text: b"a,b\n1,2\n", "is not a table of results: it lacks the column 'agent'"),
        (lambda text: text.replace(b",100,", b",many,"), "line 2: num_envs is 'many'"),
        (lambda text: text.replace(b",01234567", b""), "line 2: it has more or fewer cells"),
    ],
    ids=["no text", "other columns", "no number", "a cell less"],
)
def test_a_file_that_is_damaged_is_named_with_its_line(damage, reason, tmp_path):
    path = write(tmp_path / "t.csv", throughput_rows())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InvalidArgumentError, match=reason):
        read_csv(path)


# --- the rows of a run


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


FAILED = {"status": "failed", "reason": "out of memory", "prepared": {}, "stats": {}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {},
            {
                "steps_per_s": "32000.0",
                "steps_per_s_low": "16000.0",
                "steps_per_s_high": "64000.0",
                "run_s": "0.5",
                "samples": "7",
                "temp_bytes": "",
                "peak_bytes": "9",
            },
        ),
        (FAILED, {"status": "failed", "reason": "out of memory", "steps_per_s": "", "samples": ""}),
    ],
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
