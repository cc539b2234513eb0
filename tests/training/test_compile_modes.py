"""When programs compile, and what a training without any program is good for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import create_config, train_and_evaluate
from myriad.cli import main
from myriad.training.programs import CompiledTraining
from myriad.xla import count_compilations, numbers_of

# A training of 8 steps that evaluates once.
SIZES = {
    "num_envs": 2,
    "steps_per_env": 8,
    "eval_frequency": 8,
    "eval_rollouts": 2,
    "eval_max_steps": 4,
}
TINY = [word for name, size in SIZES.items() for word in (f"--{name.replace('_', '-')}", str(size))]
# Without programs, each operation of each step of an optimiser is a call: few steps say as much.
FEW = {"rollout_steps": 4, "agent.num_epochs": 2, "agent.num_minibatches": 2}
PPO = ["--agent", "ppo", "--rollout-steps", "4"]
PPO += ["--agent.num-epochs", "2", "--agent.num-minibatches", "2"]
TALKING = """
from myriad.envs.cartpole import CartPole

class Talking(CartPole):
    def step(self, key, state, action, params):
        print("stepped", flush=True)
        return super().step(key, state, action, params)
"""


@pytest.fixture
def train(tmp_path):
    """Train in a process of its own, which keeps its programs in a new folder; return its words."""
    environ = os.environ | {"MYRIAD_COMPILATION_CACHE": str(tmp_path / "programs")}

    def run(*argv):
        command = [sys.executable, "-m", "myriad.cli", "train", "--env", "cartpole", *TINY, *argv]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environ
        )
        return done.stderr

    return run


@pytest.mark.parametrize(
    ("mode", "keeps"), [("jit", False), ("cached", True), ("aot", True), ("off", False)]
)
@pytest.mark.slow
def test_a_mode_keeps_its_programs_or_not(mode, keeps, train, tmp_path):
    said = train(*PPO, "--compile-mode", mode)
    assert f"compile {mode}" in said
    kept = [path.name for path in (tmp_path / "programs").glob("*") if "-cache" in path.name]
    assert bool(kept) == keeps
    if keeps:
        assert (
            sum(name.startswith(("jit_run", "jit_init_from", "jit__evaluate")) for name in kept)
            == 3
        )


@pytest.mark.slow
def test_a_second_training_loads_what_the_mode_cached_has_kept(train, tmp_path):
    train("--agent", "ppo", "--compile-mode", "cached")
    before = {path.name for path in (tmp_path / "programs").glob("*-cache")}
    train("--agent", "ppo", "--compile-mode", "cached", "--seed", "1")
    assert {path.name for path in (tmp_path / "programs").glob("*-cache")} == before


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "later"), [("aot", 0), ("cached", 3), ("jit", 3)])
def test_only_the_default_compiles_its_programs_before_the_first_step(mode, later):
    resolved = create_config("cartpole", "ppo", **SIZES, compile_mode=mode).resolve()
    training = CompiledTraining(resolved)
    ours = ("jit(init_from)", "jit(run)", "jit(_evaluate)")
    with count_compilations() as first:
        training.compile()
    assert sum(name in ours for name in first.names) == 3 - later
    with count_compilations() as then:
        state = training.first_state()
        state, _ = training.run(state, jnp.int32(1), jnp.ones((), bool))
        training.evaluate(state.agent, state.key, state.num_updates)
    assert sum(name in ours for name in then.names) == later


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["ppo", "pqn", "dqn"])
def test_a_training_without_programs_agrees_within_rounding(agent, tmp_path):
    # More updates would let rounding change an action, and then the course.
    few = {"ppo": FEW, "pqn": FEW, "dqn": {"batch_size": 4}}
    results = {}
    for mode in ("aot", "off"):
        config = create_config("cartpole", agent, **SIZES, **few[agent], compile_mode=mode)
        results[mode] = train_and_evaluate(config, tmp_path / mode, quiet=True)
    compiled, python = results["aot"], results["off"]
    agents = [map(as_numbers, jax.tree.leaves(each.agent_state)) for each in (python, compiled)]
    for ours, theirs in zip(*agents, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(python.training, compiled.training, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            assert value == pytest.approx(theirs[name], rel=1e-4, abs=1e-5, nan_ok=True), name
    assert list(python.evaluations) == list(compiled.evaluations)


def as_numbers(leaf):
    return np.asarray(numbers_of(leaf))


@pytest.mark.parametrize(
    "flag", [pytest.param("--no-compile", marks=pytest.mark.slow), "--compile"]
)
def test_without_programs_python_is_called_at_every_step(flag, tmp_path, monkeypatch, capsys):
    (tmp_path / "talking.py").write_text(TALKING)
    monkeypatch.syspath_prepend(tmp_path)
    argv = ["train", "--env", "talking:Talking", *PPO, *TINY]
    assert main([*argv, flag, "--quiet", "--run-folder", str(tmp_path / "run")]) == 0
    steps = capsys.readouterr().out.count("stepped")
    # Compiled, it is called where it is traced alone.
    at_every_step = SIZES["steps_per_env"] + SIZES["eval_max_steps"]
    assert steps >= at_every_step if flag == "--no-compile" else 0 < steps < at_every_step


@pytest.mark.slow
def test_a_breakpoint_in_a_step_stops_there(tmp_path):
    (tmp_path / "talking.py").write_text(
        TALKING.replace('print("stepped", flush=True)', "breakpoint()")
    )
    argv = ["--env", "talking:Talking", *PPO, *TINY]
    command = [sys.executable, "-m", "myriad.cli", "train", *argv, "--no-compile", "--quiet"]
    done = subprocess.run(
        command,
        input="p type(self).__name__\nc\nc\nq\n",
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.stdout.count("return super().step") == 3
    assert "'Talking'" in done.stdout


@pytest.mark.slow
def test_the_mode_is_stored_and_a_run_goes_on_in_it(tmp_path, capsys):
    folder = tmp_path / "run"
    argv = ["train", "--env", "cartpole", *PPO, *TINY, "--run-folder", str(folder)]
    assert main([*argv, "--no-compile"]) == 0
    said = capsys.readouterr().err
    assert "nothing is compiled" in said
    assert "compile off (--no-compile)" in said
    record = json.loads((folder / "environment.json").read_text())
    compiles = next(each for each in record["settings"] if each["name"] == "compile")
    assert (compiles["value"], compiles["active"]) == ("off", False)
    assert main(["train", "--resume", str(folder)]) == 0
    assert "compile off (config.toml)" in capsys.readouterr().err
    assert 'compile_mode = "off"' in Path(folder / "config.toml").read_text()
