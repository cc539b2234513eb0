"""Damaged result files are left out of the site and listed on it. Everything else is shown."""

import csv
import html
import os

import numpy as np
from published_results import PUBLISHED, build, read

from ci.site.measurements import read_measurements
from made_up_results import write_asv

CSV = PUBLISHED / "throughput_snake_cpu.csv"
SAMPLES = CSV.with_name("throughput_snake_cpu_samples.json")


ROWS = CSV.read_text().splitlines(keepends=True)
RATE = next(csv.DictReader(ROWS))["steps_per_s"]
RUN = b'{"commit_hash": "%s", "results": {}, "result_columns": []}'
DAMAGED = {
    "csv/latin.csv": b"suite,\xe9\n",
    "csv/null.csv": b"a,b\n1,\0\n",
    "csv/short_line.csv": "".join([ROWS[0], "throughput,myriad\n", *ROWS[1:]]).encode(),
    "csv/words_for_numbers.csv": CSV.read_bytes().replace(b",1000,256,", b",many,256,", 1),
    "csv/no_number.csv": CSV.read_bytes().replace(RATE.encode(), b"nan"),
    "csv/cut_samples.json": SAMPLES.read_bytes()[:-3],
    "csv/list_samples.json": b"[1]",
    "csv/deep_samples.json": b"[" * 100_000,
    "csv/surrogate_samples.json": b'{"command": "\\ud800"}',
    "csv/parts/cut.json": b'{"reason": "exit code 1", "ended": "2026-',
    "csv/parts/no_date.json": b'{"reason": "it failed", "ended": "yesterday", "succeeded": ""}',
    "asv/runner/cut.json": b'{"commit_hash": "',
    "asv/runner/null.json": b"null",
    "asv/runner/nothing.json": b"{}",
    "asv/runner/deep.json": b"[" * 100_000,
    "asv/runner/outside.json": RUN % b"../../../outside",
    "asv/runner/no_commit.json": RUN % b"main",
    "asv/benchmarks.json": b'{"suite.Class.time_it": {"unit": []}, "version": 2}',
}


def test_what_is_left_out_is_listed_and_the_rest_is_shown(tmp_path):
    results = tmp_path / "results"
    write_asv(results / "asv", {"suite.Class.time_it": np.ones((3, 1))}, workloads=("one",))
    (results / "csv" / "parts").mkdir(parents=True)
    (results / "csv" / CSV.name).write_bytes(CSV.read_bytes())
    for name, content in DAMAGED.items():
        (results / name).write_bytes(content)
    os.mkfifo(results / "csv" / "pipe.csv")
    (results / "csv" / "folder.csv").mkdir()
    (results / "csv" / "gone.csv").symlink_to("nowhere")
    site = build(tmp_path)
    page = html.unescape(read(site, "data.html"))
    left_out = [*DAMAGED, "csv/pipe.csv", "csv/folder.csv", "csv/gone.csv"]
    for name in left_out:
        assert f"<li><code>{'/'.join(name.split('/')[-2:])}</code></li>" in page
    assert page.count("<li><code>") == len(left_out)
    assert read_measurements([results / "csv"]).files == [results / "csv" / CSV.name]
    assert "snake" in read(site, "index.html")
    assert (site / "b" / "suite.Class.time_it-one.html").is_file()


def test_the_documented_columns_are_enough(tmp_path):
    rows = """suite,library,env,num_envs,steps_per_s,status,commit,timestamp
throughput,mine,maze,100,1e6,ok,abcdef1,20261121T082729Z
throughput,mine,maze,1000,2e6,ok,abcdef1,20261121T082729Z
throughput,other,maze,100,,missing,abcdef1,20261121T082729Z
"""
    site = build(tmp_path, {"results/csv/mine.csv": rows})
    assert "maze" in read(site, "index.html")
    assert "<td>missing</td>" in read(site, "comparison.html")
