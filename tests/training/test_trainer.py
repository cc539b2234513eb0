"""A training from end to end: the same for every chunk, resumed after a kill, all on disk."""

import contextlib
import dataclasses
import itertools
import json
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import (
    create_config,
    evaluate,
    load_agent,
    make_env,
    make_train,
    resume,
    train_and_evaluate,
)
from myriad.agents import list_agents, make_learner
from myriad.envs import list_envs
from myriad.errors import (
    InvalidArgumentError,
    ShortTrainingWarning,
    UnknownNameError,
)
from myriad.random import make_key
from myriad.training import trainer
from myriad.training.compiled import CompiledTraining
from myriad.training.config import SHARED_WITH_AGENT
from myriad.training.loop import LearningLoop
from myriad.training.trainer import warn_if_short
from myriad.xla import count_compilations
from tests.bits import assert_same_bits
from tests.child_processes import python
from tests.learners import ACTIONS, SMALL
from tests.training.small import assert_same_run, flags_of, small_config


@pytest.mark.slow
def test_a_training_is_the_same_bits_for_another_chunk_and_compiles_before_it_runs(whole, tmp_path):
    config = small_config(scan_chunk_size=24)
    with count_compilations() as compilations:
        results = train_and_evaluate(config, tmp_path / "run")
    assert_same_run(results, whole)
    # Making a key compiles as well in a worker whose last module dropped its programs.
    programs = ["jit(_evaluate)", "jit(init)", "jit(run)"]
    assert sorted(name for name in compilations.names if name in programs) == programs


@pytest.mark.parametrize(
    ("fields", "sizes"),
    [
        # The device works on a call while the host reads the report of the one before, so a size
        # is that of the call before last. An update takes 0.1 s.
        ({"eval_frequency": 2048, "steps_per_env": 2048}, [1, 1, 2, 4, 8, 10, 10]),
        # Learning begins with the ninth update.
        ({"agent": "dqn", "agent.learning_starts": 36, "steps_per_env": 64}, [1, 1, 2, 4, 1, 1, 2]),
        ({"seeds": [1, 2]}, [1, 1, 2, 4]),
        ({"seeds": [1, 2], "scan_chunk_size": 40}, [5, 3, 5, 3]),
        ({"scan_chunk_size": 40}, [5, 3, 5, 3]),
    ],
)
def test_a_call_takes_about_a_second_unless_a_chunk_is_given(fields, sizes, tmp_path, monkeypatch):
    called, now = [], 0.0
    run_window = CompiledTraining.run_window

    def noted(self, state, done, boundary, on_report, *args):
        last = done

        def reported(report, update):
            nonlocal last, now
            called.append(update - last)
            now += 0.1 * called[-1]
            last = update
            on_report(report, update)

        return run_window(self, state, done, boundary, reported, *args)

    monkeypatch.setattr(CompiledTraining, "run_window", noted)
    clock = types.SimpleNamespace(perf_counter=lambda: now, monotonic=time.monotonic)
    monkeypatch.setattr(trainer, "time", clock)
    train_and_evaluate(small_config(**fields), tmp_path / "run", quiet=True)
    assert called[: len(sizes)] == sizes


@pytest.mark.slow
def test_the_run_folder_holds_everything(whole):
    folder = whole.run_folder
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["steps"] for row in rows] == [256, 512, 768, 1024]
    assert [row["steps"] for row in whole.evaluations] == [256, 512, 768, 1024]
    assert rows[-1].keys() == {
        *("update", "steps", "episodes", "return"),
        *whole.config.learner.metric_names,
        *("eval_return", "eval_return_std", "eval_unfinished"),
    }
    record = json.loads((folder / "environment.json").read_text())
    assert record["versions"]["jax"] == jax.__version__
    assert {"hardware", "matmul_precision"} <= record.keys()
    config, _, agent = load_agent(folder)
    assert config == whole.config
    assert_same_bits(agent.state, whole.agent_state)
    obs = np.eye(2, 4, dtype=np.float32)
    actions = config.learner.act(agent.state, jax.random.key(0), obs, greedy=True)
    agent.act(jax.random.key(0), obs[0])
    with count_compilations() as compilations:
        again = [agent.act(jax.random.key(0), each) for each in obs]
    assert not compilations.names
    np.testing.assert_array_equal(again, actions)
    assert evaluate(config, agent.state, num_episodes=8).shape == (8,)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == [".lock"]


