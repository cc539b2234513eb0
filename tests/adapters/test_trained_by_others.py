"""Other libraries train in Myriad's environments. Each library that is not installed is skipped."""

import re
from pathlib import Path

import numpy as np
import pytest

from myriad import make_env, make_key
from myriad.adapters import to_gymnasium, to_gymnax, to_sb3
from tests.adapters.rollouts import SHORT
from tests.child_processes import python

ROOT = Path(__file__).parents[2]
# These libraries warn of each other and of what they will change.
pytestmark = pytest.mark.filterwarnings("default")

# What the page's lines print, at the least: a random policy reaches 22 in CartPole.
LEAST = {"rejax": 40, "stable_baselines3": 100}


@pytest.mark.long
@pytest.mark.parametrize("library", LEAST)
def test_the_lines_of_the_page_train(library):
    pytest.importorskip(library)
    page = (ROOT / "docs" / "convert.md").read_text()
    (code,) = re.findall(
        rf"<!-- not run: needs {library} -->\n```python\n(.*?)```", page, re.DOTALL
    )
    said = python("-c", code, PYTHONPATH=str(ROOT)).stdout
    assert float(said.split()[-1]) > LEAST[library], said


def test_the_limit_of_the_old_form_is_the_environments_own_and_can_be_lowered():
    env = to_gymnax(make_env("cartpole-control", max_steps=9), version="0.0.9")
    assert env.default_params.max_steps_in_episode == 9
    assert env.default_params.env_params.max_steps == 9
    params = env.default_params.replace(max_steps_in_episode=2)
    _, state = env.reset(make_key(0), params)
    ends = []
    for step in range(4):
        _, state, _, done, info = env.step(make_key(step), state, step % 2, params)
        ends.append((bool(done), float(info["discount"])))
    assert ends == [(False, 1), (True, 1)] * 2


# --- Stable-Baselines3 ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SHORT if name != "snake"])
def test_the_vec_env_equals_stable_baselines3s_own_over_single_environments(name):
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv

    env = make_env(name, **SHORT[name])
    ours, theirs = to_sb3(env, 3), DummyVecEnv([lambda: to_gymnasium(env)] * 3)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.seed(5) == theirs.seed(5)
    np.testing.assert_allclose(ours.reset(), theirs.reset(), rtol=1e-6)
    ours.action_space.seed(0)
    ends = 0
    for _ in range(12):
        actions = np.stack([ours.action_space.sample() for _ in range(3)])
        obs, rewards, dones, infos = ours.step(actions)
        expected = theirs.step(actions)
        np.testing.assert_allclose(obs, expected[0], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(rewards, expected[1], rtol=1e-6)
        np.testing.assert_array_equal(dones, expected[2])
        assert (obs.dtype, rewards.dtype) == (expected[0].dtype, expected[1].dtype)
        for info, other in zip(infos, expected[3], strict=True):
            # The single one says of each step that it is not truncated, which nobody reads.
            assert info.keys() | {"TimeLimit.truncated"} == other.keys()
            assert info.get("TimeLimit.truncated", False) == other["TimeLimit.truncated"]
            for key in info.keys() - {"TimeLimit.truncated"}:
                np.testing.assert_allclose(info[key], other[key], rtol=1e-6, atol=1e-6)
        ends += dones.sum()
    assert ends > 0


def test_the_vec_env_names_its_environment_and_refuses_to_change_it():
    pytest.importorskip("stable_baselines3")
    env = make_env("cartpole-control")
    envs = to_sb3(env, 2, render_mode="rgb_array")
    assert envs.get_attr("default_params", indices=1) == [env.default_params]
    assert not any(envs.env_is_wrapped(object))
    with pytest.raises(NotImplementedError, match="other fields to make_env"):
        envs.set_attr("default_params", None)
    envs.reset()
    assert envs.render().shape[2:] == (3,)
    envs.close()
