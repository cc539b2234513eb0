"""perfgate as a stranger gets it: installed from its folder into a new virtual environment.

The repository that it judges has a `ci` of its own, and modules that are called like perfgate's.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gate_repository import RULES, UNCONFIRMED, make_repository

PACKAGE = Path(__file__).resolve().parents[1]
CONSTRAINTS = PACKAGE.parents[1] / "constraints.txt"
TRACKED = "basics.track_mean"
FAST = ("--bench", "track_mean|own", "--no-timing")

pytestmark = pytest.mark.long


def run(command, **options):
    """Run a command without the paths of whoever runs the tests."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= options.pop("env", {})
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, **options
    )


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """Return the folder of programs of a new environment that has perfgate installed, and pip."""
    uv = Path(sys.executable).with_name("uv")
    if not uv.is_file():
        pytest.skip("uv is missing: pip install uv")
    place = tmp_path_factory.mktemp("installed") / "venv"
    made = run([uv, "venv", "--quiet", "--seed", "--python", sys.executable, place])
    assert made.returncode == 0, made.stderr
    install = [uv, "pip", "install", "--quiet", "--python", place / "bin" / "python"]
    if CONSTRAINTS.is_file():
        install += ["--constraint", CONSTRAINTS]
    # hatchling is for the action's own pip, which builds the package again. What an earlier
    # installation has fetched needs no network.
    wanted = [str(PACKAGE), "hatchling"]
    done = run([*install, "--offline", *wanted])
    if done.returncode:
        done = run([*install, *wanted])
    assert done.returncode == 0, done.stderr
    return place / "bin"


@pytest.fixture
def repository(tmp_path):
    """A project with modules that would break perfgate if perfgate imported them."""
    made = make_repository(tmp_path, UNCONFIRMED + RULES)
    made.write("ci/__init__.py", "OURS = False\n")
    for name in ("compare", "config", "errors", "listing", "options"):
        made.write(f"{name}.py", f"raise SystemExit('the wrong {name}')\n")
    made.write("benchmarks/own.py", "import ci\n\n\ndef track_ours():\n    return int(ci.OURS)\n")
    made.commit("names of its own")
    return made


def perfgate(tools, repository, *arguments):
    return run([tools / "perfgate", *arguments], cwd=repository.root, timeout=120)


def plant(repository):
    repository.replace("smallsum/__init__.py", "1.0 * number", "2.0 * number")


def test_the_action_installs_fills_the_summary_and_fails_with_the_gate(tools, repository, tmp_path):
    yaml = pytest.importorskip("yaml")
    if shutil.which("bash") is None:
        pytest.skip("bash is missing: apt install bash")
    install, compare, *_ = yaml.safe_load((PACKAGE / "action.yml").read_text())["runs"]["steps"]
    given = {"BASE": "main", "SUITE_CONFIG": "asv.conf.json", "ARGS": " ".join(FAST)}
    assert compare["env"].keys() == given.keys()
    summary = tmp_path / "summary.md"
    environment = given | {
        "GITHUB_ACTION_PATH": str(PACKAGE),
        "GITHUB_STEP_SUMMARY": str(summary),
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        # The environment has what pip would fetch.
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_NO_INDEX": "1",
    }
    plant(repository)
    # GitHub's command line for `shell: bash`.
    shell = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c"]
    done = run([*shell, install["run"]], cwd=repository.root, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run([*shell, compare["run"]], cwd=repository.root, env=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    assert summary.read_text().startswith("# FAILED: 1 regressed")


def test_the_suite_runs_in_a_python_of_its_own_in_which_the_gate_installs_nothing(
    tools, repository, tmp_path
):
    bare = tmp_path / "bare"
    made = run([sys.executable, "-m", "venv", "--without-pip", bare])
    assert made.returncode == 0, made.stderr
    plant(repository)
    repository.write(
        "benchmarks/where.py",
        "import sys\n\n\ndef mem_own():\n    assert sys.prefix.endswith('bare')\n    return [0]\n",
    )
    python = bare / "bin" / "python"
    done = perfgate(tools, repository, "--base", "main", "--python", python, *FAST)
    assert done.returncode == 1, done.stdout + done.stderr
    rows = json.loads((repository.root / ".asv/gate/gate.json").read_text())["rows"]
    found = {row["name"]: row for row in rows}
    assert found[TRACKED]["verdict"] == "worse"
    assert found["where.mem_own"]["verdict"] == "new"
    assert f"--python {python}" in done.stdout
    assert not list(bare.glob("lib/python*/site-packages/*"))
