"""The best agent is kept beside the newest, and a new run begins with what either learned."""

import json
import shutil
from typing import Any

import jax
import numpy as np
import pytest

from myriad import create_config, evaluate, load_agent, resume, train_and_evaluate
from myriad.cli import main
from myriad.errors import InvalidArgumentError
from myriad.training.callbacks import Callback, Run
from myriad.training.run_folder import Checkpoints
from tests.bits import assert_same_bits
from tests.learners import DISTINCT, SMALL
from tests.training.small import SEEDS, Ends, First, config_of, fail, small_config, trained

# Fields that are the new run's own.
OWN = {"num_updates", "running_return", "replay", "pending", "priorities"}


@pytest.mark.slow
@pytest.mark.parametrize("agent", DISTINCT)
def test_a_run_begins_with_the_weights_and_moments_of_another(agent, tmp_path):
    run = trained(tmp_path / "run", agent)
    learned = jax.device_get(load_agent(run)[2].state)
    first = First()
    changes = {"num_envs": 8, "seed": 5, "agent.learning_rate": 1e-5}
    if "buffer_size" in SMALL[agent]:
        changes["agent.buffer_size"] = 48
    config = config_of(agent, **changes)
    new = tmp_path / "new"
    train_and_evaluate(config, new, quiet=True, start_from=run, callbacks=[first])
    assert first.steps == 0
    for field, value in vars(first.state).items():
        if field in OWN:
            assert not any(leaf.any() for leaf in jax.tree.leaves(value)), field
        else:
            assert_same_bits(value, getattr(learned, field))
    newest = Checkpoints(run / "checkpoints").latest()
    record = json.loads((new / "environment.json").read_text())
    assert record["start_from"] == {"run_folder": str(run), "update": newest, "best": False}
    shutil.rmtree(run)
    resume(new, quiet=True)  # It has a checkpoint of its own by now.


@pytest.mark.slow
def test_all_seeds_begin_with_the_same(ppo_run, tmp_path):
    learned = load_agent(ppo_run)[2].state
    first = First()
    config = config_of("ppo", seeds=[3, 4, 5])
    train_and_evaluate(config, tmp_path / "new", quiet=True, start_from=ppo_run, callbacks=[first])
    for index in range(3):
        of_seed = jax.tree.map(lambda leaf, index=index: leaf[index], first.state.params)
        assert_same_bits(of_seed, learned.params)
    with pytest.raises(
        InvalidArgumentError, match=r"start_from must be a run of one seed, but got .*new"
    ):
        train_and_evaluate(config_of("ppo"), tmp_path / "x", start_from=tmp_path / "new")


@pytest.mark.slow
def test_a_run_that_ended_before_its_first_checkpoint_begins_the_same_again(ppo_run, tmp_path):
    config = config_of("ppo", seed=7)
    whole = train_and_evaluate(config, tmp_path / "whole", quiet=True, start_from=ppo_run)
    new = tmp_path / "new"
    with pytest.raises(ZeroDivisionError):
        train_and_evaluate(config, new, start_from=ppo_run, callbacks=[Ends(fail, 1)])
    assert Checkpoints(new / "checkpoints").latest() is None
    again = resume(new, quiet=True)
    assert_same_bits(again.agent_state, whole.agent_state)
    (new / "environment.json").write_text("[")
    shutil.rmtree(new / "checkpoints")
    with pytest.raises(InvalidArgumentError, match=r"environment\.json is damaged"):
        resume(new, quiet=True)


@pytest.mark.slow
def test_what_does_not_fit_is_refused_with_both_shapes_and_leaves_no_folder(
    ppo_run, tmp_path, capsys
):
    refused = [
        (config_of("ppo", **{"agent.hidden_sizes": (16,)}), r"hidden_sizes = \[16\], not \[8\]"),
        (
            config_of("ppo", "pendulum"),
            r"agent\.obs_stats\.mean as float32\[4\], but .* needs float32\[3\]",
        ),
        (
            config_of("ppo", **{"agent.normalize_observations": False}),
            r"agent\.obs_stats\.count as float32\[\], but .* needs nothing",
        ),
        (config_of("dqn"), "start_from must have agent = 'dqn'"),
        (create_config("cartpole", "pid", 4, 64), "start_from must be left out for pid"),
    ]
    for config, sentence in refused:
        with pytest.raises(InvalidArgumentError, match=sentence):
            train_and_evaluate(config, tmp_path / "new", start_from=ppo_run)
    run = tmp_path / "run"
    shutil.copytree(ppo_run, run, ignore=shutil.ignore_patterns("checkpoints"))
    command = ["train", "--start-from", str(run), "--run-folder", str(tmp_path / "new")]
    for argv, sentence in (
        (command, "--start-from must hold a checkpoint"),
        (["train", "--resume", str(run), "--start-from", str(run)], "leave out --start-from"),
    ):
        assert main(argv) == 2
        assert sentence in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_shell_starts_from_a_run_with_its_fields_and_changes_some(tmp_path, capsys):
    run = trained(tmp_path / "run", **{"env.gravity": 3.7})
    new = tmp_path / "new"
    changes = ["--total-steps", "1024", "--agent.learning-rate", "1e-5", "--quiet"]
    command = ["train", "--start-from", str(run), *changes, "--run-folder"]
    assert main([*command, str(new)]) == 0
    config = load_agent(new)[0]
    assert (config.steps_per_env, config.agent_options["learning_rate"]) == (256, 1e-5)
    assert config.env_options["gravity"] == 3.7
    # Another task's parameters are its own, even where they have the same names.
    assert main([*command, str(tmp_path / "other"), "--env", "pendulum"]) == 2
    assert "agent.obs_stats.mean as float32[4]" in capsys.readouterr().err


class Agents(Callback):
    """Copies the agents of each evaluation."""

    def __init__(self):
        self.learned = {}

    def on_evaluation(self, run):
        self.learned[run.update] = jax.tree.map(np.array, run.agent_state.params)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [None, SEEDS])
def test_each_seed_keeps_the_agent_of_its_best_evaluation(seeds, tmp_path, capsys):
    run, agents = tmp_path / "run", Agents()
    fields: dict[str, Any] = {"seeds": seeds, "seed": 3, "agent.learning_rate": 0.03}
    config = small_config(**fields)
    train_and_evaluate(config, run, quiet=True, callbacks=[agents, Ends(Run.stop, 3)])
    results = resume(run, quiet=True, callbacks=[agents])
    best_updates = set()
    for place, seed in enumerate(results.seeds):
        rows = [row for row in results.evaluations if row.get("seed", seed) == seed]
        best = max(rows, key=lambda row: row["return"])
        expected = agents.learned[best["update"]]
        if seeds is not None:
            expected = jax.tree.map(lambda leaf, place=place: leaf[place], expected)
        assert_same_bits(load_agent(run, seed, best=True)[2].state.params, expected)
        best_updates.add(best["update"])
    assert min(best_updates) <= 24  # before it was resumed
    assert seeds is None or len(best_updates) > 1
    if seeds is not None:
        return
    kept = load_agent(run, best=True)[2].state
    first = First()
    new = tmp_path / "new"
    train_and_evaluate(config, new, quiet=True, start_from=run, best=True, callbacks=[first])
    assert_same_bits(first.state.params, kept.params)
    assert json.loads((new / "environment.json").read_text())["start_from"]["best"] is True
    capsys.readouterr()
    assert main(["evaluate", str(run), "--best", "--episodes", "8"]) == 0
    returns = np.asarray(evaluate(config, kept, 8), np.float64)
    assert f"return {returns.mean():.4g} " in capsys.readouterr().out
