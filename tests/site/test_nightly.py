"""The commands of the night's workflow, run in its order on clones of a bare repository."""

import json
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from published_results import ROOT

from made_up_results import commit_hash, write_asv
from tests.outer_make import environment_without_make

NAME = "basics.time_total"


def parts(made: Path) -> str:
    """Declare the parts of a night that measures nothing: they write what was made up."""
    record = (
        "commit=$(git rev-parse HEAD); mkdir -p results/asv/runner; "
        f"cp {made}/benchmarks.json results/asv; cp {made}/runner/machine.json results/asv/runner; "
        f"sed s/{commit_hash(0)}/$commit/ {made}/runner/*-*.json "
        "> results/asv/runner/${commit:0:8}-py.json"
    )
    row = "results/published/throughput_snake_cpu.csv"
    suites = f"mkdir -p results/csv; cp {row} results/csv/new.csv"
    commands = (
        ("history", "history", record),
        ("suites", "suites", suites),
        ("presets", "suites", "exit 3"),
        ("plots", "pages", "mkdir -p results/plots"),
    )
    return "".join(
        f'[[part]]\nname = "{name}"\njob = "{job}"\nlimit_s = 60\n'
        f'command = ["bash", "-c", {json.dumps(command)}]\n'
        for name, job, command in commands
    )


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=night", "-c", "user.email=night@localhost")
    command = ["git", *identity, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def steps(job: str) -> list[dict[str, Any]]:
    file = "pages.yml" if job == "site" else "benchmarks.yml"
    workflow = yaml.safe_load((ROOT / ".github/workflows" / file).read_text())
    return workflow["jobs"][job]["steps"]


class Nights:
    """Runs nights: each job on a new clone, which gets the artifacts of the jobs before it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.remote = folder / "remote.git"
        self.site = folder / "published"
        self.artifacts = folder / "artifacts"
        git(folder, "init", "--quiet", "--bare", "--initial-branch", "main", str(self.remote))
        git(self.remote, "config", "receive.shallowUpdate", "true")
        git(ROOT, "push", "--quiet", str(self.remote), "HEAD:refs/heads/main")
        source = self.clone("source")
        write_asv(folder / "made", {NAME: np.ones(1)})
        (source / "ci/nightly.toml").write_text(parts(folder / "made"))
        git(source, "add", "--all")
        git(source, "commit", "--quiet", "--message", "Measure less")
        git(source, "push", "--quiet", "origin", "HEAD:refs/heads/main")

    def clone(self, name: str) -> Path:
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        git(self.folder, "clone", "--quiet", "--branch", "main", str(self.remote), str(place))
        (place / ".venv" / "bin").mkdir(parents=True)
        (place / ".venv" / "place").write_text(f"{place.resolve()}\n")
        python = place / ".venv" / "bin" / "python"
        python.write_text(
            f'#!/bin/sh\nexport PYTHONPATH="{place}:{place}/ci/gate"\n'
            f'exec "{sys.executable}" "$@"\n'
        )
        python.chmod(0o755)
        for stamp in ("bench.stamp", "dev.stamp"):
            (place / ".venv" / stamp).touch()
        return place

    def run(self, job: str) -> dict[str, int]:
        """Run a job's commands as GitHub does, and return their exit codes.

        `make docs` takes minutes and changes no result, so it is left out.
        """
        place = self.clone(job)
        if job == "store":
            shutil.copytree(self.artifacts, place / "results", dirs_exist_ok=True)
        codes: dict[str, int] = {}
        has_failed = False
        for step in steps(job):
            line = step.get("run", "make docs")
            if line.startswith("make docs") or (has_failed and "if" not in step):
                continue
            given = environment_without_make()
            given |= {name: each for name, each in step.get("env", {}).items() if "${{" not in each}
            shell = ["bash", "-eo", "pipefail", "-c", line]
            codes[line] = subprocess.run(shell, cwd=place, env=given, check=False).returncode
            has_failed |= codes[line] != 0 and not step.get("continue-on-error", False)
        for step in steps(job):
            if "upload-artifact@" in step.get("uses", ""):
                self.upload(place, step["with"]["path"].splitlines())
        if job == "site":
            shutil.rmtree(self.site, ignore_errors=True)
            shutil.copytree(place / "site", self.site)
        return codes

    def upload(self, place: Path, patterns: list[str]) -> None:
        """Copy the files that a job hands to the next; their names are relative to `results`."""
        left_out = [place / pattern[1:] for pattern in patterns if pattern.startswith("!")]
        for pattern in patterns:
            found = place / pattern
            for file in [found] if found.is_file() else found.rglob("*"):
                if file.is_file() and file not in left_out:
                    target = self.artifacts / file.relative_to(place / "results")
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, target)

    def night(self) -> None:
        """Run the night from Saturday to Sunday, in which every suite is measured."""
        shutil.rmtree(self.artifacts, ignore_errors=True)
        assert set(self.run("measure").values()) == {0}
        assert list(self.run("suites").values())[-1] == 1, "the presets fail"
        assert set(self.run("store").values()) == {0}
        assert set(self.run("site").values()) == {0}

    def damage(self, branch: str, name: str, text: str) -> None:
        """Put a damaged file on a branch."""
        place = self.clone("damage")
        git(place, "fetch", "--quiet", "origin", branch)
        git(place, "checkout", "--quiet", "FETCH_HEAD")
        (place / name).write_text(text)
        git(place, "add", name)
        git(place, "commit", "--quiet", "--message", "Damage")
        git(place, "push", "--quiet", "origin", f"HEAD:refs/heads/{branch}")

    def page(self, name: str) -> str:
        return (self.site / f"{name}.html").read_text()

    def last_history(self) -> str:
        outcome = git(self.remote, "show", "benchmark-rows:parts/history.json")
        return json.loads(outcome)["succeeded"]

    def stored(self, branch: str) -> list[str]:
        return git(self.remote, "ls-tree", "-r", "--name-only", branch).splitlines()


@pytest.mark.long
def test_the_whole_workflow_runs_from_an_empty_store_and_again_with_damage(tmp_path):
    nights = Nights(tmp_path)
    nights.night()
    commit = git(nights.remote, "rev-parse", "main")
    first = nights.stored("benchmark-results")
    (whole,) = [name for name in first if f"/{commit[:8]}-" in name]
    assert "new.csv" in nights.stored("benchmark-rows")
    assert "The part <code>presets</code> failed on 20" in nights.page("index")
    assert NAME in nights.page("benchmarks")

    damaged = Path(whole).with_name("0123abcd-damaged.json").as_posix()
    rows = "throughput_cpu_20200101T000000Z.csv"
    nights.damage("benchmark-results", damaged, '{"commit_hash": "0123')
    nights.damage("benchmark-rows", rows, "a,b\n1,\0\n")
    before = nights.last_history()
    nights.night()
    assert sorted(nights.stored("benchmark-results")) == sorted([*first, damaged])
    # The suites' job fetched an older outcome of this part.
    assert nights.last_history() > before
    assert damaged in nights.page("data")
    assert rows in nights.page("data")
    assert NAME in nights.page("benchmarks")


@pytest.fixture
def nightly(tmp_path) -> Path:
    """A copy of the program in a folder of its own, where a test declares the parts."""
    (tmp_path / "ci").mkdir()
    return shutil.copy(ROOT / "ci" / "nightly.py", tmp_path / "ci")


def test_a_job_has_time_for_all_its_parts():
    """GitHub keeps nothing of a job that it stops, so each part has to stop before."""
    files = [ROOT / ".github/workflows" / name for name in ("benchmarks.yml", "pages.yml")]
    workflows = [yaml.safe_load(file.read_text()) for file in files]
    parts = tomllib.loads((ROOT / "ci" / "nightly.toml").read_text())["part"]
    for job in (job for workflow in workflows for job in workflow["jobs"].values()):
        for step in job["steps"]:
            if step.get("run", "").startswith("ci/nightly.py "):
                group = step["run"].split()[1]
                limits_s = [part["limit_s"] for part in parts if part["job"] == group]
                assert limits_s != []
                assert sum(limits_s) <= (job["timeout-minutes"] - 10) * 60, group


def test_a_part_that_fails_stops_no_other_and_keeps_the_day_of_its_last_success(tmp_path, nightly):
    parts = {"works": "touch done", "breaks": "exit 3", "hangs": "sleep 60", "last": "touch last"}
    limit_s = {"hangs": 0.2}
    text = "".join(
        f'[[part]]\nname = "{name}"\njob = "night"\ncommand = ["bash", "-c", "{command}"]\n'
        f"limit_s = {limit_s.get(name, 60)}\n"
        for name, command in parts.items()
    )
    (tmp_path / "ci" / "nightly.toml").write_text(text)
    outcomes = tmp_path / "results" / "csv" / "parts"
    outcomes.mkdir(parents=True)
    day = "2026-01-01T00:00:00"
    before = {"ended": day, "reason": "", "succeeded": day}
    (outcomes / "breaks.json").write_text(json.dumps(before))
    command = [sys.executable, str(nightly), "night"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (tmp_path / "done").is_file()
    assert (tmp_path / "last").is_file()
    found = {path.stem: json.loads(path.read_text()) for path in outcomes.glob("*.json")}
    assert found["works"]["reason"] == found["last"]["reason"] == ""
    assert found["breaks"]["reason"] == "exit code 3"
    assert found["breaks"]["succeeded"] == day
    assert found["hangs"]["reason"] == "it took more than 0.2 seconds"
    assert found["hangs"]["succeeded"] == ""


def test_a_night_that_you_stop_leaves_no_part_running(tmp_path, nightly):
    (tmp_path / "ci" / "nightly.toml").write_text(
        '[[part]]\nname = "long"\njob = "night"\nlimit_s = 600\n'
        'command = ["bash", "-c", "sleep 600 & echo $! > pid; wait"]\n'
    )
    command = [sys.executable, str(nightly), "night"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as night:
        written = tmp_path / "pid"
        while not (written.is_file() and written.read_text().strip()):
            time.sleep(0.01)
        night.send_signal(signal.SIGINT)
        message = night.communicate()[1]
    assert night.returncode == 1
    assert message == "stopped; the outcome of the part that was running is not changed\n"
    child = Path("/proc") / written.read_text().strip()
    while child.exists() and "(zombie)" not in (child / "status").read_text():
        time.sleep(0.01)
    assert not (tmp_path / "results").exists()
