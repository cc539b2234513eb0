"""The night's workflow: its own commands in its order, on clones of a bare repository."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ARTIFACTS = ("asv", "csv")
# One cheap benchmark and one row, on the same path as a whole night.
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


def commands(job: str) -> list[tuple[str, dict[str, str], bool]]:
    """Return what a job of the workflow runs, its environment, and whether it may fail."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/benchmarks.yml").read_text())
    steps = (step for step in workflow["jobs"][job]["steps"] if "run" in step)
    return [
        (
            step["run"],
            {key: value for key, value in step.get("env", {}).items() if "${{" not in value},
            step.get("continue-on-error", False),
        )
        for step in steps
    ]


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
        """Run a job's commands and return their exit codes; one that fails stops the job.

        `make docs` takes minutes and touches no result, so it is left out.
        """
        place = self.clone(job)
        if job == "store":
            shutil.copytree(self.folder / "artifacts", place / "results", dirs_exist_ok=True)
        codes = {}
        for command, environment, may_fail in commands(job):
            if command.startswith("make docs"):
                continue
            given = {name: value for name, value in os.environ.items() if "MAKE" not in name}
            given |= environment | {"ASV_BENCH": "^host.Imports"}
            done = subprocess.run(
                ["bash", "-eo", "pipefail", "-c", command], cwd=place, env=given, check=False
            )
            codes[command] = done.returncode
            if done.returncode and not may_fail:
                break
        for name in ARTIFACTS:
            if job in ("measure", "suites") and (place / "results" / name).is_dir():
                target = self.folder / "artifacts" / name
                shutil.copytree(place / "results" / name, target, dirs_exist_ok=True)
        if job == "site":
            shutil.rmtree(self.site, ignore_errors=True)
            shutil.copytree(place / "site", self.site)
        return codes

    def night(self, *, weekly: bool = False) -> None:
        shutil.rmtree(self.folder / "artifacts", ignore_errors=True)
        assert set(self.run("measure").values()) == {0}
        if weekly:
            assert list(self.run("suites").values())[-1] == 1, "the presets fail"
        assert set(self.run("store").values()) == {0}
        assert set(self.run("site").values()) == {0}

    def stored(self, branch: str) -> list[str]:
        listed = git(self.remote, "ls-tree", "-r", "--name-only", branch).splitlines()
        return [name for name in listed if not name.endswith("machine.json")]


@pytest.mark.slow
def test_the_whole_workflow_runs_from_an_empty_store_and_again_and_with_a_damaged_result(tmp_path):
    nights = Nights(tmp_path)
    nights.night(weekly=True)
    first = nights.stored("benchmark-results")
    commit = git(nights.remote, "rev-parse", "main")
    assert [name for name in first if f"/{commit[:8]}-" in name] != []
    rows = nights.stored("benchmark-rows")
    assert "parts/history.json" in rows
    assert any(name.startswith("throughput_cpu_") and name.endswith(".csv") for name in rows)
    site = nights.site
    page = (site / "index.html").read_text()
    assert "The part <code>presets</code> failed on 20" in page
    assert "Its figures here are older." in page
    assert "asv's own pages" in page.replace("&#39;", "'")
    assert (site / "plots" / "throughput_scaling.png").is_file()
    assert "host.Imports" in (site / "benchmarks.html").read_text()

    nights.night()
    assert nights.stored("benchmark-results") == first, "nothing new was measured"
    assert len(nights.stored("benchmark-rows")) == len(rows)
    assert "The part <code>presets</code> failed" in (site / "index.html").read_text()

    stored = nights.clone("damage")
    git(stored, "fetch", "--quiet", "origin", "benchmark-results")
    git(stored, "checkout", "--quiet", "FETCH_HEAD")
    damaged = next(name for name in first if f"/{commit[:8]}-" in name)
    beside = Path(damaged).with_name("0123abcd-damaged.json")
    (stored / beside).write_text('{"commit_hash": "0123')
    git(stored, "add", "--all")
    git(stored, "commit", "--quiet", "--message", "Damage")
    git(stored, "push", "--quiet", "origin", "HEAD:refs/heads/benchmark-results")
    nights.night()
    assert beside.as_posix() in (site / "data.html").read_text()
    assert "host.Imports" in (site / "benchmarks.html").read_text()


def test_the_night_has_every_promised_part():
    text = (ROOT / "ci" / "nightly.toml").read_text()
    for words in ('"ci/record.sh"', 'run_all.py", "--full"', "presets.py", "tuning.py"):
        assert words in text
    for words in ('plot_results.py"', '"asv", "publish"'):
        assert words in text


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
