"""Each command of each workflow runs in a clone as GitHub makes it, for each event and row."""

import os
import shutil
import sys
from pathlib import Path

import pytest

import myriad
from tests.workflow_jobs import NAMES, WORKFLOWS, Context, Jobs, evaluate, fill, git, load

pytestmark = pytest.mark.long
JOBS = [(path.name, job) for path in WORKFLOWS for job in load(path)["jobs"]]
# Programs that stand in for others on PATH. Tests would run this one again, so make only says
# what it would do. The caches are ours already.
PROGRAMS = {
    "make": 'case " $*" in *" test"*) exec {make} --dry-run "$@" ;; *) exec {make} "$@" ;; esac',
    "sudo": '[ "$1" = chown ] || exec "$@"',
    "apt-get": "",
}
# Python imports it at its start: a command that measures for hours only parses its arguments.
PARSE = """
import argparse, sys
if any("benchmarks/" in word or word in ("asv", "perfgate") for word in sys.orig_argv[1:3]):
    parse = argparse.ArgumentParser.parse_args
    argparse.ArgumentParser.parse_args = lambda *words: sys.exit(parse(*words) is None)
"""


def events(workflow, commit):
    """Yield what GitHub tells the workflow of each event that starts it."""
    for name, details in workflow[True].items():  # YAML 1.1 reads `on` as true
        for each in details if name == "schedule" else [details or {}]:
            kind, ref = ("tags", f"v{myriad.__version__}") if "tags" in each else ("heads", "main")
            ends = Context(sha=commit, ref=ref)
            event = Context(
                schedule=each.get("cron", ""),
                pull_request=Context(head=ends, base=ends),
                workflow_run=Context(event="pull_request", conclusion="success"),
            )
            yield Context(event_name=name, event=event, ref=f"refs/{kind}/{ref}", ref_name=ref)


@pytest.fixture
def jobs(tmp_path):
    jobs = Jobs(tmp_path)
    git(jobs.remote, "tag", f"v{myriad.__version__}", "main")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, line in PROGRAMS.items():
        (programs / name).write_text("#!/bin/sh\n" + line.format(make=shutil.which("make")) + "\n")
        (programs / name).chmod(0o755)
    (programs / "sitecustomize.py").write_text(PARSE)
    # The Python itself, not a virtual environment's, as setup-python puts it on PATH.
    path = f"{programs}:{Path(sys.base_prefix) / 'bin'}:{os.environ['PATH']}"
    jobs.variables = {"PATH": path, "PYTHONPATH": str(programs)}
    return jobs


@pytest.mark.parametrize(("file", "job"), JOBS, ids=[f"{file[:-4]}-{job}" for file, job in JOBS])
def test_each_command_runs_in_the_clone_of_its_job(file, job, jobs):
    workflow = load(file)
    described = workflow["jobs"][job]
    rows = described.get("strategy", {}).get("matrix", {}).get("include", [{}])
    tried = []
    for github in events(workflow, git(jobs.remote, "rev-parse", "main")):
        for row in rows:
            told = {"github": github, "matrix": Context(row), "vars": Context(MEASURE="true")}
            names = NAMES | told
            given = [
                fill(step.get("with", step.get("env", {})), names) for step in described["steps"]
            ]
            if evaluate(described.get("if", "True"), names) and given not in tried:
                tried.append(given)
                codes = jobs.run(file, job, **told)
                # That job fails by design where a newer jax is out.
                assert job == "newer-jax" or not any(codes.values()), codes
    assert tried, "no event starts this job"