def test_a_tracker_that_is_not_there_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UnknownNameError, match="unknown tracker 'tensorbord'"):
        train_and_evaluate(small_config(log_to=["tensorbord"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    train_and_evaluate(small_config("pid"), tmp_path / "run", quiet=True)
    file = tmp_path / "run" / "config.toml"
    file.write_text(file.read_text().replace("log_to = []", 'log_to = ["tensorbord"]'))
    rows = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(UnknownNameError, match="unknown tracker 'tensorbord'"):
        resume(tmp_path / "run")
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == rows


@pytest.mark.slow
def test_an_interrupted_run_saves_and_resumes_to_the_same_bits(whole, tmp_path, monkeypatch):
    run_window = CompiledTraining.run_window
    windows = itertools.count()

    def interrupted(self, *args):
        if next(windows) == 2:
            signal.raise_signal(signal.SIGINT)
        return run_window(self, *args)

    monkeypatch.setattr(CompiledTraining, "run_window", interrupted)
    with pytest.raises(KeyboardInterrupt, match="goes on"):
        train_and_evaluate(small_config(), tmp_path / "run")
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["16"]
    assert_same_run(resume(tmp_path / "run"), whole)


@pytest.mark.slow
def test_a_run_that_was_killed_resumes_to_the_same_bits_and_a_finished_one_to_itself(
    whole, tmp_path
):
    shutil.copytree(whole.run_folder, tmp_path / "run")
    assert_same_run(resume(tmp_path / "run"), whole)
    # A kill leaves rows later than the checkpoint, and a part of one.
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "32")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"update": 4')
    assert_same_run(resume(tmp_path / "run"), whole)
    with pytest.raises(InvalidArgumentError, match="can't be read"):
        resume(tmp_path / "nowhere")


@pytest.mark.slow
def test_a_run_of_two_devices_goes_on_on_one_as_it_would_have(tmp_path):
    run = tmp_path / "run"
    config = small_config(num_devices=2, checkpoint_every_s=0.0)
    whole = train_and_evaluate(config, run)
    shutil.rmtree(run / "checkpoints" / "32")
    done = python("-m", "myriad.cli", "train", "--resume", run, JAX_NUM_CPU_DEVICES="1")
    assert "this run trained on 2 CPU devices and continues on 1 CPU device: " in done.stderr
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["loss"] == pytest.approx(whole.training[-1]["loss"], rel=1e-3, abs=1e-4)
    assert [last["update"], last["episodes"]] == [32, whole.training[-1]["episodes"]]


@pytest.mark.slow
def test_a_target_stops_the_training(tmp_path):
    results = train_and_evaluate(small_config("pid", target_return=40.0), tmp_path / "run")
    assert results.stopped == "target"
    assert len(results.evaluations) == 1


@pytest.mark.slow
def test_an_infinity_is_bad_where_the_agent_sees_it_and_a_nan_everywhere():
    env = make_env("cartpole")
    loop = LearningLoop(env, make_learner("random", env), 4)
    state = jax.jit(loop.init)(make_key(0))
    run = jax.jit(loop.run)

    def bad_parts(**changed):
        batch_state = dataclasses.replace(state.batch_state, **changed)
        report = run(dataclasses.replace(state, batch_state=batch_state), np.int32(0), np.bool_(0))
        return report[1].is_bad.tolist()

    obs = state.batch_state.obs
    env_state = state.batch_state.env_state
    assert bad_parts() == [False, False, False, False]
    assert bad_parts(obs=obs.at[1, 2].set(-jnp.inf)) == [False, False, True, False]
    assert bad_parts(episode_return=jnp.full(4, jnp.inf)) == [False, False, True, False]
    for number, is_bad in ((jnp.inf, False), (jnp.nan, True)):
        spoilt = jax.tree.map(
            lambda leaf, number=number: (
                jnp.full_like(leaf, number) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
            ),
            env_state,
        )
        assert bad_parts(env_state=spoilt) == [False, False, False, is_bad]


@pytest.mark.slow
def test_a_training_too_short_to_learn_gives_a_warning(tmp_path):
    config = small_config("ppo", steps_per_env=72)
    sentence = "72 steps of each of 4 environments are 9 updates of ppo, too few"
    with pytest.warns(ShortTrainingWarning, match=sentence) as caught:
        train_and_evaluate(config, tmp_path / "run")
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("agent", "fields", "says"),
    [
        ("ppo", {"steps_per_env": 80}, None),
        ("dqn", {"steps_per_env": 64, "agent.learning_starts": 240}, "of which 5 learn, too few"),
    ],
)
def test_a_training_of_too_few_updates_to_learn_is_told(agent, fields, says):
    config = small_config(agent, **fields)
    expected = contextlib.nullcontext()
    if says is not None:
        expected = pytest.warns(ShortTrainingWarning, match=says)
    with expected:
        warn_if_short(config, stacklevel=1)


def test_a_pure_training_has_no_target():
    with pytest.raises(InvalidArgumentError, match="target_return must be None for make_train"):
        make_train(small_config("ppo", target_return=450.0))


@pytest.mark.slow
def test_many_seeds_train_in_one_program():
    config = small_config("ppo")
    keys = jax.vmap(jax.random.key)(jnp.arange(3))
    results = jax.jit(jax.vmap(make_train(config)))(keys)
    assert results["eval_return"].shape == (3, 4, 4)
    assert make_train(config).steps.tolist() == [256, 512, 768, 1024]
    assert len(np.unique(results["metric_sums"]["loss"][:, -1])) == 3


def refuses(agent, name):
    env = make_env(name)
    if agent in ("pid", "bangbang"):
        return not hasattr(env, "control_error")
    space = env.action_space(env.default_params)
    kind = ACTIONS.get(agent)
    return kind is not None and not isinstance(space, kind)


@pytest.mark.parametrize(("agent", "env"), list(itertools.product(list_agents(), list_envs())))
def test_every_agent_acts_in_every_environment_or_says_why_not(env, agent):
    if not refuses(agent, env):
        create_config(env, agent)
        return
    with pytest.raises(InvalidArgumentError, match=f"(?i){agent}"):
        create_config(env, agent)


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "env"), list(itertools.product(list_agents(), list_envs())))
def test_every_agent_trains_where_jax_may_add_no_axis(env, agent, tmp_path):
    if refuses(agent, env):
        return
    sizes = {f"agent.{k}": v for k, v in SMALL.get(agent, {}).items() if k not in SHARED_WITH_AGENT}
    sizes |= {k: v for k, v in SMALL.get(agent, {}).items() if k in SHARED_WITH_AGENT}
    config = create_config(env, agent, 8, 8, eval_rollouts=2, eval_max_steps=8, **sizes)
    with jax.numpy_rank_promotion("raise"):
        train_and_evaluate(config, tmp_path / "run", quiet=True)


