"""perfgate as a stranger gets it: installed from its folder into a new virtual environment.

The repository that it judges has a `ci` of its own, and modules that are called like perfgate's.
"""

import json
import os
import sys
from pathlib import Path

import pytest

from gate_repository import RULES, UNCONFIRMED, install, make_repository, run

PACKAGE = Path(__file__).resolve().parents[1]
CONSTRAINTS = PACKAGE.parents[1] / "constraints.txt"
ALONE = {"PYTHONPATH": ""}  # without the paths of whoever runs the tests
FAST = ("--bench", "track_mean|own", "--no-timing")

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """Return the folder of programs of a new environment that has perfgate installed, and pip."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    held = ["--constraint", CONSTRAINTS] if CONSTRAINTS.is_file() else []
    # hatchling is for the action's own pip, which builds the package again.
    return install(place, *held, str(PACKAGE), "hatchling")


@pytest.fixture
def repository(tmp_path):
    """A slower project, with modules that would break perfgate if perfgate imported them."""
    made = make_repository(tmp_path, UNCONFIRMED + RULES)
    made.write("ci/__init__.py", "OURS = False\n")
    for name in ("compare", "config", "errors", "listing", "options"):
        made.write(f"{name}.py", f"raise SystemExit('the wrong {name}')\n")
    made.write("benchmarks/own.py", "import ci\n\n\ndef track_ours():\n    return int(ci.OURS)\n")
    made.commit("names of its own")
    made.replace("smallsum/__init__.py", "1.0 * number", "2.0 * number")
    return made


def test_the_action_installs_fills_the_summary_and_fails_with_the_gate(tools, repository, tmp_path):
    yaml = pytest.importorskip("yaml")
    prepare, compare, *_ = yaml.safe_load((PACKAGE / "action.yml").read_text())["runs"]["steps"]
    given = {"BASE": "main", "SUITE_CONFIG": "asv.conf.json", "ARGS": " ".join(FAST)}
    assert compare["env"].keys() == given.keys()
    summary = tmp_path / "summary.md"
    environment = given | {
        **ALONE,
        "GITHUB_ACTION_PATH": str(PACKAGE),
        "GITHUB_STEP_SUMMARY": str(summary),
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        # The environment has what pip would fetch.
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_NO_INDEX": "1",
    }
    # GitHub's command line for `shell: bash`.
    shell = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c"]
    run([*shell, prepare["run"]], repository.root, **environment)
    run([*shell, compare["run"]], repository.root, code=1, **environment)
    assert summary.read_text().startswith("# FAILED: 1 regressed")


def test_the_suite_runs_in_a_python_of_its_own_in_which_the_gate_installs_nothing(
    tools, repository, tmp_path
):
    bare = tmp_path / "bare"
    run([sys.executable, "-m", "venv", "--without-pip", bare])
    own = "import sys\n\n\ndef mem_own():\n    assert sys.prefix.endswith('bare')\n    return [0]\n"
    repository.write("benchmarks/where.py", own)
    python = bare / "bin" / "python"
    command = [tools / "perfgate", "--base", "main", "--python", python, *FAST]
    done = run(command, repository.root, code=1, **ALONE)
    rows = json.loads((repository.root / ".asv/gate/gate.json").read_text())["rows"]
    found = {row["name"]: row["verdict"] for row in rows}
    assert (found["basics.track_mean"], found["where.mem_own"]) == ("worse", "new")
    assert f"--python {python}" in done.stdout
    assert not list(bare.glob("lib/python*/site-packages/*"))
