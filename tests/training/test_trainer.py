"""A training from end to end: the same for every chunk, resumed after a kill, all on disk."""

import dataclasses
import itertools
import json
import time
import types
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import create_config, evaluate, load_agent, make_env, make_train, train_and_evaluate
from myriad.agents import list_agents, make_learner
from myriad.engine.random import make_key
from myriad.envs import list_envs
from myriad.errors import InvalidArgumentError, ShortTrainingWarning
from myriad.training import trainer
from myriad.training.compiled import CompiledTraining
from myriad.training.evaluation import Evaluation
from myriad.training.loop import LearningLoop
from myriad.training.trainer import warn_if_short
from tests.bits import assert_same_bits
from tests.compilations import count_compilations
from tests.learners import ACTIONS, SMALL
from tests.training.small import assert_same_run, small_config


@pytest.mark.slow
def test_a_training_is_the_same_bits_for_another_chunk_and_compiles_before_it_runs(whole, tmp_path):
    config = small_config(scan_chunk_size=24)
    with count_compilations() as compilations:
        results = train_and_evaluate(config, tmp_path / "run")
    assert_same_run(results, whole)
    # Making a key compiles as well in a worker whose last module dropped its programs.
    programs = ["jit(_evaluate)", "jit(init)", "jit(run)"]
    assert sorted(name for name in compilations if name in programs) == programs


@pytest.mark.parametrize(
    ("fields", "sizes"),
    [
        # The device works on a call while the host reads the report of the one before, so a size
        # is that of the call before last. An update takes 0.1 s.
        ({"eval_frequency": 2048, "steps_per_env": 2048}, [1, 1, 2, 4, 8, 10, 10]),
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
    assert not compilations
    np.testing.assert_array_equal(again, actions)
    assert evaluate(config, agent.state, num_episodes=8).shape == (8,)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == [".lock"]


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

    obs, env_state = state.batch_state.obs, state.batch_state.env_state
    assert bad_parts() == [False, False, False, False]
    assert bad_parts(obs=obs.at[1, 2].set(-jnp.inf)) == [False, False, True, False]
    assert bad_parts(episode_return=jnp.full(4, jnp.inf)) == [False, False, True, False]
    for number, is_bad in ((jnp.inf, False), (jnp.nan, True)):
        spoilt = dataclasses.replace(env_state, theta=jnp.full(4, number))
        assert bad_parts(env_state=spoilt) == [False, False, False, is_bad]


@pytest.mark.parametrize(
    ("agent", "fields", "says"),
    [
        ("ppo", {"steps_per_env": 72}, "72 steps of each of 4 .* are 9 updates of ppo, too few"),
        ("dqn", {"steps_per_env": 64, "agent.learning_starts": 240}, "of which 5 learn, too few"),
    ],
)
def test_a_training_of_too_few_updates_to_learn_is_told(agent, fields, says):
    with pytest.warns(ShortTrainingWarning, match=says) as caught:
        warn_if_short(small_config(agent, **fields), stacklevel=1)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_short(small_config("ppo", steps_per_env=80), stacklevel=1)


@pytest.mark.slow
def test_many_seeds_train_in_one_program():
    config = small_config("ppo")
    keys = jax.vmap(jax.random.key)(jnp.arange(3))
    results = jax.jit(jax.vmap(make_train(config)))(keys)
    assert results["eval_return"].shape == (3, 4, 4)
    assert make_train(config).steps.tolist() == [256, 512, 768, 1024]
    assert len(np.unique(results["metric_sums"]["loss"][:, -1])) == 3


def refuses(agent, env):
    if agent in ("pid", "bangbang"):
        return not hasattr(env, "control_error")
    space = env.action_space(env.default_params)
    kind = ACTIONS.get(agent)
    return kind is not None and not isinstance(space, kind)


@pytest.mark.parametrize(("agent", "env"), list(itertools.product(list_agents(), list_envs())))
def test_every_agent_acts_in_every_environment_or_says_why_not(env, agent):
    if refuses(agent, make_env(env)):
        with pytest.raises(InvalidArgumentError, match=f"(?i){agent}"):
            create_config(env, agent)
    else:
        create_config(env, agent)


def by_turns():
    """Yield every environment with one of the agents that suit it."""
    for place, env in enumerate(list_envs()):
        suit = [agent for agent in list_agents() if not refuses(agent, make_env(env))]
        yield suit[place % len(suit)], env


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "env"), list(by_turns()))
def test_an_agent_needs_no_axis_that_jax_adds(agent, env):
    """The laws of learners compile in every kind of space."""
    made = make_env(env)
    learner = make_learner(agent, made, 8, **SMALL.get(agent, {}))
    loop, key = LearningLoop(made, learner, 8), jax.random.key(0)
    evaluation = Evaluation(made, learner, 2, max_steps=8)
    with jax.numpy_rank_promotion("raise"):
        state = jax.eval_shape(loop.init, key)
        jax.eval_shape(loop.run, state, jnp.int32(1), jnp.bool_(1))
        jax.eval_shape(evaluation.returns, state.agent, key)
