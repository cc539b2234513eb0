"""Our gate in a repository that has a package called `ci` itself, by the launcher and by the composite action."""

import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.gate_repository import LAST_RESORT_S, ROOT, make_repository

LAUNCHER = ROOT / "ci" / "launch.py"
TRACKED = "basics.track_mean"


@pytest.fixture
def repository(tmp_path):
    """A project whose own `ci` the suite imports, and which would break the gate if the gate imported it."""
    made = make_repository(tmp_path)
    made.write("ci/__init__.py", "OURS = False\n")
    made.write("ci/gate.py", "raise SystemExit('the wrong gate')\n")
    made.write("ci/errors.py", "raise SystemExit('the wrong errors')\n")
    made.write("benchmarks/own.py", "import ci\n\n\ndef track_ours():\n    return int(ci.OURS)\n")
    made.commit("a ci of its own")
    return made


def launch(repository, *arguments):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-P", str(LAUNCHER), *arguments]
    return subprocess.run(
        command,
        cwd=repository.root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LAST_RESORT_S,
        check=False,
    )


def test_a_repository_with_a_ci_of_its_own_is_gated(repository):
    done = launch(repository, "gate", "--base", "main", "--bench", "track_mean|own", "--no-timing")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| `own.track_ours` | same | 0 -> 0" in done.stdout
    repository.replace("smallsum/__init__.py", "return np.arange", "return 2 * np.arange")
    done = launch(repository, "gate", "--base", "main", "--bench", "track_mean|own", "--no-timing")
    assert done.returncode == 1, done.stdout + done.stderr


def test_the_command_that_repeats_a_row_runs_as_it_is_printed(repository):
    repository.replace("smallsum/__init__.py", "return np.arange", "return 2 * np.arange")
    launch(repository, "gate", "--base", "main", "--bench", "track_mean", "--no-timing")
    report = json.loads((repository.root / ".asv" / "gate" / "gate.json").read_text())
    words = shlex.split(report["rows"][0]["reproduce"])
    assert words[1:4] == ["-P", str(LAUNCHER), "gate"]
    assert "--no-timing" in words
    done = launch(repository, *words[3:])
    assert done.stdout.startswith("# FAILED: 1 regressed"), done.stdout + done.stderr


def test_its_commits_are_searched_too(repository):
    repository.replace("smallsum/__init__.py", "return np.arange", "return 2 * np.arange")
    guilty = repository.commit("double")
    done = launch(repository, "find", TRACKED, "main~1", "main")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"found {guilty[:12]} double" in done.stdout


def test_another_first_word_is_refused(repository):
    done = launch(repository, "publish")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is missing: apt install bash")
def test_the_action_fills_the_summary_and_fails_with_the_gate(repository, tmp_path):
    step = yaml.safe_load((ROOT / "ci" / "action.yml").read_text())["runs"]["steps"][0]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "bin" / "python").chmod(0o755)
    given = {"BASE": "main", "SUITE_CONFIG": "asv.conf.json", "ARGS": "--bench track_mean --no-timing"}
    assert step["env"].keys() == given.keys()
    environment = os.environ | given
    environment |= {"GITHUB_ACTION_PATH": str(ROOT / "ci"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    environment |= {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    repository.replace("smallsum/__init__.py", "return np.arange", "return 2 * np.arange")
    # GitHub's command line for `shell: bash`.
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
    done = subprocess.run(command, cwd=repository.root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert (tmp_path / "summary.md").read_text().startswith("# FAILED: 1 regressed")