def run_killed(folder: Path, agent: str, after_s: float | None) -> bool:
    """Start or resume the run, kill it after `after_s` seconds, return whether it had ended."""
    fields = {"num_envs": 4, "steps_per_env": 20_000, "eval_frequency": 1_000, "eval_rollouts": 2}
    fields |= {"checkpoint_every_s": 0, "scan_chunk_size": 200}
    fields |= {"rollout_steps": 8} if agent == "ppo" else {"buffer_size": 1_000}
    words = ["--env", "cartpole", "--agent", agent, *flags_of(fields), "--run-folder", str(folder)]
    if (folder / "config.toml").exists():
        words = ["--resume", str(folder)]
    command = [sys.executable, "-m", "myriad.cli", "train", *words, "--quiet"]
    with subprocess.Popen(command) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        process.kill()
    return process.returncode == 0


@pytest.mark.long
@pytest.mark.parametrize("agent", ["ppo", "dqn"])
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(agent, tmp_path):
    start = time.monotonic()
    assert run_killed(tmp_path / "whole", agent, None)
    lasted, rng = time.monotonic() - start, np.random.default_rng(0)
    kills = 0
    while not run_killed(
        tmp_path / "killed", agent, rng.uniform(0.2, 0.8) * lasted if kills < 3 else None
    ):
        kills += 1
    whole, killed = (load_agent(tmp_path / name)[2] for name in ("whole", "killed"))
    assert_same_bits(whole.state, killed.state)
    histories = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "killed")]
    assert histories[0] == histories[1]


def test_only_large_minibatches_are_shared():
    env = make_env("cartpole")
    small, large = (make_learner("ppo", env, rollout_steps=steps) for steps in (64, 128))
    assert small.default_num_devices(16, 2) == 1
    assert large.default_num_devices(1024, 2) == 2


@pytest.mark.parametrize("num_episodes", [0, True, "8"])
def test_a_number_of_episodes_that_cannot_be_is_refused(num_episodes):
    with pytest.raises(InvalidArgumentError, match=f"num_episodes .* got {num_episodes!r}"):
        evaluate(small_config("pid"), None, num_episodes)


@pytest.mark.slow
def test_a_run_with_another_seed_in_its_file_is_not_resumed(tmp_path):
    train_and_evaluate(small_config(), tmp_path / "run", quiet=True)
    file = tmp_path / "run" / "config.toml"
    file.write_text(file.read_text().replace("seed = 0", "seed = 7"))
    with pytest.raises(InvalidArgumentError, match=r"seed of .* must be as when the run began"):
        resume(tmp_path / "run", quiet=True)
