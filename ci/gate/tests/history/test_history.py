"""Change points: found where there are some, none in noise, never across a change of setup."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from asv.results import Results
from asv.runner import BenchmarkResult

from gate_repository import Repository
from made_up_results import commit_files, commit_hash, noisy, write_asv
from perfgate.history.asv_results import read_archive, results_dir
from perfgate.history.benchmark_history import BenchmarkHistory, histories, main

NAME = "throughput.Throughput.time_chunk"
MACHINE = {"machine": "runner", "cpu": "AMD EPYC", "num_cpu": "2", "os": "Linux", "ram": "1"}
DATE_MS = 1_770_000_000_000
STARTED = datetime(2026, 3, 4, 5, tzinfo=UTC)


def step(num: int, at: int, ratio: float) -> np.ndarray:
    return np.where(np.arange(num) < at, 1.0, ratio)


def history(folder: Path, values: np.ndarray, **kwargs) -> BenchmarkHistory:
    write_asv(folder, {NAME: values}, **kwargs)
    ((found,), _) = histories(read_archive(folder))
    return found


@pytest.mark.parametrize("changed", ["machines", "versions", "processors"])
def test_a_change_of_machine_processor_or_versions_is_a_marker_and_no_change(tmp_path, changed):
    values = noisy(step(60, 30, 1.5), seed=6)
    found = history(tmp_path / "two", values, **{changed: ["0.10.1"] * 30 + ["0.10.2"] * 30})
    assert found.changes == found.open == []
    assert len(found.stretches) == 2
    assert len(history(tmp_path / "one", values).changes) == 1


def test_processors_of_a_hosted_machine_show_together_what_one_of_them_shows(tmp_path):
    levels = step(60, 30, 1.08)
    places = np.random.default_rng(12).permutation(np.arange(60) % 5)
    speeds = np.array([1.0, 1.3, 0.8, 2.0, 1.1])[places]
    processors = [f"CPU {place}" for place in places]
    one = history(tmp_path / "one", noisy(levels, seed=6))
    five = history(tmp_path / "five", noisy(levels * speeds, seed=6), processors=processors)
    (of_one,), (of_five,) = one.changes, five.changes
    assert of_five.point.commit == of_one.point.commit
    (still_open,) = five.open
    assert still_open.ratio.low <= 1.08 <= still_open.ratio.high
    assert len(five.stretches) == 5  # each processor has levels of its own


def test_a_slowdown_that_was_undone_or_whose_machine_retired_is_not_open(tmp_path):
    undone = step(150, 50, 1.08) / step(150, 100, 1.08)
    assert history(tmp_path / "a", noisy(undone, seed=9)).open == []
    machines = ["retired"] * 80 + ["new"] * 40
    retired = history(tmp_path / "b", noisy(step(120, 40, 1.1), seed=10), machines=machines)
    assert retired.open == []
    (change,), (cut_off,) = retired.changes, retired.cut_off
    assert cut_off.point is change.point  # and yet not forgotten


def test_what_asv_itself_writes_is_what_is_read(tmp_path):
    benchmark = {"name": NAME, "version": "v1", "params": [["'small'", "'large'", "'refused'"]]}
    samples = [[0.1, 0.11, 0.12, 0.1, 0.1, 0.11], [0.2] * 6, None]
    number = [{"number": 1, "repeat": 6}, {"number": 1, "repeat": 6}, None]
    outcome = BenchmarkResult([0.105, 0.2, float("nan")], samples, number, 0, "", None)
    environment = ("3.11", "virtualenv-py3.11-jax0.10.2", {"OMP_NUM_THREADS": "1"})
    results = Results(MACHINE, {"jax": "0.10.2"}, "a" * 40, DATE_MS, *environment)
    results.add_result(benchmark, outcome, started_at=STARTED, record_samples=True)
    results.save(str(tmp_path))
    (tmp_path / "runner" / "machine.json").write_text(json.dumps(MACHINE | {"version": 1}))

    archive = read_archive(tmp_path)
    assert sorted(archive.points) == [f"{NAME}(large)", f"{NAME}(small)"]
    (point,) = archive.points[f"{NAME}(small)"]
    assert point.value == pytest.approx(0.105)
    assert point.samples == tuple(samples[0])
    assert point.setup.machine == "runner, AMD EPYC, 2 cores"
    assert point.setup.versions == "Python 3.11, jax 0.10.2, OMP_NUM_THREADS=1"
    assert archive.measured == (STARTED.timestamp(), "runner, AMD EPYC, 2 cores")
    assert archive.benchmarks[f"{NAME}(small)"].unit == "seconds"


@pytest.fixture
def project(tmp_path):
    """A repository with an asv suite in a folder of its own and results of its 12 commits."""
    root = tmp_path / "repository"
    commits = commit_files(root, ["package.py"] * 12, "develop")
    write_asv(root / ".perf", {NAME: step(12, 6, 1.5)}, commits=commits)
    return Repository(root)


def configured(project: Repository, **settings: object) -> Path:
    """Write the configuration with comments and a trailing comma, as asv allows."""
    settings = {"repo": "..", "results_dir": "../.perf", "project": "p", **settings}
    lines = [f'"{name}": {json.dumps(value)},' for name, value in settings.items()]
    project.write("bench/asv.conf.json", "\n".join(["{", "/* where */ // things are", *lines, "}"]))
    return project.root / "bench" / "asv.conf.json"


def test_results_branch_and_repository_are_those_of_the_configuration(project, capsys):
    file = configured(project, branches=["develop"])
    commits = project.git("rev-list", "--reverse", "develop").split()
    assert main(["--suite-config", str(file)]) == 0
    out, err = capsys.readouterr()
    assert "1 benchmarks, 12 commits, 1 change points" in out
    assert commits[6][:10] in out
    assert err == ""
    archive = read_archive(results_dir(file), config=file)
    assert [commit.subject for commit in archive.commits] == [f"Commit {at}" for at in range(12)]
    assert archive.branch == "develop"
    assert main(["--suite-config", str(file), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["commit"], row["change"], row["open"]) == (commits[6], "slower", True)
    assert (row["since"], row["cut_off"]) == ("2023-11-20", False)
    assert row["low"] <= 1.5 <= row["high"]


def test_results_of_other_branches_are_counted_and_left_out(project, capsys):
    project.git("branch", "stable", "HEAD~3")
    file = configured(project, branches=["gone", "stable"])
    assert main(["--suite-config", str(file)]) == 0
    out, err = capsys.readouterr()
    assert "1 benchmarks, 9 commits" in out
    assert "not on the branch stable: 3 of 12 measured commits." in err
    assert "git clone --mirror" not in err


def test_the_mirror_that_asv_made_of_an_address_is_read(project):
    file = configured(project, repo="https://example.org/p.git", branches=["later"])
    project.git("branch", "later", "HEAD~1")
    project.git("clone", "--quiet", "--mirror", ".", "bench/p")
    project.git("switch", "--quiet", "--orphan", "suite")
    project.git("commit", "--quiet", "--allow-empty", "-m", "Not measured")
    project.git("branch", "--force", "later")
    assert len(read_archive(results_dir(file), config=file).commits) == 11
    shutil.rmtree(project.root / "bench" / "p")
    assert "git clone --mirror" in read_archive(results_dir(file), config=file).left_out[-1]


def test_without_a_configuration_the_results_are_named_and_what_is_damaged_is_left_out(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main([]) == 2
    assert "there is no asv.conf.json; name the suite's" in capsys.readouterr().err
    (tmp_path / "results").mkdir()
    assert main(["--results", "results"]) == 0
    assert "not measured yet" in capsys.readouterr().out
    write_asv(tmp_path / "results", {NAME: np.ones(3)})
    (broken,) = (tmp_path / "results" / "runner").glob(f"{commit_hash(1)[:8]}*")
    broken.write_text(broken.read_text()[:100])
    assert main(["--results", "results"]) == 0
    captured = capsys.readouterr()
    assert "1 benchmarks, 2 commits" in captured.out
    assert broken.name in captured.err
