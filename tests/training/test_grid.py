"""A grid of hyperparameters times seeds is one program and one run."""

import json

import pytest

from myriad import create_config, load_agent, resume, train_and_evaluate
from myriad.cli import main
from myriad.errors import InvalidArgumentError
from myriad.training.callbacks import Callback
from myriad.training.curves import plot_runs
from tests.bits import assert_same_bits
from tests.training.small import PPO, SEEDS, SIZES, assert_same_run, flags_of, small_config

RATE = "agent.learning_rate"


class Stops(Callback):
    def on_evaluation(self, run):
        if run.update == 16:
            run.stop()


@pytest.mark.slow
def test_a_grid_trains_each_point_with_each_seed_and_goes_on_as_if_uninterrupted(
    many, tmp_path, capsys
):
    default = many.config.agent_options["learning_rate"]
    points = [{RATE: default}, {RATE: 20 * default}]
    grid = {RATE: [point[RATE] for point in points]}
    run = tmp_path / "run"
    command = ["train", "--env", "cartpole", "--agent", "ppo", *flags_of(SIZES | PPO), "--seeds"]
    command += [*map(str, SEEDS), "--grid", f"agent.learning-rate={default},{20 * default}"]
    assert main([*command, "--run-folder", str(run)]) == 0
    printed, said = capsys.readouterr()
    assert printed.split()[:4] == [RATE, "seed", "return", "steps"]
    means = [line for line in printed.splitlines() if "mean return" in line]
    assert [line.partition(", ")[0] for line in means] == [
        f"{RATE} = {each}" for each in grid[RATE]
    ]
    assert f"1,024 steps each; learning rate {grid[RATE]}; seeds {[*SEEDS]}; " in said

    results = resume(run, quiet=True)
    assert results.config.grid == grid
    members = [(point[RATE], seed) for point in points for seed in SEEDS]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [(row[RATE], row["seed"]) for row in rows] == members * 4
    assert results.seeds == SEEDS * 2
    assert [(point, len(returns)) for point, returns in results.returns_by_point()] == [
        (point, len(SEEDS)) for point in points
    ]
    for place, (rate, seed) in enumerate(members):
        config, _, agent = load_agent(run, seed, point={RATE: rate})
        assert (config.agent_options["learning_rate"], config.seed) == (rate, seed)
        assert (config.grid, config.seeds) == (None, None)
        assert_same_bits(agent.state, results.agent_state_of(seed, {RATE: rate}))
        # In its first evaluation, a point is the run of its own hyperparameters and seed.
        own = {name: each for name, each in results.training[place].items() if name != RATE}
        alone = many.training[place % len(SEEDS)]
        assert (own == pytest.approx(alone, rel=0.02, abs=1e-3)) == (rate == default)
    labels = plot_runs([run]).axes[0].get_legend_handles_labels()[1]
    assert labels == [f"ppo, {RATE} = {each} (3 seeds)" for each in grid[RATE]]
    assert main(["evaluate", str(run), "--train-seed", "3", "--best", "--point", f"{RATE}=7"]) == 2
    assert "--point must be one of the run's points" in capsys.readouterr().err

    again = tmp_path / "again"
    train_and_evaluate(small_config(), again, seeds=SEEDS, grid=grid, callbacks=[Stops()])
    assert_same_run(resume(again, quiet=True), results)
    written = (again / "config.toml").read_text()
    (again / "config.toml").write_text(written.replace(f"    {20 * default}", "    0.5"))
    with pytest.raises(InvalidArgumentError, match=r"grid of .* must be as when .* 0\.5\]"):
        resume(again, quiet=True)


@pytest.mark.parametrize(
    ("grid", "says"),
    [
        (
            {"agent.num_minibatches": [2, 4]},
            r"float .*, but got {'agent.num_minibatches': \[2, 4\]",
        ),
        ({"agent.num_epochs": [1, 2]}, r"but got {'agent.num_epochs': \[1, 2\]"),
        ({"agent.target_kl": [0.01]}, r"but got {'agent.target_kl': \[0.01\]"),
        ({"agent.first_log_std": [-1.0]}, r"but got {'agent.first_log_std': \[-1.0\]"),
        ({"env.gravity": [3.7]}, r"but got {'env.gravity': \[3.7\]"),
        ({RATE: [1e-3, -1.0]}, r"learning_rate must be a finite number above 0, but got -1.0"),
        ({RATE: ["fast"]}, "learning_rate must be a finite number above 0, but got 'fast'"),
        ({"agent.max_grad_norm": [0.5, None]}, "max_grad_norm must be .*, but got None"),
        ({RATE: [1e-3, 1e-3]}, r"different values of agent.learning_rate, but got \[0.001, 0.001"),
        ({RATE: 1e-3}, r"different values of agent.learning_rate, but got 0.001"),
        ({RATE: [1, 1e-3], "agent.gamma": [0.5]}, None),
        ([1e-3], "grid must be a table of hyperparameters"),
        ({}, "grid must be a table of hyperparameters"),
    ],
)
def test_only_a_grid_of_floats_is_taken(grid, says):
    if says is None:
        config = create_config("cartpole", "ppo", grid=grid, seed=4)
        assert config.seeds == [4]
        assert type(config).from_toml(config.to_toml()) == config
        return
    with pytest.raises(InvalidArgumentError, match=says):
        create_config("cartpole", "ppo", grid=grid)
