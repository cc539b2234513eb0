import importlib
import json
import re

import pytest

from benchmarks import run_all
from benchmarks.harness.workloads import load
from benchmarks.run_all import Job, jobs, main

GOOD = Job("memory", "memory_good", ("--num-envs", "16"))
BAD = Job("throughput", "throughput_bad", ("--num-envs", "0"))
SLOW = Job("throughput", "throughput_slow", ("--num-envs", "16"), timeout_s=0.1)


@pytest.fixture(scope="module")
def described():
    """What the child that describes the machine says; one child is enough for all tests."""
    return run_all.machine()


@pytest.fixture(autouse=True)
def _three_jobs(monkeypatch, described):
    monkeypatch.setattr(run_all, "machine", lambda: described)
    monkeypatch.setattr(run_all, "jobs", lambda *, full: iter([BAD, SLOW, GOOD]))
    monkeypatch.setattr(run_all, "commit", lambda: "a-commit")
    monkeypatch.setattr(run_all, "draw", lambda *_: [])  # test_plot_results.py draws


@pytest.mark.slow
def test_what_fails_is_said_and_the_rest_goes_on(tmp_path, capsys):
    assert main(["--output", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "throughput_bad: failed: the process ended with exit code 2: " in printed.err
    assert "must be a whole number of at least 1" in printed.err
    assert "throughput_slow: failed: no answer within 0.1 s" in printed.err
    assert re.search(r"memory_good +\| +ok ", printed.out)
    assert len(list(tmp_path.glob("memory_envs_cpu_*.csv"))) == 1


@pytest.mark.parametrize("full", [False, True])
def test_every_suite_has_its_workloads(full):
    every = list(jobs(full=full))
    assert {job.suite for job in every} == set(run_all._SCRIPTS) - {"learning", "presets"}
    assert len({job.name for job in every}) == len(every)
    sizes = load().of("comparison", "full" if full else "quick")
    assert sum(job.suite == "comparison" for job in every) == len(sizes)


def test_published_figures_are_of_a_commit_alone_and_change_all_together(
    tmp_path, monkeypatch, capsys
):
    target = tmp_path / "target"
    target.mkdir()
    monkeypatch.setattr(run_all, "_PUBLISHED", target)
    monkeypatch.setattr(run_all, "published", lambda device: iter([GOOD, SLOW]))
    arguments = ["--published", "--output", str(tmp_path)]
    monkeypatch.setattr(run_all, "commit", lambda: "a-dirty")
    assert main(arguments) == 2
    assert "but the tree is a-dirty: commit or remove your changes" in capsys.readouterr().err
    assert not (tmp_path / "published").exists()

    def measure(job, output):
        output.write_text("a row")
        command = json.dumps({"command": f"python x.py --output {output} --force"})
        output.with_name(f"{output.stem}_samples.json").write_text(command)
        return statuses.pop(0), ""

    monkeypatch.setattr(run_all, "commit", lambda: "a")
    monkeypatch.setattr(run_all, "_measure", measure)
    statuses = ["ok", "failed", "ok", "ok"]
    assert main(arguments) == 1
    assert not list(target.iterdir())
    assert main(arguments) == 0
    names = {f"{job.name}{end}" for job in (GOOD, SLOW) for end in (".csv", "_samples.json")}
    assert {path.name for path in target.iterdir()} == names
    samples = (target / f"{GOOD.name}_samples.json").read_text()
    assert json.loads(samples) == {"command": "python x.py"}


def test_the_published_runs_have_the_three_kinds_of_rate_and_every_target():
    every = list(run_all.published("cpu"))
    names = {job.name for job in every}
    policies = {"comparison_policy_64-64_cpu", "comparison_policy_1024-1024_cpu"}
    assert names >= {"comparison_cpu", "comparison_training_cpu"} | policies
    assert len(names) == len(every)
    targets = {load().workloads["throughput"][target.workload].env for target in load().targets}
    assert len([name for name in names if name.startswith("throughput")]) == len(targets)
    for job in every:
        script = importlib.import_module(f"benchmarks.{run_all._SCRIPTS[job.suite]}")
        script.SCRIPT.parse(job.arguments)  # refuses what the script does not know
