"""The commands of the night's workflow, run in its order on clones of a bare repository."""

import json
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.outer_make import environment_without_make

ROOT = Path(__file__).parents[2]
# The parts of a whole night, with one cheap benchmark and one row.
SMALL = """
[[part]]
name = "history"
job = "history"
command = ["ci/record.sh"]
limit_s = 900

[[part]]
name = "suites"
job = "suites"
command = [".venv/bin/python", "benchmarks/throughput.py", "--env", "cartpole-control",
           "--num-envs", "1", "--output", "results/csv"]
limit_s = 900

[[part]]
name = "presets"
job = "suites"
command = [".venv/bin/python", "benchmarks/presets.py", "--env", "no-such-environment"]
limit_s = 900

[[part]]
name = "plots"
job = "pages"
command = [".venv/bin/python", "benchmarks/plot_results.py", "--input", "results/csv",
           "--output", "results/plots"]
limit_s = 900

[[part]]
name = "comparison-plot"
job = "pages"
command = [".venv/bin/python", "benchmarks/plot_results.py", "--input", "no-such-folder",
           "--output", "results/plots"]
limit_s = 900

[[part]]
name = "asv-pages"
job = "pages"
command = [".venv/bin/python", "-m", "asv", "publish"]
limit_s = 900
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=night", "-c", "user.email=night@localhost")
    command = ["git", *identity, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@dataclass(frozen=True)
class Command:
    """A step of the workflow that runs a command.

    Attributes:
        line: the command.
        environment: its variables, without GitHub's expressions.
        may_fail: whether the job goes on after it fails.
        needs_success: whether an earlier failure of the job skips it.
    """

    line: str
    environment: dict[str, str]
    may_fail: bool
    needs_success: bool


def steps(job: str) -> list[dict[str, Any]]:
    workflow = yaml.safe_load((ROOT / ".github/workflows/benchmarks.yml").read_text())
    return workflow["jobs"][job]["steps"]


def commands(job: str) -> list[Command]:
    return [
        Command(
            line=step["run"],
            environment={
                name: value for name, value in step.get("env", {}).items() if "${{" not in value
            },
            may_fail=step.get("continue-on-error", False),
            needs_success="if" not in step,
        )
        for step in steps(job)
        if "run" in step
    ]


def uploaded(job: str) -> list[str]:
    """Return the patterns of the files that a job hands to the next one."""
    paths = [
        step["with"]["path"] for step in steps(job) if "upload-artifact@" in step.get("uses", "")
    ]
    return [line for path in paths for line in path.splitlines()]


class Nights:
    """Runs nights: each job on a new clone, which gets the artifacts of the jobs before it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.remote = folder / "remote.git"
        self.site = folder / "published"
        git(folder, "init", "--quiet", "--bare", "--initial-branch", "main", str(self.remote))
        git(self.remote, "config", "receive.shallowUpdate", "true")
        git(ROOT, "push", "--quiet", str(self.remote), "HEAD:refs/heads/main")
        source = self.clone("source")
        (source / "ci/nightly.toml").write_text(SMALL)
        (source / "asv.conf.json").write_text(json.dumps(self._asv()))
        git(source, "add", "--all")
        git(source, "commit", "--quiet", "--message", "Measure less")
        git(source, "push", "--quiet", "origin", "HEAD:refs/heads/main")

    def _asv(self) -> dict[str, object]:
        # The environment takes the package from the commit and the rest from this interpreter, so
        # that nothing is downloaded.
        packages = next(path for path in sys.path if path.endswith("site-packages"))
        lines = "r'{build_dir}' + chr(10) + r'" + packages + "'"
        link = f"import site; open(site.getsitepackages()[0] + '/here.pth', 'w').write({lines})"
        return {
            "version": 1,
            "project": "myriad",
            "repo": ".",
            "branches": ["main"],
            "environment_type": "virtualenv",
            "build_command": [],
            "install_command": [f'python -c "{link}"'],
            "uninstall_command": [],
            "benchmark_dir": "benchmarks",
            "env_dir": str(self.folder / "env"),
            "results_dir": "results/asv",
            "html_dir": "results/html",
        }

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
            shutil.copytree(self.folder / "artifacts", place / "results", dirs_exist_ok=True)
        codes = {}
        has_failed = False
        for command in commands(job):
            if command.line.startswith("make docs") or (has_failed and command.needs_success):
                continue
            given = environment_without_make()
            given |= command.environment | {"ASV_BENCH": "^host.Imports"}
            shell = ["bash", "-eo", "pipefail", "-c", command.line]
            done = subprocess.run(shell, cwd=place, env=given, check=False)
            codes[command.line] = done.returncode
            has_failed = has_failed or (done.returncode != 0 and not command.may_fail)
        self.upload(place, uploaded(job))
        if job == "site":
            shutil.rmtree(self.site, ignore_errors=True)
            shutil.copytree(place / "site", self.site)
        return codes

    def upload(self, place: Path, patterns: list[str]) -> None:
        """Copy the files that a job uploads; their names are relative to `results`."""
        left_out = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
        for pattern in patterns:
            found = place / pattern
            files = [found] if found.is_file() else [*found.rglob("*")]
            for file in (each for each in files if each.is_file()):
                if file.relative_to(place).as_posix() in left_out:
                    continue
                target = self.folder / "artifacts" / file.relative_to(place / "results")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)

    def night(self, *, weekly: bool = False) -> None:
        self.forget_artifacts()
        assert set(self.run("measure").values()) == {0}
        if weekly:
            assert list(self.run("suites").values())[-1] == 1, "the presets fail"
        assert set(self.run("store").values()) == {0}
        codes = self.run("site")
        assert [line for line, code in codes.items() if code] == ["ci/nightly.py pages"]

    def forget_artifacts(self) -> None:
        shutil.rmtree(self.folder / "artifacts", ignore_errors=True)

    def damage(self, branch: str, name: str, text: str) -> None:
        """Put a damaged file on a branch."""
        place = self.clone("damage")
        git(place, "fetch", "--quiet", "origin", branch)
        git(place, "checkout", "--quiet", "FETCH_HEAD")
        (place / name).write_text(text)
        git(place, "add", "--all")
        git(place, "commit", "--quiet", "--message", "Damage")
        git(place, "push", "--quiet", "origin", f"HEAD:refs/heads/{branch}")

    def page(self, name: str) -> str:
        return (self.site / f"{name}.html").read_text()

    def outcome(self, part: str) -> dict[str, str]:
        return json.loads(git(self.remote, "show", f"benchmark-rows:parts/{part}.json"))

    def stored(self, branch: str) -> list[str]:
        listed = git(self.remote, "ls-tree", "-r", "--name-only", branch).splitlines()
        return [name for name in listed if not name.endswith("machine.json")]


