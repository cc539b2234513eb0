"""Today's suites on this commit and on older ones, where asv and the gate run them, too."""

import io
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import jax
import pytest

from benchmarks.harness.process import ROOT
from tests.child_processes import python

DRIVER = Path(__file__).with_name("one_row_of_each_suite.py")
# The first with a complete configuration and `myriad.programs`, and one before them.
COMMITS = ("bea54d4", "81a3df4")


def checked_out(commit, folder):
    """Put the package of a commit and today's suites into a folder, as asv and the gate do."""
    if commit == "this":
        shutil.copytree(ROOT / "myriad", folder / "myriad")
    else:
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
    suite = folder / "benchmarks" / "suite.toml"  # the smallest workloads under the same names
    text = re.sub(r"(?m)^num_envs = .*", "num_envs = 8", suite.read_text())
    text = re.sub(r"(?m)^scan_chunk_size = .*", "scan_chunk_size = 4", text)
    suite.write_text(re.sub(r"(?m)^num_steps = .*", "num_steps = 4", text))


@pytest.mark.long
@pytest.mark.parametrize("commit", ["this", *COMMITS])
def test_a_row_of_each_suite_runs_twice_or_says_what_the_commit_lacks(commit, tmp_path):
    checked_out(commit, tmp_path)
    # What one commit compiles, the next one mostly compiles as well.
    cache = {
        "JAX_COMPILATION_CACHE_DIR": jax.config.values["jax_compilation_cache_dir"],
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    alone = {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    done = python(DRIVER, tmp_path / "benchmarks", cwd=tmp_path, **cache, **alone)
    reply = json.loads(done.stdout)
    assert Path(reply["package"]).is_relative_to(tmp_path)
    outcomes = reply["outcomes"]
    print(commit, json.dumps(outcomes, indent=1))  # `pytest -rP` shows it
    lost = {name: outcome for name, outcome in outcomes.items() if outcome != "ok"}
    broken = [outcome for outcome in lost.values() if not outcome.startswith("skipped: ")]
    assert not broken, "\n".join(broken)
    if commit != COMMITS[-1]:
        assert [name for name in lost if "SeveralCores" not in name] == []
