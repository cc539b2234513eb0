"""perfgate as a stranger gets it: installed by its action into a new environment."""

import os
from pathlib import Path

import pytest

from gate_repository import install, make_repository, run

PACKAGE = Path(__file__).resolve().parents[1]
CONSTRAINTS = PACKAGE.parents[1] / "constraints.txt"
FAST = "--bench track_mean|own --no-timing"


@pytest.mark.long
def test_the_action_installs_fills_the_summary_and_fails_with_the_gate(tmp_path):
    yaml = pytest.importorskip("yaml")
    held = ["--constraint", CONSTRAINTS] if CONSTRAINTS.is_file() else []
    # hatchling is for the action's own pip, which builds the package again.
    tools = install(tmp_path / "venv", *held, str(PACKAGE), "hatchling")
    repository = make_repository(tmp_path)
    # Modules that would break perfgate if it imported them.
    names = ("compare", "config", "errors", "listing", "options")
    files = {f"{name}.py": f"raise SystemExit('the wrong {name}')\n" for name in names}
    own = "import ci\n\n\ndef track_ours():\n    return int(ci.OURS)\n"
    repository.commit(files | {"ci/__init__.py": "OURS = False\n", "benchmarks/own.py": own})
    repository.replace("smallsum/__init__.py", "1.0 * number", "2.0 * number")

    prepare, compare, *_ = yaml.safe_load((PACKAGE / "action.yml").read_text())["runs"]["steps"]
    given = {"BASE": "main", "SUITE_CONFIG": "asv.conf.json", "ARGS": FAST}
    assert compare["env"].keys() == given.keys()
    summary = tmp_path / "summary.md"
    environment = given | {
        "PYTHONPATH": "",  # without the paths of whoever runs the tests
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