@pytest.mark.long
def test_the_whole_workflow_runs_from_an_empty_store_and_again_and_with_damage(tmp_path):
    nights = Nights(tmp_path)
    fill_an_empty_store(nights)
    find_nothing_new(nights)
    damaged = meet_damage(nights)
    lose_the_history_job(nights, damaged)


def fill_an_empty_store(nights: Nights) -> None:
    nights.night(weekly=True)
    commit = git(nights.remote, "rev-parse", "main")
    results = nights.stored("benchmark-results")
    assert [name for name in results if f"/{commit[:8]}-" in name] != []
    rows = nights.stored("benchmark-rows")
    assert "parts/history.json" in rows
    assert any(name.startswith("throughput_cpu_") and name.endswith(".csv") for name in rows)
    page = nights.page("index")
    assert "The part <code>presets</code> failed on 20" in page
    assert "Its figures here are older or missing." in page
    assert "asv's own pages" in page.replace("&#39;", "'")
    assert "host.Imports" in nights.page("benchmarks")
    published = ROOT / "results" / "published"
    drawn = (nights.site / "plots" / "throughput_scaling.png").read_bytes()
    assert drawn != (published / "throughput_scaling.png").read_bytes()
    assert "The part <code>comparison-plot</code> failed on 20" in page
    older = (nights.site / "plots" / "library_comparison.png").read_bytes()
    assert older == (published / "library_comparison.png").read_bytes()


