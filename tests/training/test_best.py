"""The agent of the best evaluation is kept beside the newest, and a resumed run keeps it."""

import json
from typing import Any

import jax
import numpy as np
import pytest

from myriad import evaluate, load_agent, resume, train_and_evaluate
from myriad.agents import AGENTS
from myriad.cli import main
from myriad.training.callbacks import Callback
from tests.bits import assert_same_bits
from tests.training.small import SEEDS, Counting, First, small_config


class Agents(Callback):
    """Copies the agents of each evaluation, and ends the run at the one before the last."""

    def __init__(self):
        self.learned = {}

    def on_evaluation(self, run):
        self.learned[run.update] = jax.tree.map(np.array, run.agent_state.params)
        if run.update == 24:
            run.stop()


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [None, SEEDS])
def test_each_seed_keeps_the_agent_of_its_best_evaluation(seeds, tmp_path, capsys):
    run, agents = tmp_path / "run", Agents()
    fields: dict[str, Any] = {"seeds": seeds, "seed": 3, "agent.learning_rate": 0.03}
    config = small_config(**fields)
    train_and_evaluate(config, run, quiet=True, callbacks=[agents])
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


@pytest.mark.slow
def test_of_equal_evaluations_the_first_is_the_best(tmp_path, monkeypatch):
    monkeypatch.setattr(AGENTS, "_targets", AGENTS._targets | {"counting": Counting})
    # Each greedy episode of this agent lasts until it is cut off.
    config = small_config("counting", steps_per_env=8, eval_frequency=2)
    train_and_evaluate(config, tmp_path / "run", quiet=True)
    updates = [
        load_agent(tmp_path / "run", best=best)[2].state["updates"] for best in (True, False)
    ]
    assert updates == [1, 4]
