"""The commands of the night's workflow, run in its order on clones of a bare repository."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from made_up_results import commit_hash, write_asv
from tests.workflow_jobs import ROOT, Jobs, git, load

NAME = "basics.time_total"
# In Python's place, a night that measures nothing: it writes what was made up.
PYTHON = """#!/bin/sh
export PYTHONPATH="{place}:{place}/ci/gate"
case "$*" in
    *run_all.py*)
        mkdir -p results/csv
        cp results/published/throughput_snake_cpu.csv results/csv/new.csv ;;
    *presets.py*) exit 3 ;;
    *throughput.py*) ;;
    *plot_results.py* | *"asv publish"* | *sphinx*) mkdir -p results/plots ;;
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


class Nights(Jobs):
    """Jobs of nights that measure nothing, which follow one another as GitHub would start them."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        write_asv(folder / "made", {NAME: np.ones(1)})
        text = RECORD.format(made=folder / "made", hash=commit_hash(0))
        self.change("main", "ci/record.sh", text)

    def prepare(self, place: Path) -> None:
        if not (place / "Makefile").exists():
            return  # it is a branch of results
        (place / ".venv" / "bin").mkdir(parents=True)
        (place / ".venv" / "place").write_text(f"{place.resolve()}\n")
        python = place / ".venv" / "bin" / "python"
        python.write_text(PYTHON.format(place=place, python=sys.executable))
        python.chmod(0o755)
        for stamp in ("bench.stamp", "dev.stamp"):
            (place / ".venv" / stamp).touch()

    def job(self, name: str) -> dict[str, int]:
        return self.run("pages.yml" if name == "site" else "benchmarks.yml", name)

    def change(self, branch: str, name: str, text: str) -> None:
        """Write a file of a branch."""
        place = Path(tempfile.mkdtemp(dir=self.folder))
        git(place, "clone", "--quiet", "--branch", branch, self.remote, ".")
        (place / name).write_text(text)
        git(place, "add", name)
        git(place, "commit", "--quiet", "--message", "Change")
        git(place, "push", "--quiet", "origin", branch)

    def night(self) -> None:
        """Run the night from Saturday to Sunday, in which every suite is measured."""
        shutil.rmtree(self.artifacts, ignore_errors=True)
        assert set(self.job("measure").values()) == {0}
        failed = [line for line, code in self.job("suites").items() if code]
        assert [line.split()[1] for line in failed] == ["presets"]
        assert not self.job("store"), "it runs no command of its own"
        assert set(self.job("site").values()) == {0}

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
    assert not nights.job("store")  # in an empty repository, nothing to keep
    assert set(nights.job("site").values()) == {0}
    nights.night()
    commit = git(nights.remote, "rev-parse", "main")
    first = nights.stored("benchmark-results")
    (whole,) = [name for name in first if f"/{commit[:8]}-" in name]
    assert "new.csv" in nights.stored("benchmark-rows")
    assert "The part <code>presets</code> failed on 20" in nights.page("index")
    assert NAME in nights.page("benchmarks")

    damaged = Path(whole).with_name("0123abcd-damaged.json").as_posix()
    rows = "throughput_cpu_20200101T000000Z.csv"
    nights.change("benchmark-results", damaged, '{"commit_hash": "0123')
    nights.change("benchmark-rows", rows, "a,b\n1,\0\n")
    before = nights.last_history()
    nights.night()
    assert sorted(nights.stored("benchmark-results")) == sorted([*first, damaged])
    # The suites' job fetched an older outcome of this part.
    assert nights.last_history() > before
    assert damaged in nights.page("data")
    assert rows in nights.page("data")
    assert NAME in nights.page("benchmarks")


@pytest.mark.long
def test_two_nights_that_race_both_keep_their_results(tmp_path):
    """Their jobs take turns, but somebody else may push to the branches at any moment."""
    nights = Nights(tmp_path)

    def store(name):
        shutil.rmtree(nights.artifacts, ignore_errors=True)
        for file in (f"asv/runner/{name}.json", f"csv/{name}.csv"):
            (nights.artifacts / file).parent.mkdir(parents=True, exist_ok=True)
            (nights.artifacts / file).write_text(name)
        nights.job("store")

    def rival():
        del nights.meanwhile
        store("rival")

    store("first")
    assert set(nights.job("site").values()) == {0}
    nights.meanwhile = rival
    store("second")
    names = ["first", "rival", "second"]
    for branch, ending in (("benchmark-results", ".json"), ("benchmark-rows", ".csv")):
        assert [Path(file).name for file in nights.stored(branch)] == [n + ending for n in names]
    assert set(nights.job("site").values()) == {0}
    # Two that make the branches at once could not be merged.
    assert load("benchmarks.yml")["jobs"]["store"]["concurrency"] == {"group": "store"}


@pytest.fixture
def part(tmp_path) -> list[str]:
    """The command of a part, in a folder of its own."""
    (tmp_path / "ci").mkdir()
    return [shutil.copy(ROOT / "ci" / "part.sh", tmp_path / "ci")]


def test_a_job_has_time_for_all_its_parts():
    """GitHub keeps nothing of a job that it stops, so each part has to stop before."""
    files = ("benchmarks.yml", "pages.yml")
    jobs = [job for file in files for job in load(file)["jobs"].values()]
    found = 0
    for job in jobs:
        lines = [step["run"].split() for step in job["steps"] if "run" in step]
        limits_s = [int(words[2]) for words in lines if words[0] == "ci/part.sh"]
        assert sum(limits_s) <= (job["timeout-minutes"] - 10) * 60
        found += len(limits_s)
    assert found == 6


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
