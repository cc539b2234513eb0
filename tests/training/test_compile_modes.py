"""When programs compile, and what a training without any program is good for."""

import jax.numpy as jnp
import pytest

from myriad import create_config, load_agent
from myriad.agents.ppo import PPO
from myriad.cli import main
from myriad.training.compiled import CompiledTraining
from myriad.training.run_folder import rows_of
from myriad.xla import count_compilations
from tests.bits import assert_close
from tests.child_processes import python
from tests.training.small import flags_of

# A training of 8 steps that evaluates once. Without programs, each operation of each step of an
# optimiser is a call: few steps say as much.
SIZES = {"num_envs": 2, "steps_per_env": 8, "eval_frequency": 8, "eval_rollouts": 2}
SIZES |= {"eval_max_steps": 4, "rollout_steps": 4, "agent.num_epochs": 1}
SIZES |= {"agent.num_minibatches": 2, "agent.hidden_sizes": (8,)}
TINY = ["train", "--env", "cartpole", "--agent", "ppo", *flags_of(SIZES)]


@pytest.mark.slow
def test_programs_are_kept_for_the_next_training_of_any_seed_and_gravity(tmp_path):
    programs = tmp_path / "programs"

    def kept_after(*argv):
        command = ["-m", "myriad.cli", *TINY, "--quiet", *argv]
        python(*command, cwd=tmp_path, MYRIAD_COMPILATION_CACHE=str(programs))
        return {path.name for path in programs.glob("*-cache")}

    kept = kept_after()
    ours = ("jit_run", "jit_init", "jit__evaluate")
    assert sum(name.startswith(ours) for name in kept) == 3
    assert kept_after("--seed", "1", "--env.gravity", "12") == kept


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "later", "num_devices"), [("aot", 0, 2), ("cached", 3, 1)])
def test_only_the_default_compiles_before_the_first_step_and_either_traces_an_update_once(
    mode, later, num_devices, monkeypatch
):
    traced = []
    collect = PPO.collect

    def noted(self, *args):
        traced.append(self)
        return collect(self, *args)

    monkeypatch.setattr(PPO, "collect", noted)
    fields = SIZES | {"num_devices": num_devices, "compile_mode": mode}
    training = CompiledTraining(create_config("cartpole", "ppo", **fields))
    ours = ("jit(init)", "jit(run)", "jit(_evaluate)")
    with count_compilations() as first:
        training.compile()
    assert sum(name in ours for name in first.names) == 3 - later
    with count_compilations() as then:
        state = training.first_state()
        state, _ = training.programs["run"](state, jnp.int32(1), jnp.ones((), bool))
        own = training.loop.of_first_device(state)
        training.programs["evaluate"](*training.evaluation_args(own))
    assert sum(name in ours for name in then.names) == later
    assert len(traced) == 1


@pytest.mark.slow
def test_without_programs_a_training_agrees_within_rounding_and_so_it_goes_on(tmp_path, capsys):
    runs = []
    for flag in ("--compile", "--compile-mode=off"):
        folder = tmp_path / flag
        with count_compilations() as compilations:
            assert main([*TINY, flag, "--run-folder", str(folder)]) == 0
        assert ("jit(run)" in compilations.names) == (flag == "--compile")
        rows = rows_of((folder / "metrics.jsonl").read_text())
        runs.append((load_agent(folder)[2].state, rows))
    said = capsys.readouterr().err
    assert "nothing is compiled" in said
    assert "compile off (--compile-mode)" in said
    # More updates would let rounding change an action, and then the course.
    (compiled, expected), (uncompiled, found) = runs
    assert_close(uncompiled, compiled, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5, nan_ok=True)
    assert main(["train", "--resume", str(folder)]) == 0
    assert "compile off (config.toml)" in capsys.readouterr().err
    assert 'compile_mode = "off"' in (folder / "config.toml").read_text()
