"""Change points: found where there are some, none in noise, never across a change of setup."""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from made_up_results import commit_hash, write_asv
from perfgate.history.asv_results import read_archive
from perfgate.history.levels import BenchmarkHistory, histories, main

NOISE = 0.015
NAME = "throughput.Throughput.time_chunk"


def noisy(levels: np.ndarray, seed: int) -> np.ndarray:
    return levels * (1 + NOISE * np.random.default_rng(seed).standard_normal(len(levels)))


def step(num: int, at: int, ratio: float) -> np.ndarray:
    return np.where(np.arange(num) < at, 1.0, ratio)


def history(folder: Path, values: np.ndarray, **kwargs) -> BenchmarkHistory:
    write_asv(folder, {NAME: values}, **kwargs)
    (found,) = histories(read_archive(folder))
    return found


def test_a_change_of_machine_or_versions_is_a_marker_and_no_change(tmp_path):
    values = noisy(step(60, 30, 1.5), seed=6)
    other_machine = history(tmp_path / "a", values, machines=["old"] * 30 + ["new"] * 30)
    other_versions = history(tmp_path / "b", values, versions=["0.10.1"] * 30 + ["0.10.2"] * 30)
    for found in (other_machine, other_versions):
        assert found.changes == []
        assert found.open == []
        assert len(found.stretches) == 2
    assert len(history(tmp_path / "c", values).changes) == 1


def test_two_machines_in_turn_are_each_compared_with_themselves(tmp_path):
    machines = ["slow", "fast"] * 60
    levels = np.where(np.arange(120) % 2, 1.0, 3.0) * step(120, 60, 1.08)
    found = history(tmp_path, noisy(levels, seed=7), machines=machines)
    assert sorted(change.point.setup.machine for change in found.changes) == [
        "fast, AMD EPYC, 2 cores",
        "slow, AMD EPYC, 2 cores",
    ]
    assert all(abs(change.ratio.middle - 1.08) < 0.03 for change in found.changes)


def test_what_small_steps_add_up_to_stands_open_as_one_slowdown(tmp_path):
    found = history(tmp_path, noisy(step(150, 50, 1.05) * step(150, 100, 1.05), seed=8))
    (still_open,) = found.open
    assert len(found.changes) == 2
    assert still_open.ratio.low > 1.08
    assert still_open.point is found.changes[0].point


def test_a_slowdown_that_was_undone_or_whose_machine_retired_is_not_open(tmp_path):
    undone = step(150, 50, 1.08) / step(150, 100, 1.08)
    assert history(tmp_path / "a", noisy(undone, seed=9)).open == []
    machines = ["retired"] * 80 + ["new"] * 40
    retired = history(tmp_path / "b", noisy(step(120, 40, 1.1), seed=10), machines=machines)
    assert len(retired.changes) == 1
    assert retired.open == []
    assert [change.point for change in retired.cut_off] == [
        retired.changes[0].point
    ]  # and yet not forgotten


def test_a_series_that_counts_to_zero_has_no_ratio(tmp_path):
    assert history(tmp_path, step(40, 20, 0.0)).changes == []


def test_what_asv_itself_writes_is_what_is_read(tmp_path):
    from asv.results import Results
    from asv.runner import BenchmarkResult

    params = {
        "machine": "runner",
        "cpu": "AMD EPYC",
        "num_cpu": "2",
        "os": "Linux",
        "arch": "x86_64",
        "ram": "1",
    }
    benchmark = {"name": NAME, "version": "v1", "params": [["'small'", "'large'", "'refused'"]]}
    samples = [[0.1, 0.11, 0.12, 0.1, 0.1, 0.11], [0.2] * 6, None]
    number = [{"number": 1, "repeat": 6}, {"number": 1, "repeat": 6}, None]
    outcome = BenchmarkResult([0.105, 0.2, float("nan")], samples, number, 0, "", None)
    started = datetime(2026, 3, 4, 5, tzinfo=UTC)
    results = Results(
        params,
        {"jax": "0.10.2"},
        "a" * 40,
        1_770_000_000_000,
        "3.11",
        "virtualenv-py3.11-jax0.10.2",
        {},
    )
    results.add_result(benchmark, outcome, started_at=started, record_samples=True)
    results.save(str(tmp_path))

    archive = read_archive(tmp_path)
    assert sorted(archive.points) == [f"{NAME}(large)", f"{NAME}(small)"]
    (point,) = archive.points[f"{NAME}(small)"]
    assert point.value == pytest.approx(0.105)
    assert point.samples == tuple(samples[0])
    assert point.setup.machine == "runner, AMD EPYC, 2 cores"
    assert point.setup.versions == "Python 3.11, jax 0.10.2"
    assert archive.measured == (started.timestamp(), "runner, AMD EPYC, 2 cores")
    assert archive.benchmarks[f"{NAME}(small)"].unit == "seconds"


def test_only_commits_of_main_count(tmp_path):
    def git(*args: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(
            ["git", "-C", tmp_path, *identity, *args], check=True, capture_output=True, text=True
        ).stdout

    git("init", "-b", "main")
    git("commit", "--allow-empty", "-m", "First of main")
    on_main = git("rev-parse", "HEAD").strip()
    results = tmp_path / "asv"
    write_asv(results, {NAME: np.ones(2)})
    for path, commit in zip(
        sorted((results / "runner").glob("*-*.json")), (on_main, "b" * 40), strict=True
    ):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"commit_hash": commit}))
    (commit,) = read_archive(results).commits
    assert (commit.hash, commit.subject) == (on_main, "First of main")


def test_a_half_written_file_is_left_out_and_named(tmp_path, capsys):
    write_asv(tmp_path, {NAME: np.ones(3)})
    (broken,) = (tmp_path / "runner").glob(f"{commit_hash(1)[:8]}*")
    broken.write_text(broken.read_text()[:100])
    assert main(["--results", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "1 benchmarks, 2 commits" in captured.out
    assert broken.name in captured.err


def test_the_command_prints_a_table_or_json(tmp_path, capsys):
    write_asv(tmp_path, {NAME: noisy(step(60, 30, 1.07), seed=11)})
    assert main(["--results", str(tmp_path)]) == 0
    assert f"{NAME}  {commit_hash(30)[:10]}" in capsys.readouterr().out
    assert main(["--results", str(tmp_path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["commit"] == commit_hash(30)
    assert row["low"] <= 1.07 <= row["high"]
    assert row["cut_off"] is False
    assert (row["change"], row["open"], row["since"]) == ("slower", True, "2023-12-14")


def test_without_results_the_command_says_so(tmp_path, capsys):
    assert main(["--results", str(tmp_path / "none")]) == 0
    assert "not measured yet" in capsys.readouterr().out
