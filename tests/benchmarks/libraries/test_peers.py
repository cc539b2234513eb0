"""Peers in an environment of their own: what runs there, and what is said where there is none.

A fake peer stands for the real ones: a virtual environment without pip, with a `myriad` of its own
and our JAX.
"""

import subprocess
import sys
import sysconfig
from dataclasses import replace

import pytest

from benchmarks.harness import alternation, peers
from benchmarks.harness.alternation import Budget, alternate
from benchmarks.harness.plausibility import as_declared
from benchmarks.harness.process import ROOT
from benchmarks.harness.workload import Case, Workload
from tests.child_processes import python

BUDGET = Budget(num_rounds=2, min_rounds=2)
TINY = Workload("throughput", "tiny", "gene-circuit-control", "random", 8, 6, (), num_steps=12)

# An environment in the shape of myriad-jax 0.2.0: episodes of three steps, a reward of 2 each, of 7
# under XLA options.
FAKE_ENVS = """
import os
import jax
import jax.numpy as jnp
import myriad

class Env:
    params = config = None
    def get_action_space(self, config):
        return self
    def sample(self, key):
        return jax.random.randint(key, (), 0, 2)
    def reset(self, key, params, config):
        return jnp.zeros(2), jnp.int32(0)
    def step(self, key, state, action, params, config):
        reward = 2 + 5 * ("xla" in os.environ.get("XLA_FLAGS", ""))
        return jnp.zeros(2), state + 1, jnp.float32(reward), (state >= 2).astype(jnp.float32), {}

def make_env(name):
    assert name == "ccasr-gfp-control"
    return Env()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Let the peers' environments be in a folder of the test's, for child processes too."""
    monkeypatch.setattr(peers, "FOLDER", tmp_path / "peers")
    code = (
        "from pathlib import Path; from benchmarks.harness import peers\n"
        "from benchmarks.libraries import __main__ as libraries\n"
        f"peers.FOLDER = Path({str(tmp_path / 'peers')!r}); libraries.main()"
    )
    monkeypatch.setattr(
        alternation, "library_command", lambda name: [sys.executable, "-c", code, name]
    )
    return tmp_path / "peers"


@pytest.fixture
def fake_peer(folder, monkeypatch):
    """Make what `install` would make for myriad-jax, and return the folder of its packages."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # the tests' own
    python("-m", "venv", "--without-pip", folder / "myriad-jax")
    (packages,) = (folder / "myriad-jax" / "lib").glob("python*/site-packages")
    (packages / "ours.pth").write_text(sysconfig.get_path("purelib"))
    (packages / "myriad_jax-9.9.dist-info").mkdir()
    (packages / "myriad_jax-9.9.dist-info" / "METADATA").write_text(
        "Name: myriad-jax\nVersion: 9.9\n"
    )
    (packages / "myriad" / "envs").mkdir(parents=True)
    banner = "import os; os.write(1, b'a banner'); print('a greeting')"
    (packages / "myriad" / "__init__.py").write_text(banner)
    (packages / "myriad" / "envs" / "__init__.py").write_text(FAKE_ENVS)
    peers.link_suites(folder / "myriad-jax")
    (folder / "myriad-jax" / "installed.txt").write_text(
        "\n".join(peers.declared()["myriad-jax"].requirements) + "\n"
    )
    return packages


def measured(*libraries):
    """Run peers beside ours, which describes the machine; return the peers' outcomes."""
    cases = [Case(name, replace(TINY, num_envs=64)) for name in ("myriad-plain", *libraries)]
    return alternate([replace(as_declared(each), returns=True) for each in cases], BUDGET)[1:]


@pytest.mark.parametrize(("name", "options"), [("myriad-jax", ""), ("jumanji", "-configured")])
def test_a_peer_without_its_environment_is_not_installed_and_the_command_is_named(
    name, options, folder
):
    (outcome,) = alternate([Case(name + options, TINY)], BUDGET)
    assert outcome.status == "not installed"
    assert f"`python -m benchmarks.harness.peers install {name}`" in outcome.reason


@pytest.mark.slow
def test_the_peers_own_package_runs_also_with_our_xla_options_and_may_print(
    fake_peer, folder, monkeypatch, tmp_path
):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert peers.is_installed("myriad-jax")
    plain, configured = measured("myriad-jax", "myriad-jax-configured")
    assert (plain.status, configured.status) == ("ok", "ok")
    assert (plain.hello["library"], plain.hello["library_version"]) == ("myriad-jax", "9.9")
    assert plain.hello["hardware"]["device_name"]
    assert plain.stats["num_episodes"] == 64 * 2 * 12 // 3
    assert plain.stats["mean_episode_length"] == 3.0
    returns = [each.stats["mean_episode_return"] for each in (plain, configured)]
    assert returns == [6.0, 21.0]
    # A package from elsewhere is not taken for the peer's.
    (fake_peer / "myriad").rename(tmp_path / "myriad")
    (fake_peer / "elsewhere.pth").write_text(str(tmp_path))
    (outcome,) = alternate([Case("myriad-jax", TINY)], BUDGET)
    assert outcome.status == "failed"
    assert outcome.reason.startswith(f"myriad was imported from {tmp_path / 'myriad'}")
    # An environment of other versions counts as none.
    (folder / "myriad-jax" / "installed.txt").write_text("myriad-jax==0.1.0\n")
    assert not peers.is_installed("myriad-jax")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("jumanji", "jumanji could not be installed: `"),
        ("jumanjy", "peer 'jumanjy' is unknown; did you mean 'jumanji'?"),
    ],
)
def test_what_can_not_be_installed_is_one_sentence(name, says, folder, monkeypatch, capsys):
    failed = subprocess.CompletedProcess([], 1)
    monkeypatch.setattr(subprocess, "run", lambda command, check: failed)
    assert peers.main(["install", name]) == 2
    assert says in capsys.readouterr().err
    assert not peers.is_installed("jumanji")
