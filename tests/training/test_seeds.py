"""Each of many seeds ends as it does alone, whatever happens to the run or to the others."""

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from myriad import create_config, evaluate, hardware, load_agent, make_train, resume
from myriad import train_and_evaluate as train
from myriad.cli import main
from myriad.errors import DivergedError, InvalidArgumentError
from myriad.training.config import TrainingConfig
from myriad.training.logging.run_folder import RunFolder
from myriad.training.population import Population
from myriad.training.population.memory import seed_needs
from myriad.training.results import SeedResults
from myriad.xla import count_compilations, most_bytes

ROOT = Path(__file__).parents[2]
SEEDS = (3, -5, 2**40)
SMALL = {"num_envs": 4, "steps_per_env": 256, "eval_frequency": 64, "eval_rollouts": 4}
SMALL |= {"env.max_steps": 50, "agent.hidden_sizes": (8,)}
SHAPE = {
    "ppo": {"rollout_steps": 8, "agent.num_minibatches": 2, "agent.num_epochs": 2},
    "dqn": {"buffer_size": 512},
}
COMMAND = ["train", "--env", "cartpole", "--agent", "ppo", "--num-envs", "4"]
COMMAND += ["--rollout-steps", "8", "--agent.num-minibatches", "2", "--agent.num-epochs", "1"]
COMMAND += ["--eval-rollouts", "2", "--agent.hidden-sizes", "[8]"]
LONG = [*COMMAND, "--steps-per-env", "160_000", "--eval-frequency", "8_000"]
LONG += ["--checkpoint-every-s", "0", "--scan-chunk-size", "800", "--num-seeds", "3"]
TWO_DEVICES = {"JAX_NUM_CPU_DEVICES": "2"}
TINY = [*COMMAND, "--steps-per-env", "256", "--eval-frequency", "64", "--env.max-steps", "50"]


def small_config(agent="ppo", **fields):
    return create_config("cartpole", agent, **(SMALL | SHAPE[agent] | fields))


def assert_same_bits(left, right):
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(left), jax.device_get(right))


def rows_of_seed(history, seed):
    return [
        {name: value for name, value in row.items() if name != "seed"}
        for row in history
        if row["seed"] == seed
    ]


