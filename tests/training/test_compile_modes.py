"""When programs compile, and what a training without any program is good for."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import create_config, train_and_evaluate
from myriad.agents.ppo import PPO
from myriad.cli import main
from myriad.training.programs import CompiledTraining
from myriad.xla import count_compilations
from tests.child_processes import python
from tests.training.small import flags_of

# A training of 8 steps that evaluates once. Without programs, each operation of each step of an
# optimiser is a call: few steps say as much.
SIZES = {
    "num_envs": 2,
    "steps_per_env": 8,
    "eval_frequency": 8,
    "eval_rollouts": 2,
    "eval_max_steps": 4,
    "rollout_steps": 4,
    "agent.num_epochs": 1,
    "agent.num_minibatches": 2,
    "agent.hidden_sizes": (8,),
}
TINY = ["train", "--env", "cartpole", "--agent", "ppo"]
TINY += flags_of(SIZES)
TALKING = """
from myriad.envs.cartpole import CartPole

class Talking(CartPole):
    def step(self, key, state, action, params):
        print("stepped", flush=True)
        return super().step(key, state, action, params)
"""


@pytest.mark.slow
def test_programs_are_kept_for_the_next_training_of_any_seed(tmp_path):
    programs = tmp_path / "programs"

    def kept_after(*argv):
        command = ["-m", "myriad.cli", *TINY, "--quiet", *argv]
        python(*command, cwd=tmp_path, MYRIAD_COMPILATION_CACHE=str(programs))
        return {path.name for path in programs.glob("*-cache")}

    kept = kept_after()
    ours = ("jit_run", "jit_init", "jit__evaluate")
    assert sum(name.startswith(ours) for name in kept) == 3
    assert kept_after("--seed", "1") == kept


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "later"), [("aot", 0), ("cached", 3)])
def test_only_the_default_compiles_its_programs_before_the_first_step(mode, later):
    config = create_config("cartpole", "ppo", **SIZES, compile_mode=mode)
    training = CompiledTraining(config)
    ours = ("jit(init)", "jit(run)", "jit(_evaluate)")
    with count_compilations() as first:
        training.compile()
    assert sum(name in ours for name in first.names) == 3 - later
    with count_compilations() as then:
        state = training.first_state()
        state, _ = training.run(state, jnp.int32(1), jnp.ones((), bool))
        training.evaluate(state.agent, state.key, state.num_updates)
    assert sum(name in ours for name in then.names) == later


@pytest.mark.slow
def test_a_training_without_programs_agrees_within_rounding(tmp_path):
    # More updates would let rounding change an action, and then the course.
    results = {}
    for mode in ("aot", "off"):
        config = create_config("cartpole", "ppo", **SIZES, compile_mode=mode)
        results[mode] = train_and_evaluate(config, tmp_path / mode, quiet=True)
    compiled, python = results["aot"], results["off"]
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        python.agent_state,
        compiled.agent_state,
    )
    for ours, theirs in zip(python.training, compiled.training, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5, nan_ok=True)
    assert list(python.evaluations) == list(compiled.evaluations)


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--no-compile", "--compile"])
def test_without_programs_python_is_called_at_every_step(flag, tmp_path, monkeypatch, capsys):
    (tmp_path / "talking.py").write_text(TALKING)
    monkeypatch.syspath_prepend(tmp_path)
    argv = [*TINY, "--env", "talking:Talking"]
    assert main([*argv, flag, "--quiet", "--run-folder", str(tmp_path / "run")]) == 0
    steps = capsys.readouterr().out.count("stepped")
    # Compiled, it is called where it is traced alone.
    at_every_step = SIZES["steps_per_env"] + SIZES["eval_max_steps"]
    assert steps >= at_every_step if flag == "--no-compile" else 0 < steps < at_every_step


@pytest.mark.slow
def test_the_mode_is_stored_and_a_run_goes_on_in_it(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main([*TINY, "--run-folder", str(folder), "--no-compile"]) == 0
    said = capsys.readouterr().err
    assert "nothing is compiled" in said
    assert "compile off (--no-compile)" in said
    record = json.loads((folder / "environment.json").read_text())
    compiles = next(each for each in record["settings"] if each["name"] == "compile")
    assert (compiles["value"], compiles["active"]) == ("off", False)
    assert main(["train", "--resume", str(folder)]) == 0
    assert "compile off (config.toml)" in capsys.readouterr().err
    assert 'compile_mode = "off"' in Path(folder / "config.toml").read_text()


@pytest.mark.parametrize("num_devices", [1, 2])
def test_an_update_is_traced_once(num_devices, monkeypatch):
    """Tracing takes most of the time before a training whose programs are kept."""
    traced = []
    collect = PPO.collect

    def noted(self, *args):
        traced.append(self)
        return collect(self, *args)

    monkeypatch.setattr(PPO, "collect", noted)
    config = create_config("cartpole", "ppo", 8, rollout_steps=8, num_devices=num_devices)
    CompiledTraining(config).compile()
    assert len(traced) == 1
