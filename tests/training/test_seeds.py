"""Many seeds, a grid of hyperparameters and any population: each trains as it does alone."""

import itertools
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
from myriad.engine.random import make_key
from myriad.errors import DivergedError, InvalidArgumentError
from myriad.training.callbacks import Run
from myriad.training.compiled import CompiledTraining
from myriad.training.config import TrainingConfig
from myriad.training.curves import plot_runs
from myriad.training.population import Population
from tests.bits import assert_close, assert_same_bits
from tests.compilations import count_compilations
from tests.training.small import PPO, SEEDS, SIZES, Ends, assert_same_run, flags_of, small_config

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
    reached_and_final = zip(results.reached_target, results.final_returns, strict=True)
    for seed, (reached, final) in zip(SEEDS, reached_and_final, strict=True):
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
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [[line[0], line[2]] for line in lines[1:3]] == [["-1", "1,024"], ["0", "1,024"]]
    assert "mean return" in " ".join(lines[3])
    assert TrainingConfig.from_toml((folder / "config.toml").read_text()).seeds == [-1, 0]
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
    room = most_bytes(population.stated_bytes() * 10 // 16)
    monkeypatch.setattr(memory, "host_memory", lambda: (room, room))
    says = r"16 seeds need .* at most about 9 seeds fit"
    with pytest.raises(InvalidArgumentError, match=says):
        train(config, tmp_path / "run", seeds=range(16))
    assert not (tmp_path / "run").exists()


RATE = "agent.learning_rate"


@pytest.mark.slow
def test_a_grid_trains_each_point_with_each_seed_and_goes_on_as_if_uninterrupted(
    many, tmp_path, capsys
):
    default = many.config.agent_options["learning_rate"]
    points = [{RATE: default}, {RATE: 20 * default}]
    grid = {RATE: [point[RATE] for point in points]}
    run = tmp_path / "run"
    command = [*TINY, "--seeds", *map(str, SEEDS)]
    command += ["--grid", f"agent.learning-rate={default},{20 * default}"]
    assert main([*command, "--run-folder", str(run)]) == 0
    means = [line for line in capsys.readouterr().out.splitlines() if "mean return" in line]
    named = [line.partition(", ")[0] for line in means]
    assert named == [f"{RATE} = {each}" for each in grid[RATE]]
    results = resume(run, quiet=True)
    assert results.config.grid == grid
    members = [(point[RATE], seed) for point in points for seed in SEEDS]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [(row[RATE], row["seed"]) for row in rows] == members * 4
    assert results.seeds == SEEDS * 2
    found = [(point, len(returns)) for point, returns in results.returns_by_point()]
    assert found == [(point, len(SEEDS)) for point in points]
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
    train(small_config(), again, seeds=SEEDS, grid=grid, callbacks=[Ends(Run.stop, 2)])
    assert_same_run(resume(again, quiet=True), results)
    written = (again / "config.toml").read_text()
    (again / "config.toml").write_text(written.replace(f"    {20 * default}", "    0.5"))
    with pytest.raises(InvalidArgumentError, match=r"grid of .* must be as when .* 0\.5\]"):
        resume(again, quiet=True)


# Two trainings that differ in all that is derived from a hyperparameter before the device sees it.
_OPTIONS = {
    "num_epochs": [3, 2],
    "learning_rate": [1e-3, 2e-4],
    "clip_epsilon": [0.13, "linear(0.27, 0)"],
    "gamma": [0.97, 0.993],
    "gae_lambda": [0.91, 0.973],
    "entropy_coef": [0.003, 0.03],
    "value_coef": [0.37, 0.61],
    "max_grad_norm": [0.31, float("inf")],
}


def _config(**options):
    return small_config(**{f"agent.{name}": value for name, value in options.items()})


def _alone(config, seed, chunks):
    training = CompiledTraining(config)
    training.compile()
    state = training.first_state([seed])
    report = None
    for i, num_updates in enumerate(chunks):
        state, report = training.programs["run"](state, np.int32(num_updates), np.bool_(i == 0))
    return state.agent.params, report


@pytest.mark.slow
@pytest.mark.parametrize(("mapping", "num_devices"), [("map", 2), ("vmap", 1)])
def test_members_learn_what_the_training_alone_does_beside_idle_and_refilled_ones(
    mapping, num_devices
):
    population = Population(_config(), 3, list(_OPTIONS), mapping=mapping, num_devices=num_devices)
    population.compile()
    with count_compilations() as compilations:
        first = {name: [a, b, a] for name, (a, b) in _OPTIONS.items()}
        state = population.first_state([5, -7, 2**40 + 1], first)
        state, _ = population.run(state, [2, 5, 1], [True, True, True])
        state = population.refill(state, [2], [11], {n: [b] for n, (_, b) in _OPTIONS.items()})
        state, report = population.run(state, [3, 0, 4], [False, False, True])
        returns, _ = population.evaluate(state, [True, False, True])
    assert not compilations
    assert population.updates_done(state).tolist() == [5, 5, 4]
    for slot, seed, index, chunks in ((0, 5, 0, (2, 3)), (2, 11, 1, (4,))):
        options = {name: values[index] for name, values in _OPTIONS.items()}
        params, last = _alone(_config(**options), seed, chunks)
        found = population.member(state, slot).agent.params
        assert_close(found, params, rtol=1e-3, atol=1e-4)
        found = report.metric_sums["loss"][slot]
        np.testing.assert_allclose(found, last.metric_sums["loss"], rtol=1e-3)
    assert not returns[1].any()


@pytest.mark.slow
def test_held_out_keys_give_each_policy_the_same_episodes():
    population = Population(_config(), 2, num_devices=1)
    population.compile()
    state = population.first_state([3, 3])
    state, _ = population.run(state, [1, 2], [True, True])
    own, _ = population.evaluate(state)
    state = population.refill(state, [0, 1], [3, 3])
    key = make_key(9)
    returns, _ = population.evaluate(state, keys=key)
    again, _ = population.evaluate(state, [False, True], keys=key)
    np.testing.assert_array_equal(returns[0], returns[1])
    np.testing.assert_array_equal(returns[1], again[1])
    assert own.shape == returns.shape == (2, 4)
    population.run(state, [1, 0], [True, True])
    for use in (
        lambda: population.run(state, [1, 0], [True, True]),
        lambda: population.refill(state, [0], [3]),
        lambda: population.evaluate(state),
        lambda: population.member(state, 0),
    ):
        with pytest.raises(InvalidArgumentError, match="state was used after it was passed to"):
            use()


def _of_two(*names):
    return Population(_config(), 2, list(names))


def _with_gamma(**options):
    return _of_two("gamma").first_state([1, 2], options)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: _of_two("num_minibatches"), "num_minibatches of ppo can't differ by slot"),
        (lambda: _of_two("lerning_rate"), "lerning_rate.*learning_rate"),
        (lambda: Population(_config(), 0), "num_slots must be an integer from 1"),
        (lambda: _of_two().first_state([1]), "seeds must be one for each of 2 slots"),
        (_with_gamma, "options must give values of gamma, but got {}"),
        (lambda: _with_gamma(gamma=[0.5, -1]), "gamma must be a number from 0 to 1"),
        (lambda: _with_gamma(gamma=[0.5]), "gamma must have 2 values"),
        *[
            (lambda slots=slots: _of_two().refill((), slots, [1, 2]), "slots must be ")
            for slots in ([0, 0], [0.7], [2], 0)
        ],
        (lambda: _of_two().run((), [2**40, 0], [True, True]), "num_updates must be "),
        (lambda: _of_two().evaluate((), keys=3), "keys must be one or 2, .*, but got 3"),
    ],
    ids=itertools.count(),
)
def test_what_can_not_be_is_refused_in_a_sentence(call, says):
    with pytest.raises(InvalidArgumentError, match=says):
        call()
