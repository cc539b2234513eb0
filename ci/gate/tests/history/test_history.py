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
from perfgate.stats.change_points import ALPHA, change_points, ratio_between

NOISE = 0.015
NAME = "throughput.Throughput.time_chunk"


def noisy(levels: np.ndarray, seed: int) -> np.ndarray:
    return levels * (1 + NOISE * np.random.default_rng(seed).standard_normal(len(levels)))


def step(num: int, at: int, ratio: float) -> np.ndarray:
    return np.where(np.arange(num) < at, 1.0, ratio)


def drift(num: int, at: int, per_commit: float, length: int) -> np.ndarray:
    return (1 + per_commit) ** np.clip(np.arange(num) - at, 0, length)


def history(folder: Path, values: np.ndarray, **kwargs) -> BenchmarkHistory:
    write_asv(folder, {NAME: values}, **kwargs)
    (found,) = histories(read_archive(folder))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [1.05, 1 / 1.05], ids=["slower", "faster"])
def test_a_step_of_five_percent_is_found_within_two_commits(ratio):
    rng = np.random.default_rng(1)
    misplaced = 0
    for seed in range(200):
        num = int(rng.integers(40, 400))
        at = int(rng.integers(15, num - 15))
        found = change_points(noisy(step(num, at, ratio), seed))
        assert found, (num, at)
        assert len(found) <= 2
        misplaced += all(abs(place - at) > 2 for place in found)
    assert misplaced <= 4  # 15 of 3,000, when it was measured: noise alone can hide where it began


@pytest.mark.slow
def test_noise_alone_hardly_ever_has_a_change_point():
    rng = np.random.default_rng(2)
    series = [noisy(np.ones(int(rng.integers(20, 500))), seed) for seed in range(200)]
    with_any = sum(bool(change_points(values)) for values in series)
    print(
        f"{with_any} of 200 series of pure noise have a change point; the test allows {ALPHA:.1%}"
    )
    assert with_any <= 2  # the stated rate makes that 0.2; 5% would be 10


def test_a_slow_drift_is_found():
    for seed in range(50):
        assert change_points(noisy(drift(100, 40, 0.003, 20), seed)), seed


def test_two_steps_are_two_change_points():
    values = noisy(step(120, 40, 1.06) * step(120, 80, 1.06), seed=3)
    first, second = change_points(values)
    assert abs(first - 40) <= 2
    assert abs(second - 80) <= 2


def test_an_outlier_or_a_constant_series_is_no_change_of_level():
    values = noisy(np.ones(60), seed=4)
    values[30] *= 50
    assert change_points(values) == []
    assert change_points([4096.0] * 60) == []


def test_exact_values_change_at_the_very_commit():
    assert change_points([4096.0] * 20 + [8192.0] * 10) == [20]


def test_the_same_series_always_gives_the_same_answer():
    values = noisy(step(50, 25, 1.03), seed=5)
    assert change_points(values) == change_points(list(values))


def test_the_interval_of_a_ratio_holds_the_true_one():
    pairs = [
        (noisy(np.ones(30), seed), noisy(np.full(20, 1.04), seed + 1000)) for seed in range(200)
    ]
    ratios = [ratio_between(before, after) for before, after in pairs]
    assert sum(ratio.low <= 1.04 <= ratio.high for ratio in ratios) >= 180


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
