"""One environment of asv holds commits called myriad and commits called myriad-rl, in turn."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from benchmarks.harness.process import ROOT

BEFORE, AFTER = "e43354db", "HEAD"
BENCHMARK = """
import importlib.metadata
import myriad

def track_distributions():
    found = {each.name for each in importlib.metadata.distributions()}
    assert myriad.__file__.startswith(__import__("sys").prefix)
    return ["myriad", "myriad-rl"].index(*({"myriad", "myriad-rl"} & found))
"""


@pytest.mark.long
@pytest.mark.parametrize("order", [(BEFORE, AFTER), (AFTER, BEFORE)], ids=["forwards", "backwards"])
def test_a_commit_on_each_side_of_the_rename_finds_only_its_own_package(order, tmp_path):
    known = ["git", "cat-file", "-e", f"{BEFORE}^{{commit}}"]
    if subprocess.run(known, cwd=ROOT, check=False, capture_output=True).returncode:
        pytest.skip(f"{BEFORE} is not in this clone")
    text = re.sub(r"(?m)^\s*//.*$", "", (ROOT / "asv.conf.json").read_text())
    settings = json.loads(text) | {
        "repo": str(ROOT),
        "branches": ["HEAD"],
        "matrix": {},
        "benchmark_dir": str(tmp_path / "benchmarks"),
        "install_command": [
            "in-dir={env_dir} python -m pip install --quiet --no-deps {wheel_file}"
        ],
    }
    settings |= {name: str(tmp_path / name) for name in ("env_dir", "results_dir", "html_dir")}
    (tmp_path / "asv.conf.json").write_text(json.dumps(settings))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)  # asv installs the build backend that it names.
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").touch()
    (tmp_path / "benchmarks" / "names.py").write_text(BENCHMARK)
    asv = [sys.executable, "-m", "asv"]
    there = {"cwd": tmp_path, "env": os.environ | {"HOME": str(tmp_path)}, "capture_output": True}
    subprocess.run([*asv, "machine", "--yes"], check=True, **there)
    for commit in order:
        command = [*asv, "run", "--quick", "--show-stderr", f"{commit}^!"]
        done = subprocess.run(command, text=True, check=False, **there)
        assert done.returncode == 0, done.stdout + done.stderr
        found = re.findall(r"track_distributions\s+(\S+)$", done.stdout, re.MULTILINE)
        assert found == [str(int(commit == AFTER))], done.stdout
