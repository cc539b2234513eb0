"""Today's suites on older commits of the package: asv and the gate run them there."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).resolve().parents[2]
DRIVER = Path(__file__).with_name("one_row_of_each_suite.py")
# The first and the last commit without `myriad.programs` that the suites still measure.
COMMITS = ("81a3df4", "cdf610b")


def checked_out(commit, folder):
    """Put the package of a commit and today's suites into a folder, as asv and the gate do."""
    archive = subprocess.run(
        ["git", "archive", commit, "myriad", "pyproject.toml"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        pytest.skip(f"{commit} is not in this clone: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    shutil.copytree(ROOT / "benchmarks", folder / "benchmarks")
    make_small(folder / "benchmarks" / "suite.toml")


def make_small(suite):
    """Declare the smallest workloads under the same names."""
    text = re.sub(r"(?m)^num_envs = .*", "num_envs = 8", suite.read_text())
    text = re.sub(r"(?m)^scan_chunk_size = .*", "scan_chunk_size = 4", text)
    suite.write_text(re.sub(r"(?m)^num_steps = .*", "num_steps = 4", text))


@pytest.mark.long
@pytest.mark.parametrize("commit", COMMITS)
def test_each_suite_runs_on_an_older_commit_or_says_what_the_commit_lacks(commit, tmp_path):
    checked_out(commit, tmp_path)
    # What one commit compiles, the next one mostly compiles as well.
    cache = {
        "JAX_COMPILATION_CACHE_DIR": jax.config.values["jax_compilation_cache_dir"],
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(tmp_path / "benchmarks")],
        env=os.environ | cache | {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reply = json.loads(done.stdout)
    assert Path(reply["package"]).is_relative_to(tmp_path)
    outcomes = reply["outcomes"]
    print(commit, json.dumps(outcomes, indent=1))  # `pytest -rP` shows it
    broken = [
        f"{name}: {outcome}"
        for name, outcome in outcomes.items()
        if outcome != "ok" and not outcome.startswith("skipped: ")
    ]
    assert not broken, "\n".join(broken)
    lost = [name for name, outcome in outcomes.items() if outcome != "ok"]
    assert [name for name in lost if "SeveralCores" not in name] == []
