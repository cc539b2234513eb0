"""Where things may lie in benchmarks: what asv finds, what a script says, what a peer imports."""

import re
import tomllib

import pytest

from benchmarks.harness.process import ROOT
from benchmarks.harness.registry import SuiteError, read_libraries
from perfgate.source.asv_config import read_config
from tests.child_processes import python

# What runs in a peer's own Python.
PEER_MODULES = (
    *("libraries.__main__", "libraries.server", "libraries.jax_libraries"),
    *("libraries.array_libraries", "libraries.network_policy", "libraries.ppo_training"),
    *("harness.workload", "harness.worker"),
)


# The modules of Myriad that suites may use. All are documented.
PUBLIC = {
    *("agents", "autotune", "autotune.batch", "cli", "envs", "errors", "files", "hardware"),
    *("host", "presets", "programs", "spaces", "timing", "training.population", "xla"),
}


def test_suites_import_only_what_is_public():
    inside = {
        (path.name, name)
        for path in (ROOT / "benchmarks").rglob("*.py")
        for name in re.findall(r"(?:from|import) myriad\.([\w.]+)", path.read_text())
        if name not in PUBLIC
    }
    assert inside == set()


def test_what_a_peer_runs_imports_neither_myriad_nor_jax_by_itself():
    hide = "import sys; sys.modules.update(myriad=None, jax=None, numpy=None); sys.path.append('.')"
    imports = ", ".join(f"benchmarks.{name}" for name in PEER_MODULES)
    python("-S", "-c", f"{hide}; import {imports}", cwd=ROOT)


def test_a_mistake_in_the_libraries_is_answered(tmp_path):
    declared = (ROOT / "benchmarks" / "libraries.toml").read_text()
    file = tmp_path / "libraries.toml"
    for old, new, says in (
        ("ours = true", "", "exactly one library with ours = true"),
        ('runs = "gymnax"', 'runs = "gymnx"', "runs 'gymnx' is unknown; did you mean 'gymnax'"),
    ):
        assert old in declared
        file.write_text(declared.replace(old, new, 1))
        with pytest.raises(SuiteError, match=says):
            read_libraries(file)


def test_asv_measures_under_the_locked_versions_and_a_pinned_build_backend():
    config = read_config(ROOT / "asv.conf.json", ROOT)
    locked = (ROOT / "constraints.txt").read_text()
    for requirement in config.requirements:
        assert re.search(rf"^{re.escape(requirement)} ", locked, re.MULTILINE), requirement
    named = {requirement.partition("==")[0] for requirement in config.requirements}
    assert {"jax", "jaxlib", "numpy"} <= named  # they decide the speed, so results say which
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert all("==" in each for each in project["build-system"]["requires"])
