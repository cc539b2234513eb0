import json
import math

import pytest

from benchmarks import scan_chunk
from benchmarks.harness.results import COLUMNS, read_csv
from benchmarks.scan_chunk import common_steps, main


def only_file(folder):
    (file,) = folder.glob("*.csv")
    return file


@pytest.mark.slow
def test_a_run_writes_a_row_for_each_chunk_size_over_the_same_steps(tmp_path):
    flags = ["--num-envs", "64", "--scan-chunk-sizes", "8", "16", "--output", str(tmp_path)]
    assert main(flags) == 0
    rows = read_csv(only_file(tmp_path))
    assert only_file(tmp_path).name.startswith(f"scan_chunk_{rows[0]['device']}_")
    assert [row["scan_chunk_size"] for row in rows] == ["8", "16"]
    for row in rows:
        assert tuple(row) == COLUMNS
        assert [row[each] for each in ("suite", "status", "num_envs", "agent")] == [
            *("scan_chunk", "ok", "64", "random")
        ]
        low, middle, high = (
            float(row[each]) for each in ("steps_per_s_low", "steps_per_s", "steps_per_s_high")
        )
        assert low <= middle <= high
        assert int(row["samples"]) >= 6
        assert float(row["compile_s"]) > 0
        assert int(row["argument_bytes"]) > 0
    (num_steps,) = {int(row["num_steps"]) for row in rows}
    assert num_steps % 16 == 0
    (file,) = tmp_path.glob("*_samples.json")
    chunks = json.loads(file.read_text())["alternations"][0]["chunks"]
    assert [len(chunk["seconds"]) for chunk in chunks] == [11, 11]


@pytest.mark.parametrize(
    ("chunks", "steps"),
    [([1, 16, 128], 128), ([2, 3], 6), ([128, 256], 256), ([97, 101], 101), ([7], 7)],
)
def test_the_common_steps_are_whole_chunks_where_few_suffice(chunks, steps):
    assert common_steps(chunks) == steps
    assert steps == max(chunks) or all(steps % chunk == 0 for chunk in chunks)


class Stepped:
    """A program that takes no time; an agent whose updates take 8 steps makes chunks of 8."""

    num_devices, compile_s = 1, 0.5

    def __init__(self, env, agent, num_envs, scan_chunk_size):
        if scan_chunk_size == 64:
            raise RuntimeError("RESOURCE_EXHAUSTED: out of memory\nand a stack")
        self.scan_chunk_size, self.ran = 8 * math.ceil(scan_chunk_size / 8), []
        self.reports = (type("Report", (), {"argument_bytes": 3, "temp_bytes": 4}),)

    def start(self):
        self.ran = []

    def run(self, num_steps):
        self.ran.append(num_steps)


def test_a_size_that_fails_leaves_the_others_and_two_sizes_that_are_one_are_timed_once(monkeypatch):
    monkeypatch.setattr(scan_chunk, "program", Stepped)
    found = scan_chunk._timed([1, 8, 64, 16], 6, 1.0, "cartpole-control", "ppo", 4)["chunks"]
    assert [(each["scan_chunk_size"], each.get("failure", "")) for each in found] == [
        (8, ""),
        (16, ""),
        (64, "RESOURCE_EXHAUSTED: out of memory"),
    ]
    assert {each["num_steps"] % 16 for each in found if "failure" not in each} == {0}
