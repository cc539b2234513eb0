"""What plots say of a table of results, and which of its rows they show."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks.harness.results import COLUMNS, NUMBERS, new_row, read_table, write_csv
from benchmarks.plot_results import main
from benchmarks.plots import draw as drawing
from benchmarks.plots.draw import PLOTS, draw, select

MACHINE = {
    "library_version": "1.0",
    "device": "cpu",
    "device_name": "A Processor 9000",
    "cores": 2,
    "memory_total_bytes": 8 * 2**30,
    "jax_version": "0.10.2",
}


def row(suite, day=2, **columns):
    known = MACHINE | {"library": "myriad", "env": "snake", "agent": "random", "commit": "01234567"}
    known["scan_chunk_size"] = 256
    return new_row(suite, f"202601{day:02}T030405Z", **known | columns)


def rate(middle, name="steps_per_s") -> dict[str, Any]:
    return {name: middle, f"{name}_low": 0.9 * middle, f"{name}_high": 1.1 * middle, "samples": 11}


def throughput_rows(**columns):
    rates = {n: n / (n + 100) for n in (100, 1_000, 10_000)}
    theirs = {"library": "gymnax", "library_version": "1.0.1", "jax_version": "0.7.2"} | columns
    return [
        *(row("throughput", num_envs=n, **rate(1e9 * r), **columns) for n, r in rates.items()),
        *(row("throughput", num_envs=n, **rate(1e7 * r), **theirs) for n, r in rates.items()),
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
        row("comparison", library=library, num_envs=n, **rate(n * r))
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


# For each plot: its rows, the finding in its title, and a label with a unit.
PICTURES = {
    "throughput": (
        throughput_rows,
        "Myriad steps snake 100 times as fast as gymnax",
        "environment steps per second",
    ),
    "efficiency": (
        throughput_rows,
        "Myriad on snake reaches its best rate at 1 k environments",
        "efficiency against the smallest size",
    ),
    "memory": (
        memory_rows,
        "snake: 10 k environments peak at 10.9 MB, 1 kB per environment added; 1 M don't fit",
        "bytes",
    ),
    "scan_chunk": (
        chunk_rows,
        "snake: of scan chunks of 8 to 1,024 steps the fastest is 64 to 256 at 1 k environments",
        "environment steps/s",
    ),
    "comparison": (
        comparison_rows,
        "Myriad steps snake 100 times as fast as gymnax",
        "environment steps per second",
    ),
}


def table(rows):
    found = pd.DataFrame(rows, columns=list(COLUMNS)).astype(str)
    return found.assign(**{name: pd.to_numeric(found[name], errors="coerce") for name in NUMBERS})


def figure_of(kind, rows=None):
    plot = PLOTS[kind]
    return plot.figure(select(table(PICTURES[kind][0]() if rows is None else rows), plot))


def title_of(figure):
    return " ".join(figure.get_suptitle().split())


# --- what plots say


@pytest.mark.parametrize("kind", PLOTS)
def test_the_title_says_what_the_rows_show_and_the_caption_on_what(kind):
    rows, finding, unit = PICTURES[kind]
    figure = figure_of(kind)
    assert title_of(figure) == finding
    labels = [label for axes in figure.axes for label in (axes.get_xlabel(), axes.get_ylabel())]
    assert unit in labels
    below = figure.get_supxlabel().replace("\n", " ")
    for part in ("A Processor 9000, 2 cores, 8 GiB", "myriad 1.0", "Measured 2026-01-02."):
        assert part in below
    if rows is throughput_rows:
        assert "gymnax 1.0.1 (on jax 0.7.2)" in below


FIFTY = rate(6e6 / 50)
BEST = "50 to 100 times as fast as gymnax, each at its best scan chunk"


@pytest.mark.parametrize(
    ("library", "columns", "said"),
    [
        ("envpool", rate(6e6 / 2.3), "2.3 to 100 times as fast as the faster of envpool and gymn"),
        ("envpool", rate(12e6), "snake slower: 0.50 times envpool at 1 environment"),
        # The faster way to run a peer counts, and its fastest chunk. Of one chunk the newest does.
        ("gymnax-configured", FIFTY, "Myriad steps snake 50 to 100 times as fast as gymnax"),
        ("gymnax", FIFTY | {"suite": "throughput", "scan_chunk_size": 64}, BEST),
        ("gymnax", rate(6e6 / 290) | {"day": 3}, "100 to 290 times as fast as gymnax"),
    ],
)
def test_the_title_compares_with_the_fastest_other_library(library, columns, said):
    added = row(**{"suite": "comparison", "library": library, "num_envs": 1} | columns)
    # Another library, chunk or day has a row of its own beside the one that is there.
    own = {"day", "scan_chunk_size"} & columns.keys()
    rows = [
        each
        for each in comparison_rows()
        if own or (each["library"], each["num_envs"]) != (library, 1)
    ]
    assert said in title_of(figure_of("comparison", [*rows, added]))


def test_the_newest_row_of_a_size_counts_and_other_machines_are_left_out():
    old, new = (row("throughput", day=day, num_envs=100, **rate(day)) for day in (2, 3))
    other = row("throughput", day=1, num_envs=500, device_name="Another", **rate(1))
    shown = select(table([new, other, old]), PLOTS["throughput"])
    assert list(shown.steps_per_s) == [3.0]
    twice = [row("memory_envs", day=day, num_envs=100, peak_bytes=day) for day in (3, 2)]
    assert list(select(table(twice), PLOTS["memory"]).peak_bytes) == [3]


def test_the_efficiency_is_the_share_of_what_the_smallest_size_promises():
    rows = [row("throughput", num_envs=n, **rate(r)) for n, r in ((10, 100.0), (100, 400.0))]
    promised, best = figure_of("efficiency", rows).axes
    assert list(promised.containers[0].lines[0].get_ydata()) == pytest.approx([1, 0.4])
    assert list(best.containers[0].lines[0].get_ydata()) == pytest.approx([0.25, 1])


# --- files to draw


@pytest.mark.slow
def test_a_folder_becomes_each_of_its_plots_as_png_and_svg(tmp_path, capsys):
    for name in ("memory", "comparison"):
        write_csv(tmp_path / f"{name}.csv", COLUMNS, PICTURES[name][0]())
    # Tables of another schema are left out.
    (tmp_path / "noise.csv").write_text("run,verdict\n1,ok\n")
    (tmp_path / "empty.csv").write_text("")
    assert main(["--input", str(tmp_path), "--output", str(tmp_path / "plots")]) == 0
    assert len(capsys.readouterr().out.split()) == 4
    for png in (tmp_path / "plots").glob("*.png"):
        svg = png.with_suffix(".svg").read_bytes()
        assert png.read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in svg
        assert min(png.stat().st_size, len(svg)) > 10_000
    assert len(list((tmp_path / "plots").iterdir())) == 4


@pytest.mark.parametrize(
    ("env", "names"), [(None, ["", "_my_module_Mine", "_snake"]), ("snake", ["_snake"])]
)
def test_each_environment_has_its_plot_and_cartpole_the_plain_name(
    env, names, tmp_path, monkeypatch
):
    monkeypatch.setattr(drawing, "_save", lambda figure, stem: [stem])
    rows = throughput_rows(env="cartpole-control") + throughput_rows(env="my.module:Mine")
    rows += throughput_rows()
    write_csv(tmp_path / "rows.csv", COLUMNS, rows)
    paths = draw(tmp_path / "rows.csv", tmp_path, ["throughput"], env)
    assert [path.name.removeprefix(PLOTS["throughput"].file) for path in paths] == names


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "holds no results to draw"),
        (["--input", "absent.csv"], "absent.csv does not exist"),
        (["--input", "other.csv"], "other.csv is not a table of results: it lacks the column"),
        (["--input", "c.csv", "--plot-type", "memory"], "no memory results to draw"),
        (
            ["--input", "text.csv"],
            "results text.csv are damaged: could not convert string to float",
        ),
        (["--input", "short.csv"], "results short.csv are damaged in line 2: it has too few cells"),
        (["--input", "bytes.csv"], "results bytes.csv can't be read: "),
        (["--plot-type", "librery"], "invalid choice: 'librery'"),
    ],
)
def test_what_can_not_be_drawn_is_refused(flags, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("other.csv").write_text("a,b\n1,2\n")
    Path("bytes.csv").write_bytes(b"\xff\xfe\x00")
    Path("empty").mkdir()
    write_csv(Path("c.csv"), COLUMNS, throughput_rows())
    write_csv(Path("text.csv"), COLUMNS, throughput_rows(num_steps="many"))
    text = Path("c.csv").read_text().replace(",01234567", "", 1)
    Path("short.csv").write_text(text)
    assert main(["--input", "empty", "--output", "plots", *flags]) == 2
    assert says in (stderr := capsys.readouterr().err)
    assert stderr.count("\n") == 1


def test_a_column_that_a_file_of_an_older_version_lacks_is_read_as_empty(tmp_path):
    newer = ("package_version", "steps_per_s_low", "memory_total_bytes")
    older = [name for name in COLUMNS if name not in newer]
    rows = [{name: each[name] for name in older} for each in throughput_rows()]
    write_csv(tmp_path / "older.csv", older, rows)
    read = read_table(tmp_path / "older.csv")
    assert list(read.columns) == list(COLUMNS)
    assert set(read.package_version) == {""}
    assert read[list(newer[1:])].isna().all(axis=None)
    assert list(read.steps_per_s) == [each["steps_per_s"] for each in rows]
