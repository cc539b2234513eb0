"""Many seeds train in one program and one run, and each of them as it does alone."""

import json
import re

import numpy as np
import pytest
from scipy import stats

from myriad import evaluate, load_agent, resume
from myriad import train_and_evaluate as train
from myriad.cli import main
from myriad.engine import memory
from myriad.engine.memory import most_bytes
from myriad.errors import DivergedError, InvalidArgumentError
from myriad.training.config import TrainingConfig
from myriad.training.population import Population
from tests.bits import assert_same_bits
from tests.training.small import PPO, SEEDS, SIZES, flags_of, small_config

TINY = ["train", "--env", "cartpole", "--agent", "ppo", *flags_of(SIZES | PPO)]


def rows_of_seed(history, seed):
    return [
        {name: value for name, value in row.items() if name != "seed"}
        for row in history
        if row["seed"] == seed
    ]


@pytest.mark.slow
def test_each_seed_has_its_rows_and_its_agent_which_are_those_of_the_training_alone(many, tmp_path):
    assert many.seeds == SEEDS
    assert many.config.mapping == "map"
    lines = (many.run_folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [*SEEDS] * 4
    for seed in SEEDS:
        _, _, loaded = load_agent(many.run_folder, seed=seed)
        assert_same_bits(loaded.state, many.agent_state_of(seed))
    with pytest.raises(InvalidArgumentError, match=r"such as results.agent_state_of\(seed\)"):
        evaluate(many.config, many.agent_state)
    assert many.mean_return == pytest.approx(np.mean(many.final_returns))
    interval = stats.t.interval(0.95, 2, many.mean_return, stats.sem(many.final_returns))
    assert many.return_interval == pytest.approx(interval)
    alone = train(small_config(steps_per_env=64, seed=2**40), tmp_path / "alone", quiet=True)
    assert np.isnan(alone.return_interval).all()
    first = rows_of_seed(many.training, 2**40)[0]
    assert first == pytest.approx(alone.training[0], rel=0.02, abs=1e-3)


@pytest.mark.slow
def test_a_seed_that_reaches_the_target_stops_and_the_others_go_on(many, tmp_path):
    # The best return before the end is a target that some seed reaches early.
    early = [row for row in many.evaluations if row["update"] < 32]
    best = max(early, key=lambda row: row["return"])
    target = small_config(target_return=best["return"])
    results = train(target, tmp_path / "run", seeds=SEEDS, quiet=True)
    assert results.reached_target[SEEDS.index(best["seed"])]
    ended = []
    for seed, reached, final in zip(
        SEEDS, results.reached_target, results.final_returns, strict=True
    ):
        rows = rows_of_seed(results.evaluations, seed)
        assert rows == rows_of_seed(many.evaluations, seed)[: len(rows)]
        assert final == rows[-1]["return"]
        assert reached == (final >= best["return"])
        ended.append(rows[-1]["update"])
    assert min(ended) < max(ended)
    assert_same_bits(resume(tmp_path / "run", quiet=True).agent_state, results.agent_state)
    with pytest.raises(InvalidArgumentError, match=r"one of the run's seeds \[3, .*, but got 5"):
        load_agent(tmp_path / "run", seed=5)


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "whose"), [(None, ""), ([7, 8], " of seed 7")])
def test_a_nan_stops_the_run_and_says_where(seeds, whose, tmp_path):
    config = small_config(**{"agent.learning_rate": 1e30, "agent.max_grad_norm": 1e30})
    says = rf"NaN or infinity in .* by update \d+{whose}; no checkpoint was saved"
    with pytest.raises(DivergedError, match=says):
        train(config, tmp_path / "run", seeds=seeds)


@pytest.mark.slow
def test_the_command_prints_a_row_for_each_seed_and_their_mean(tmp_path, capsys):
    folder = tmp_path / "run"
    command = [*TINY, "--num-seeds", "2", "--seed", "-1", "--mapping", "vmap"]
    command += ["--run-folder", str(folder)]
    assert main(command) == 0
    out, said = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split() == ["seed", "return", "steps"]
    assert [line.split()[0] for line in lines[1:3]] == ["-1", "0"]
    assert [line.split()[2] for line in lines[1:3]] == ["1,024", "1,024"]
    mean = r"mean return [\d.]+, 95% interval -?[\d.]+ to [\d.]+ over 2 seeds"
    assert re.fullmatch(mean, lines[3])
    assert "2 seeds of 4 environments, side by side on 2 CPU devices: ready in" in said
    recorded = TrainingConfig.from_toml((folder / "config.toml").read_text())
    assert recorded.seeds == [-1, 0]
    assert main(["evaluate", str(folder), "--episodes", "2", "--train-seed", "0"]) == 0
    config, _, agent = load_agent(folder, seed=0)
    assert (config.seeds, config.seed) == (None, 0)
    mean = float(np.mean(np.asarray(evaluate(config, agent.state, 2), np.float64)))
    assert f"return {mean:.4g} " in capsys.readouterr().out
    assert main(["evaluate", str(folder)]) == 2
    assert re.match(r"--train-seed must .*\[-1, 0\]", capsys.readouterr().err)


@pytest.mark.slow
def test_seeds_that_do_not_fit_are_refused_with_a_number_that_does(tmp_path, monkeypatch):
    config = small_config(num_envs=1024)
    population = Population(config, 16)
    population.compile()
    room = most_bytes(population.stated_bytes(saves=True) * 10 // 16)
    monkeypatch.setattr(memory, "host_memory", lambda: (room, room))
    says = r"16 seeds need .* at most about 9 seeds fit"
    with pytest.raises(InvalidArgumentError, match=says):
        train(config, tmp_path / "run", seeds=range(16))
    assert not (tmp_path / "run").exists()
