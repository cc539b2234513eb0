"""An environment that you built yourself goes wherever a name goes, and a run needs it again."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import create_config, evaluate, load_agent, make_env, resume
from myriad import train_and_evaluate as train
from myriad.agents import make_learner
from myriad.agents.controller import trained
from myriad.cli import main
from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.spaces import Box, Discrete
from myriad.training.evaluation import Evaluation, key_alone

SIZES = {"num_envs": 8, "steps_per_env": 64, "agent.rollout_steps": 16, "eval_max_steps": 30}


class Walk:
    """A walk to 0 from up to `far`, as an object of no dataclass."""

    def __init__(self, far):
        self.far = far
        self.default_params = {"step": 0.25}

    def reset(self, key, params):
        x = jax.random.uniform(key, minval=-self.far, maxval=self.far)
        # Leaves without elements go around the devices and the seeds, too.
        empty = jnp.zeros((0, 3)), jax.random.split(key, 0)
        return x[None], (x, jnp.int32(0), empty)

    def step(self, key, state, action, params):
        x, time, empty = state
        x = jnp.clip(x + params["step"] * (2 * action - 1), -9, 9)
        return x[None], (x, time + 1, empty), -abs(x), jnp.zeros((), bool), time >= 20, {}

    def observation_space(self, params):
        return Box(-9.0, 9.0, (1,))

    def action_space(self, params):
        return Discrete(2)


def test_a_run_of_an_object_goes_on_with_the_object_and_not_without(tmp_path, capsys):
    env = Walk(2.0)
    config = create_config(env, "ppo", **SIZES)
    assert (config.env, config.env_options) == ("object:Walk", {})
    assert config.environment is config.changed(seed=3).environment is env
    with pytest.raises(UnknownNameError, match="far"):
        create_config(env, "ppo", **{"env.far": 2.0})
    run = tmp_path / "run"
    results = train(config, run, quiet=True)
    for call in (resume, load_agent):
        with pytest.raises(InvalidArgumentError, match=r"env must be given again .*, .*Walk"):
            call(run)
    assert main(["evaluate", str(run)]) == 2
    assert "load_agent(run, env=...)" in capsys.readouterr().err
    train(config, tmp_path / "new", quiet=True, start_from=run)
    again, its_env, agent = load_agent(run, env=env)
    assert its_env is env
    same = evaluate(again, agent.state, 4), evaluate(config, results.agent_state, 4)
    np.testing.assert_array_equal(*same)
    assert resume(run, env=env, quiet=True).evaluations[-1] == results.evaluations[-1]


class Told(Walk):
    """A walk that says more than its reward. It counts how often its step is traced."""

    num_traces = 0

    def step(self, key, state, action, params):
        self.num_traces += 1
        obs, state, reward, terminated, _, _ = super().step(key, state, action, params)
        _, time, _ = state
        info = {"is_success": time == 13, "time": time, "two": jnp.zeros(2), "key": key}
        info["discount"] = jnp.ones(())
        return obs, state, reward, terminated, time >= 13, info


@pytest.mark.parametrize("seeds", [None, [3, 4]])
def test_the_scalars_of_info_at_the_end_of_episodes_are_in_the_rows(seeds, tmp_path):
    config = create_config(Told(9.0), "ppo", **SIZES, eval_rollouts=16)
    results = train(config, tmp_path / "run", seeds=seeds, quiet=True)
    last = results.evaluations[-1]
    assert {name for name in last if "/" in name} == {"info/is_success", "info/time"}
    assert (last["info/is_success"], last["info/time"]) == (1, 13)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["eval_info/time"] == 13


def test_the_scalars_of_an_episode_that_was_cut_off_are_its_last():
    env = Told(9.0)
    evaluation = Evaluation(env, create_config(env, "random", 4, 64).learner, 5, max_steps=7)
    before = env.num_traces
    _, ended, lengths, infos = jax.jit(evaluation.episodes)((), key_alone(0))
    assert env.num_traces == before + 1
    assert not ended.any()
    np.testing.assert_array_equal(lengths, 7)
    np.testing.assert_array_equal(infos["time"], lengths)


@pytest.mark.parametrize("obs", [{"position": np.zeros(4)}, np.zeros((1, 4))])
def test_a_trained_agent_refuses_another_observation(obs):
    learner = make_learner("ppo", env := make_env("cartpole"), 4, hidden_sizes=(8,))
    agent = trained(learner, learner.init(jax.random.key(0), 4), env)
    with pytest.raises(InvalidArgumentError, match=r"^obs .* of shape \(4,\), .* got "):
        agent.act(jax.random.key(0), obs)
