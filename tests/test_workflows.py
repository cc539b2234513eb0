"""The workflows are valid, have no known weakness, and run what also runs on a laptop."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from perfgate.cli import COMMANDS
from tests.outer_make import environment_without_make

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONS = [ROOT / "ci" / "gate" / "action.yml", ROOT / "ci" / "gate" / "comment" / "action.yml"]
PINNED = re.compile(r"^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
MAY_WRITE = {
    ("perf-comment.yml", "comment"): {"pull-requests"},
    ("benchmarks.yml", "store"): {"contents"},
    ("benchmarks.yml", "deploy"): {"pages", "id-token"},
}


def load(path):
    return yaml.safe_load(path.read_text())


def steps():
    for path in WORKFLOWS:
        for name, job in load(path)["jobs"].items():
            for number, step in enumerate(job["steps"]):
                yield pytest.param(path.name, name, step, id=f"{path.stem}-{name}-{number}")


def tool(name):
    """Return a tool that pip installs beside this interpreter."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is missing: pip install {name}")
    return found


def test_zizmor_finds_no_weakness():
    command = [
        tool("zizmor"),
        "--offline",
        "--no-progress",
        "--pedantic",
        ".github/workflows",
        *map(str, ACTIONS),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "files"),
    [("github-workflows", WORKFLOWS), ("github-actions", ACTIONS)],
    ids=["workflows", "actions"],
)
def test_the_files_fit_githubs_schema(schema, files):
    command = [tool("check-jsonschema"), "--builtin-schema", f"vendor.{schema}", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_job_is_given_no_more_than_it_needs(path):
    workflow = load(path)
    assert workflow["permissions"] == {}
    assert "group" in workflow["concurrency"]
    for name, job in workflow["jobs"].items():
        assert "timeout-minutes" in job
        writes = {scope for scope, access in job["permissions"].items() if access == "write"}
        assert writes == MAY_WRITE.get((path.name, name), set())


@pytest.mark.parametrize(
    "path", [*WORKFLOWS, *ACTIONS], ids=lambda path: str(path.relative_to(ROOT))
)
def test_actions_are_pinned_by_a_whole_hash_with_their_version(path):
    for used in re.findall(r"uses: (.*)", path.read_text()):
        assert PINNED.match(used), used


def test_an_action_is_pinned_to_one_version_everywhere():
    used = re.findall(
        r"uses: ([^@\s]+)@(\S+)", "".join(path.read_text() for path in [*WORKFLOWS, *ACTIONS])
    )
    assert len(set(used)) == len({name for name, _ in used})


@pytest.mark.parametrize(("workflow", "job", "step"), list(steps()))
def test_a_step_runs_only_what_a_laptop_has(workflow, job, step):
    """Each command is make, perfgate, or a script of ours; expressions come by the environment."""
    if "uses" in step:
        if step["uses"].startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
        return
    assert "${{" not in step["run"]
    for line in step["run"].strip().splitlines():
        assert runs_ours(line) or line.startswith("sudo chown"), line


def runs_ours(line):
    command = re.sub(r'^sudo env (?:"\w+=\$\w+" )+', "", line)
    if target := re.match(r"make ([\w./-]+)", command):
        return re.search(
            rf"^{re.escape(target[1])}:", (ROOT / "Makefile").read_text(), re.MULTILINE
        )
    if command.startswith('.venv/bin/python -m perfgate --base "$BASE"'):
        return True
    if word := re.match(r"PYTHONPATH=ci/gate python -m perfgate (\w+)", command):
        return word[1] in COMMANDS
    script = ROOT / command.split()[0]
    return (
        script.parent.name in ("ci", ".ci") and script.is_file() and script.stat().st_mode & 0o111
    )


def test_who_needs_the_history_has_it():
    """`make site` orders results by commit, the gate needs the merge base, asv the new commits."""
    for path in WORKFLOWS:
        for name, job in load(path)["jobs"].items():
            text = " ".join(step.get("run", "") for step in job["steps"])
            if re.search(r"make site|-m perfgate --base|nightly\.py history", text):
                assert job["steps"][0]["with"]["fetch-depth"] == 0, f"{path.name}: {name}"


@pytest.mark.slow
def test_the_gates_step_fills_the_summary_and_ends_as_the_gate_does(tmp_path):
    """As GitHub runs it, in a clone whose environment is this one."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "place").write_text(f"{clone.resolve()}\n")
    (clone / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (clone / ".venv" / "bin" / "python").chmod(0o755)
    (clone / ".venv" / "bench.stamp").touch()
    steps = load(ROOT / ".github" / "workflows" / "perf-gate.yml")["jobs"]["gate"]["steps"]
    step = next(step for step in steps if "-m perfgate" in step.get("run", ""))
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]  # GitHub's for `shell: bash`
    summary = tmp_path / "summary.md"
    few = "--bench '^host.Imports'"
    for base, flags, code, begins in (
        ("HEAD", f"{few} --no-timing", 0, "# PASSED"),
        ("HEAD", f"{few} --time-identical --budget 0", 3, "# COULD NOT TELL"),
        ("nowhere", few, 2, ""),
    ):
        summary.write_text("")
        environment = environment_without_make()
        environment |= {"BASE": base, "GITHUB_STEP_SUMMARY": str(summary), "PYTHONPATH": ""}
        line = step["run"].replace('"$BASE"', f'"$BASE" {flags}')
        done = subprocess.run(
            [*shell, line], cwd=clone, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert summary.read_text().startswith(begins)
    make = ["make", "gate", "BASE=HEAD", f"ARGS={few} --time-identical --budget 0"]
    done = subprocess.run(
        make, cwd=clone, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "The gate's exit code is 3. Make turns it into 2" in done.stderr


def test_only_a_read_only_token_meets_the_code_of_a_pull_request():
    for path in WORKFLOWS:
        text, workflow = path.read_text(), load(path)
        assert "pull_request_target" not in text
        assert "secrets." not in text
        if "pull_request" in workflow[True]:  # YAML 1.1 reads `on` as true
            assert all(
                set(job["permissions"].values()) == {"read"} for job in workflow["jobs"].values()
            )


def test_what_one_push_of_a_pull_request_saves_reaches_no_later_run_of_the_gate():
    steps = load(ROOT / ".github/workflows/perf-gate.yml")["jobs"]["gate"]["steps"]
    assert not [step for step in steps if "cache" in str(step.get("uses"))]


def test_the_comment_follows_the_gate_by_name():
    followed = load(ROOT / ".github/workflows/perf-comment.yml")[True]["workflow_run"]["workflows"]
    assert followed == [load(ROOT / ".github/workflows/perf-gate.yml")["name"]]
