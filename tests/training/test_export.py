"""An exported agent acts without Myriad as it does in Myriad."""

import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from myriad import create_config, load_agent, train_and_evaluate
from myriad.cli import main
from myriad.training.export import export_agent
from tests.child_processes import python
from tests.learners import DISTINCT
from tests.training.small import trained

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
LOADERS = re.findall(
    r"test_export.py runs it -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL
)
AFTERWARDS = """
import sys
assert "myriad" not in sys.modules
np.save("actions.npy", act(np.load("obs.npy")))
"""
NEEDED = {"stablehlo": "flatbuffers", "safetensors": "safetensors"}


@pytest.mark.slow
@pytest.mark.parametrize("form", NEEDED)
def test_the_code_of_the_page_chooses_the_agents_actions(form, ppo_run, tmp_path, capsys):
    pytest.importorskip(NEEDED[form])
    output = tmp_path / f"agent.{form}"
    command = ["export", str(ppo_run), "--format", form, "--output", str(output)]
    assert main(command) == 0
    assert capsys.readouterr().out.startswith(f"{output}: ")
    assert main(command) == 2
    assert "exists: name another file" in capsys.readouterr().err
    obs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    np.save(tmp_path / "obs.npy", obs)
    (code,) = (each for each in LOADERS if output.name in each)
    assert len(code.splitlines()) <= 24
    python("-c", code + AFTERWARDS, cwd=tmp_path)
    agent = load_agent(ppo_run)[2]
    expected = jax.vmap(agent.act, (None, 0))(jax.random.key(0), obs)
    assert 0 < np.mean(expected) < 1
    np.testing.assert_array_equal(np.load(tmp_path / "actions.npy"), expected)


@pytest.mark.slow
@pytest.mark.parametrize("agent", [name for name in DISTINCT if name != "ppo"])
def test_every_learner_is_exported(agent, tmp_path):
    pytest.importorskip("flatbuffers")
    numpy = pytest.importorskip("safetensors.numpy")
    run = trained(tmp_path / "run", agent)
    assert main(["export", str(run), "--format", "safetensors"]) == 0
    training = _, env, policy = load_agent(run)
    assert "to actions" in export_agent(*training, run / "agent.stablehlo")
    size = env.observation_space(env.default_params).shape[0]
    obs = np.random.default_rng(0).normal(size=(5, size)).astype(np.float32)
    program = jax.export.deserialize((run / "agent.stablehlo").read_bytes())
    expected = jax.vmap(policy.act, (None, 0))(jax.random.key(0), obs)
    np.testing.assert_allclose(program.call(obs), expected, rtol=1e-5)
    arrays = numpy.load_file(run / "agent.safetensors")
    owner = "actor" if agent == "sac" else "network"
    assert arrays[f"params.{owner}.params.Dense_0.kernel"].shape == (size, 8)
    np.testing.assert_array_equal(arrays["obs_stats.mean"], policy.state.obs_stats.mean)


@pytest.mark.slow
def test_what_cannot_be_exported_is_refused(ppo_run, refused, tmp_path, monkeypatch):
    config = create_config("cartpole", "pid", num_envs=2, steps_per_env=64)
    train_and_evaluate(config, tmp_path / "pid", quiet=True)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    for folder, form, sentence in (
        ("pid", "stablehlo", "pid has a memory or no weights"),
        ("no", "stablehlo", "config.toml can't be read"),
        ("pid", "onnx", "onnx"),
        (str(ppo_run), "safetensors", "pip install 'myriad-rl[export]'"),
    ):
        assert sentence in refused("export", folder, "--format", form)
