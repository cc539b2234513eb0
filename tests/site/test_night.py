"""The commands of the night's workflow, run in its order on clones of a bare repository."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from published_results import ROOT

from made_up_results import commit_hash, write_asv
from tests.outer_make import environment_without_make

NAME = "basics.time_total"
# In Python's place, a night that measures nothing: it writes what was made up.
PYTHON = """#!/bin/sh
export PYTHONPATH="{place}:{place}/ci/gate"
case "$*" in
    *run_all.py*)
        mkdir -p results/csv
        cp results/published/throughput_snake_cpu.csv results/csv/new.csv ;;
    *presets.py*) exit 3 ;;
    *tuning.py* | *devices.py*) ;;
    *plot_results.py* | *"asv publish"*) mkdir -p results/plots ;;
    *) exec "{python}" "$@" ;;
esac
"""
RECORD = """#!/bin/sh
commit=$(git rev-parse HEAD)
mkdir -p results/asv/runner
cp {made}/benchmarks.json results/asv
cp {made}/runner/machine.json results/asv/runner
name=$(echo $commit | cut -c -8)-py.json
sed s/{hash}/$commit/ {made}/runner/*-*.json > results/asv/runner/$name
"""


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
    """Runs nights: each job on a new clone, which gets the artifacts of the jobs before it.

    Folders stand in for what the actions of GitHub and of others do.
    """

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
        text = RECORD.format(made=folder / "made", hash=commit_hash(0))
        (source / "ci/record.sh").write_text(text)
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
        python.write_text(PYTHON.format(place=place, python=sys.executable))
        python.chmod(0o755)
        for stamp in ("bench.stamp", "dev.stamp"):
            (place / ".venv" / stamp).touch()
        return place

    def run(self, job: str) -> dict[str, int]:
        """Run a job's steps as GitHub does, and return the exit codes of its commands.

        `make docs` takes minutes and changes no result, so it is left out.
        """
        place = self.clone(job)
        codes: dict[str, int] = {}
        has_failed = False
        for step in steps(job):
            if has_failed and "if" not in step:
                continue
            if "uses" in step:
                succeeded = self.act(step, place)
            elif step["run"].startswith("make docs"):
                continue
            else:
                given = environment_without_make() | {"ASV_MACHINE": "runner"}
                shell = ["bash", "-eo", "pipefail", "-c", step["run"]]
                code = subprocess.run(shell, cwd=place, env=given, check=False).returncode
                codes[step["run"]], succeeded = code, code == 0
            has_failed |= not succeeded and not step.get("continue-on-error", False)
        assert job == "suites" or not has_failed
        if job == "site":
            shutil.rmtree(self.site, ignore_errors=True)
            shutil.copytree(place / "site", self.site)
        return codes

    def act(self, step: dict[str, Any], place: Path) -> bool:
        """Do what an action would, and return whether it would succeed."""
        given = step.get("with", {})
        if "checkout@" in step["uses"] and "ref" in given:
            (place / given["path"]).mkdir(parents=True, exist_ok=True)
            command = ["git", "clone", "--quiet", "--branch", given["ref"], self.remote]
            done = subprocess.run([*command, place / given["path"]], check=False)
            return done.returncode == 0
        if "upload-artifact@" in step["uses"]:
            self.upload(place, given["path"].splitlines())
        elif "download-artifact@" in step["uses"] and self.artifacts.is_dir():
            shutil.copytree(self.artifacts, place / given["path"], dirs_exist_ok=True)
        elif "deploy-action@" in step["uses"]:
            (wanted,) = re.findall(r"hashFiles\('(.*)/\*\*'\) != ''", step["if"])
            assert (given["folder"], given["clean"]) == (wanted, False)
            if (place / wanted).is_dir():
                self.deploy(place / wanted, given["branch"])
        return True

    def deploy(self, folder: Path, branch: str) -> None:
        place = self.clone("deploy")
        if git(place, "ls-remote", "--heads", "origin", f"refs/heads/{branch}"):
            git(place, "checkout", "--quiet", branch)
        else:
            git(place, "checkout", "--quiet", "--orphan", branch)
            git(place, "rm", "-r", "--quiet", "--force", ".")
        shutil.copytree(folder, place, dirs_exist_ok=True)
        git(place, "add", "--all", "--", *(each.name for each in folder.iterdir()))
        git(place, "commit", "--quiet", "--allow-empty", "--message", "Add results")
        git(place, "push", "--quiet", "origin", branch)

    def upload(self, place: Path, patterns: list[str]) -> None:
        """Copy the files that a job hands to the next; their names are relative to `results`."""
        left_out = [place / pattern[1:] for pattern in patterns if pattern.startswith("!")]
        for pattern in patterns:
            found = place / pattern
            for file in [found] if found.is_file() else found.rglob("*"):
                if file.is_file() and file not in left_out and ".git" not in file.parts:
                    target = self.artifacts / file.relative_to(place / "results")
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, target)

    def night(self) -> None:
        """Run the night from Saturday to Sunday, in which every suite is measured."""
        shutil.rmtree(self.artifacts, ignore_errors=True)
        assert set(self.run("measure").values()) == {0}
        failed = [line for line, code in self.run("suites").items() if code]
        assert [line.split()[1] for line in failed] == ["presets"]
        assert not self.run("store"), "it runs no command of its own"
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
    assert not nights.run("store")  # in an empty repository, nothing to keep
    assert set(nights.run("site").values()) == {0}
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
def part(tmp_path) -> list[str]:
    """The command of a part, in a folder of its own."""
    (tmp_path / "ci").mkdir()
    return [shutil.copy(ROOT / "ci" / "part.sh", tmp_path / "ci")]


def test_a_job_has_time_for_all_its_parts():
    """GitHub keeps nothing of a job that it stops, so each part has to stop before."""
    files = [ROOT / ".github/workflows" / name for name in ("benchmarks.yml", "pages.yml")]
    jobs = [job for file in files for job in yaml.safe_load(file.read_text())["jobs"].values()]
    found = 0
    for job in jobs:
        lines = [step["run"].split() for step in job["steps"] if "run" in step]
        limits_s = [int(words[2]) for words in lines if words[0] == "ci/part.sh"]
        assert sum(limits_s) <= (job["timeout-minutes"] - 10) * 60
        found += len(limits_s)
    assert found == 7


@pytest.mark.parametrize(
    ("command", "reason"),
    [("exit 0", ""), ("exit 3", "exit code 3"), ("sleep 60", "it took more than 0.2 seconds")],
)
def test_a_part_says_how_it_ended_and_keeps_the_day_of_its_last_success(
    command, reason, tmp_path, part
):
    file = tmp_path / "results" / "csv" / "parts" / "one.json"
    file.parent.mkdir(parents=True)
    day = "2026-01-01T00:00:00+00:00"
    file.write_text(json.dumps({"ended": day, "reason": "", "succeeded": day}))
    limit_s = "0.2" if command == "sleep 60" else "60"
    done = subprocess.run([*part, "one", limit_s, "bash", "-c", command], check=False)
    found = json.loads(file.read_text())
    assert (done.returncode == 0, found["reason"]) == (not reason, reason)
    assert (found["succeeded"] == day, found["ended"] > day) == (bool(reason), True)
