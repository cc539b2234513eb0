"""The workflows are valid, have no known weakness, and run what also runs on a laptop."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.child_processes import run

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONS = [ROOT / "ci" / "gate" / "action.yml", ROOT / "ci" / "gate" / "comment" / "action.yml"]
TOOLS = Path(sys.executable).parent
MAY_WRITE = {
    ("perf-comment.yml", "comment"): {"pull-requests"},
    ("benchmarks.yml", "store"): {"contents"},
    ("pages.yml", "deploy"): {"pages", "id-token"},
    ("release.yml", "publish"): {"id-token"},
}
LOADED = {path.name: yaml.safe_load(path.read_text()) for path in WORKFLOWS}
JOBS = {(file, name): job for file, each in LOADED.items() for name, job in each["jobs"].items()}
RESULTS = LOADED["benchmarks.yml"]["jobs"] | LOADED["pages.yml"]["jobs"]


@pytest.mark.slow
def test_the_files_fit_githubs_schema_and_have_no_known_weakness():
    """Such as a token with all permissions, kept credentials or an action that isn't pinned."""
    for schema, files in (("github-workflows", WORKFLOWS), ("github-actions", ACTIONS)):
        run(TOOLS / "check-jsonschema", "--builtin-schema", f"vendor.{schema}", *files, cwd=ROOT)
    command = [TOOLS / "zizmor", "--offline", "--no-progress", "--pedantic", ".github/workflows"]
    run(*command, *ACTIONS, cwd=ROOT)


def test_a_job_is_given_no_more_than_it_needs_and_nothing_for_a_pull_request():
    assert not [path for path in WORKFLOWS if "secrets." in path.read_text()]
    for place, job in JOBS.items():
        assert "timeout-minutes" in job
        writes = {scope for scope, access in job["permissions"].items() if access == "write"}
        of_strangers = "pull_request" in LOADED[place[0]][True]  # YAML 1.1 reads `on` as true
        assert writes == (set() if of_strangers else MAY_WRITE.get(place, set())), place


def test_actions_have_one_version_everywhere_which_a_comment_names():
    text = "".join(path.read_text() for path in [*WORKFLOWS, *ACTIONS])
    pins = {used for used in re.findall(r"uses: (.*)", text) if not used.startswith("./")}
    assert len(pins) == len({used.partition("@")[0] for used in pins})
    assert all(re.search(r" # v\d+\.\d+\.\d+$", used) for used in pins)


def test_the_tests_run_on_the_oldest_and_the_newest_python():
    rows = JOBS["tests.yml", "test"]["strategy"]["matrix"]["include"]
    pythons = [row["python"] for row in rows if row["target"] == "test"]
    project = (ROOT / "pyproject.toml").read_text()
    oldest = re.search(r'requires-python = ">=(3\.\d+)', project)
    newest = re.findall(r"Programming Language :: Python :: (3\.\d+)", project)
    assert oldest
    assert pythons == [oldest[1], newest[-1]]


def test_a_job_has_time_for_all_its_parts():
    """GitHub keeps nothing of a job that it stops, so each part has to stop before."""
    found = 0
    for job in RESULTS.values():
        lines = [step["run"].split() for step in job["steps"] if "run" in step]
        limits_s = [int(words[2]) for words in lines if words[0] == "ci/part.sh"]
        assert sum(limits_s) <= (job["timeout-minutes"] - 10) * 60
        found += len(limits_s)
    assert found == 6


@pytest.mark.parametrize(
    ("command", "reason"),
    [("exit 0", ""), ("exit 3", "exit code 3"), ("sleep 60", "it took more than 0.2 seconds")],
)
def test_a_part_says_how_it_ended_and_keeps_the_day_of_its_last_success(command, reason, tmp_path):
    (tmp_path / "ci").mkdir()
    part = shutil.copy(ROOT / "ci" / "part.sh", tmp_path / "ci")
    file = tmp_path / "results" / "csv" / "parts" / "one.json"
    file.parent.mkdir(parents=True)
    day = "2026-01-01T00:00:00+00:00"
    file.write_text(json.dumps({"ended": day, "reason": "", "succeeded": day}))
    limit_s = "0.2" if command == "sleep 60" else "60"
    done = subprocess.run([part, "one", limit_s, "bash", "-c", command], check=False)
    found = json.loads(file.read_text())
    assert (done.returncode == 0, found["reason"]) == (not reason, reason)
    assert (found["succeeded"] == day, found["ended"] > day) == (bool(reason), True)