def assert_as_alone(results, seed, alone):
    assert_same_bits(results.agent_state_of(seed), alone.agent_state)
    assert rows_of_seed(results.evaluations, seed) == list(alone.evaluations)
    assert rows_of_seed(results.training, seed) == list(alone.training)


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["ppo", "dqn"])
def test_each_seed_ends_in_the_bits_of_the_same_training_alone(agent, tmp_path):
    config = small_config(agent)
    results = train(config, tmp_path / "many", seeds=SEEDS)
    assert results.seeds == SEEDS
    assert results.config.mapping == "map"
    for seed in SEEDS:
        alone = train(config.of_seed(seed), tmp_path / str(seed), quiet=True)
        assert_as_alone(results, seed, alone)
        _, _, loaded = load_agent(tmp_path / "many", seed=seed)
        assert_same_bits(loaded.state, alone.agent_state)
    lines = (tmp_path / "many" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [*SEEDS] * 4
    with pytest.raises(InvalidArgumentError, match=r"such as agent_state_of\(seed\) of its"):
        evaluate(config, results.agent_state)


@pytest.mark.slow
def test_nothing_compiles_once_the_seeds_train(tmp_path):
    train(small_config(), tmp_path / "warm", seeds=SEEDS)
    with count_compilations() as compilations:
        train(small_config(scan_chunk_size=24), tmp_path / "run", seeds=SEEDS)
    # The first state, its reset, the updates and the evaluation, for each of two devices.
    assert len(compilations.names) == 8


@pytest.mark.slow
def test_a_seed_that_reaches_the_target_stops_and_the_others_go_on(tmp_path):
    config = small_config(checkpoint_every_s=0.0)
    free = train(config, tmp_path / "free", seeds=SEEDS)
    # The best return before the end is a target that some seed reaches early.
    early = [row for row in free.evaluations if row["update"] < 32]
    best = max(early, key=lambda row: row["return"])
    target = small_config(target_return=best["return"])
    results = train(target, tmp_path / "run", seeds=SEEDS)
    assert results.reached_target[SEEDS.index(best["seed"])]
    for slot, seed in enumerate(SEEDS):
        alone = train(target.of_seed(seed), tmp_path / str(seed))
        assert_as_alone(results, seed, alone)
        assert results.reached_target[slot] == (alone.stopped == "target")
        assert results.final_returns[slot] == alone.evaluations[-1]["return"]
    ended = [rows_of_seed(results.evaluations, seed)[-1]["update"] for seed in SEEDS]
    assert min(ended) < max(ended)
    assert_as_alone(resume(tmp_path / "run"), SEEDS[0], train(target.of_seed(3), tmp_path / "a"))


@contextlib.contextmanager
def running(command, **env) -> Iterator[subprocess.Popen]:
    with subprocess.Popen(
        [sys.executable, "-m", "myriad.cli", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | env,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupted, in a process of its own as those that it is compared with."""
    folder = tmp_path_factory.mktemp("seeds") / "whole"
    with running([*LONG, "--quiet", "--run-folder", str(folder)], **TWO_DEVICES) as process:
        said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said
    return folder


def stop_early(folder, number):
    """Start the same run, send it a signal once it has saved something, and return what it says."""
    with running([*LONG, "--run-folder", str(folder.path)], **TWO_DEVICES) as process:
        while not any(folder.checkpoints.glob("*/checksums.json")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        said = process.communicate(timeout=120)[1]
    assert process.returncode == (130 if number == signal.SIGINT else -9)
    return said


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_resumes_to_the_bits_of_one_that_was_not(number, whole, tmp_path):
    folder = RunFolder(tmp_path / "run")
    said = stop_early(folder, number)
    assert folder.metrics.read_bytes() != (whole / "metrics.jsonl").read_bytes()
    if number == signal.SIGINT:
        assert re.search(r"stopped after [\d,]+ of 1,920,000 steps, which are saved; ", said)
        assert f"`myriad train --resume {folder.path}` goes on" in said
    with running(["train", "--resume", str(folder.path)], **TWO_DEVICES) as process:
        out, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "mean return" in out
    assert "continue on" not in said
    assert folder.metrics.read_bytes() == (whole / "metrics.jsonl").read_bytes()
    for seed in range(3):
        _, _, resumed = load_agent(folder.path, seed=seed)
        assert_same_bits(resumed.state, load_agent(whole, seed=seed)[2].state)


@pytest.mark.slow
def test_a_run_resumed_on_another_number_of_devices_says_so_and_goes_on(tmp_path):
    folder = RunFolder(tmp_path / "run")
    stop_early(folder, signal.SIGINT)
    before = folder.metrics.read_text()
    with running(["train", "--resume", str(folder.path)], JAX_NUM_CPU_DEVICES="1") as process:
        out, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "this run trained on 2 CPU devices and continues on 1 CPU device:" in said
    assert out.count("640,000") == 3
    assert folder.metrics.read_text().startswith(before)


@pytest.mark.slow
@pytest.mark.parametrize("changed", [(-5, 3, 2**40), (3, -5, 7)])
def test_a_run_whose_seeds_were_edited_is_refused(changed, tmp_path):
    train(small_config(), tmp_path / "run", seeds=SEEDS)
    toml = tmp_path / "run" / "config.toml"
    unsealed = toml.read_text().partition("\n")[2]  # the first line is a checksum
    toml.write_text(re.sub(r"(?ms)^seeds = \[.*?\]", f"seeds = {[*changed]}", unsealed))
    for use in (resume, lambda run: load_agent(run, seed=changed[0])):
        with pytest.raises(InvalidArgumentError, match="holds trainings of other seeds than seeds"):
            use(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["ppo", "dqn"])
def test_seeds_side_by_side_in_a_device_keep_their_mapping_when_resumed(agent, tmp_path):
    config = small_config(agent, mapping="vmap")
    results = train(config, tmp_path / "run", seeds=SEEDS)
    again = resume(tmp_path / "run")
    assert isinstance(again, SeedResults)
    assert again.config.mapping == "vmap"
    assert again.final_returns == results.final_returns
    assert_same_bits(again.agent_state, results.agent_state)


@pytest.mark.slow
def test_a_nan_stops_the_run_and_names_the_seed(tmp_path):
    config = small_config(**{"agent.learning_rate": 1e30, "agent.max_grad_norm": 1e30})
    with pytest.raises(DivergedError, match=r"by update \d+ of seed 7; no checkpoint was saved"):
        train(config, tmp_path / "run", seeds=[7, 8])


@pytest.mark.slow
def test_the_command_prints_a_row_for_each_seed_and_their_mean(tmp_path, capsys):
    folder = tmp_path / "run"
    command = [*TINY, "--num-seeds", "2", "--seed", "-1", "--run-folder", str(folder)]
    assert main(command) == 0
    out, said = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split() == ["seed", "return", "steps"]
    assert [line.split()[0] for line in lines[1:3]] == ["-1", "0"]
    assert [line.split()[2] for line in lines[1:3]] == ["1,024", "1,024"]
    mean = r"mean return [\d.]+, 95% interval -?[\d.]+ to [\d.]+ over 2 seeds"
    assert re.fullmatch(mean, lines[3])
    assert "2 seeds of 4 environments, one after another on 2 CPU devices: ready in" in said
    recorded = TrainingConfig.from_toml((folder / "config.toml").read_text())
    assert recorded.seeds == [-1, 0]
    assert recorded.mapping == "map"
    assert main(["evaluate", str(folder), "--episodes", "2", "--train-seed", "0"]) == 0
    config, _, agent = load_agent(folder, seed=0)
    assert config.seeds is None
    assert config.seed == 0
    mean = float(np.mean(np.asarray(evaluate(config, agent.state, 2), np.float64)))
    assert f"return {mean:.2f} " in capsys.readouterr().out
    for argv in (["evaluate", str(folder)], ["evaluate", str(folder), "--train-seed", "5"]):
        assert main(argv) == 2
        assert re.match(r"--train-seed must .*\[-1, 0\]", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--num-seeds", "2", "--film-every", "1"], "--film-every must be 0 with many seeds"),
        (["--num-seeds", "2", "--log-to", "tensorboard"], "--log-to must be [] with many seeds"),
        (["--num-seeds", "2", "--profile", "1"], "--profile must be 0 with many seeds"),
        (["--num-seeds", "2", "--compile-mode", "jit"], "--compile-mode must be 'aot' with many"),
        (["--num-seeds", "0"], "--num-seeds must be an integer from 1 to 100,000, but got 0."),
        (["--num-seeds", "2", "--seed", "9223372036854775807"], "seeds must be a list of 1 to"),
        (["--num-seeds", "2", "--seeds", "1"], "--num-seeds and --seeds say the same, so only"),
        (["--seeds", "1", "2", "1"], "--seeds must be different, but 1 is among them 2 times."),
        (["--seeds", "1", "2", "--seed", "3"], "--seed must be among the seeds, if both are given"),
        (["--seeds"], "--seeds must be a list of 1 to 100,000 items"),
        (["--mapping", "vmap"], "--mapping must be left out without seeds, since it is for seeds"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_go_with_seeds_is_refused_and_writes_nothing(argv, sentence, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main([*TINY, *argv, "--run-folder", str(folder)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(sentence), said
    assert said.count("\n") == 1
    assert not folder.exists()


def test_a_buffer_in_the_hosts_memory_is_for_one_training(tmp_path):
    config = small_config("dqn", **{"agent.replay_memory": "host"})
    with pytest.raises(InvalidArgumentError, match=r"^agent\.replay_memory must be 'device'"):
        train(config, tmp_path / "run", seeds=SEEDS)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("agent", ["pid", "random"])
def test_an_agent_that_learns_nothing_has_no_seeds_to_train(agent, tmp_path, capsys):
    folder = tmp_path / "run"
    command = ["train", "--env", "cartpole", "--agent", agent, "--num-seeds", "2"]
    assert main([*command, "--run-folder", str(folder)]) == 2
    said = f"seeds must be left out for {agent}, which learns nothing, but got [0, 1].\n"
    assert capsys.readouterr().err == said
    assert not folder.exists()


def test_seeds_in_python_are_held_to_their_range(tmp_path):
    config = small_config()
    for seeds in ([], range(0), [1.5], "12", range(10**12), [True]):
        with pytest.raises(InvalidArgumentError, match=r"seeds must be a list of 1 to 100,000"):
            train(config, tmp_path / "run", seeds=seeds)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgumentError, match="seed must be among the seeds"):
        train(small_config(seed=9), tmp_path / "run", seeds=range(2))
    with pytest.raises(InvalidArgumentError, match="make_train gets its seed as a key"):
        make_train(small_config(seeds=range(2)))
    assert not (tmp_path / "run").exists()


def test_a_run_of_one_seed_has_no_other(tmp_path):
    config = small_config().of_seed(4).resolve().config
    folder = RunFolder.create(tmp_path / "run", config.to_toml(), {})
    with pytest.raises(InvalidArgumentError, match=r"one of the run's seeds \[4\], but got 5"):
        load_agent(folder.path, seed=5)


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["ppo", "dqn"])
def test_seeds_that_do_not_fit_are_refused_with_a_number_that_does(agent, tmp_path, monkeypatch):
    shape = {"num_envs": 1024} if agent == "ppo" else {"buffer_size": 200_000}
    config = small_config(agent, **shape)

    population = Population(config.resolve(), 16)
    population.compile()
    needs = seed_needs(population, saves=True, resumes=False)
    room = most_bytes(needs.bytes(10, 2))
    monkeypatch.setattr(hardware, "host_memory", lambda: (room, room))
    # What the compiler takes is not the question here.
    monkeypatch.setattr("myriad.training.population.memory.programs_at_a_time", lambda *_: 1)
    sentence = r"16 seeds of num_envs = [\d,]+ and eval_rollouts = 4 need [\d,]+ MiB of memory, "
    sentence += r"and [\d,]+ MiB are free; at most about (\d+) seeds fit\."
    with pytest.raises(InvalidArgumentError, match=sentence) as refused:
        train(config, tmp_path / "run", seeds=range(16))
    assert not (tmp_path / "run").exists()
    found = re.search(sentence, str(refused.value))
    assert found
    fits = int(found[1])
    assert fits == 8  # as many on each device, with a margin
    assert len(train(config, tmp_path / "run", seeds=range(fits)).seeds) == fits


def test_results_tell_the_mean_over_seeds_with_its_interval():
    def results(*returns):
        some: Any = dict.fromkeys(("agent_state", "training", "evaluations", "config", "timings"))
        return SeedResults(
            **some,
            run_folder=Path(),
            stopped="end",
            seeds=tuple(range(len(returns))),
            final_returns=returns,
            reached_target=(False,) * len(returns),
        )

    of_three = results(1.0, 2.0, 3.0)
    assert of_three.mean_return == 2.0
    # Student's 97.5% quantile of 2 degrees of freedom is 4.303.
    assert of_three.return_interval == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))
    assert all(map(math.isnan, results(1.0).return_interval))