def find_nothing_new(nights: Nights) -> None:
    results = nights.stored("benchmark-results")
    rows = nights.stored("benchmark-rows")
    before = nights.outcome("history")
    nights.night()
    assert nights.stored("benchmark-results") == results
    assert nights.stored("benchmark-rows") == rows
    assert nights.outcome("history")["succeeded"] > before["succeeded"]
    assert "The part <code>presets</code> failed" in nights.page("index")


def meet_damage(nights: Nights) -> str:
    """Run a Sunday's night with a damaged file on each branch; return the one of asv's."""
    commit = git(nights.remote, "rev-parse", "main")
    whole = next(name for name in nights.stored("benchmark-results") if f"/{commit[:8]}-" in name)
    damaged = Path(whole).with_name("0123abcd-damaged.json").as_posix()
    rows = "throughput_cpu_20200101T000000Z.csv"
    nights.damage("benchmark-results", damaged, '{"commit_hash": "0123')
    nights.damage("benchmark-rows", rows, "a,b\n1,\0\n")
    before = nights.outcome("history")
    nights.night(weekly=True)
    # the suites' job fetched an older outcome of this part
    assert nights.outcome("history")["succeeded"] > before["succeeded"]
    assert damaged in nights.page("data")
    assert rows in nights.page("data")
    assert "host.Imports" in nights.page("benchmarks")
    return damaged


def lose_the_history_job(nights: Nights, damaged: str) -> None:
    """The runner that measures the history dies, and the suites' rows are kept all the same."""
    nights.forget_artifacts()
    nights.run("suites")
    before = nights.stored("benchmark-rows")
    assert list(nights.run("store").values()) == [2, 0]
    assert len(nights.stored("benchmark-rows")) > len(before)
    assert damaged in nights.stored("benchmark-results")
    nights.run("site")
    assert "host.Imports" in nights.page("benchmarks")


def test_the_night_has_every_promised_part():
    text = (ROOT / "ci" / "nightly.toml").read_text()
    suites = ('run_all.py", "--full"', "presets.py", "tuning.py", "devices.py")
    for words in ('"ci/record.sh"', *suites):
        assert words in text
    for words in ('plot_results.py"', '"asv", "publish"'):
        assert words in text


def test_a_job_has_time_for_all_its_parts():
    """GitHub keeps nothing of a job that it stops, so each part has to stop before."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/benchmarks.yml").read_text())
    parts = tomllib.loads((ROOT / "ci" / "nightly.toml").read_text())["part"]
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            if step.get("run", "").startswith("ci/nightly.py "):
                group = step["run"].split()[1]
                limits_s = [part["limit_s"] for part in parts if part["job"] == group]
                assert limits_s != []
                assert sum(limits_s) <= (job["timeout-minutes"] - 10) * 60, group


def test_a_part_that_fails_stops_no_other_and_keeps_the_day_of_its_last_success(tmp_path):
    (tmp_path / "ci").mkdir()
    shutil.copy(ROOT / "ci" / "nightly.py", tmp_path / "ci")
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
    command = [sys.executable, str(tmp_path / "ci" / "nightly.py"), "night"]
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


def test_a_night_that_you_stop_leaves_no_part_running(tmp_path):
    (tmp_path / "ci").mkdir()
    shutil.copy(ROOT / "ci" / "nightly.py", tmp_path / "ci")
    (tmp_path / "ci" / "nightly.toml").write_text(
        '[[part]]\nname = "long"\njob = "night"\nlimit_s = 600\n'
        'command = ["bash", "-c", "sleep 600 & echo $! > pid; wait"]\n'
    )
    command = [sys.executable, str(tmp_path / "ci" / "nightly.py"), "night"]
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
