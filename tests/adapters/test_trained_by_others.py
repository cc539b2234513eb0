"""Other libraries train in Myriad's environments. Each library that is not installed is skipped."""

import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import make_env, make_key
from myriad.adapters import to_brax, to_dm_env, to_gymnasium, to_gymnax, to_sb3
from myriad.errors import InvalidArgumentError, UnknownNameError
from tests.adapters.rollouts import SHORT

ROOT = Path(__file__).parents[2]
# These libraries warn of each other and of what they will change.
pytestmark = pytest.mark.filterwarnings("default")

# What the page's lines print, at the least: a random policy reaches 22 in CartPole and -1,200 in
# Pendulum.
LEAST = {"rejax": 40, "brax": -1500, "stable_baselines3": 100, "dm_env": 20}


@pytest.mark.long
@pytest.mark.parametrize("library", LEAST)
def test_the_lines_of_the_page_train(library):
    pytest.importorskip(library)
    page = (ROOT / "docs" / "convert.md").read_text()
    (code,) = re.findall(
        rf"<!-- not run: needs {library} -->\n```python\n(.*?)```", page, re.DOTALL
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stderr
    assert float(run.stdout.split()[-1]) > LEAST[library], run.stdout


# --- gymnax 0.0.x ---------------------------------------------------------------------------------


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


def test_an_action_without_the_axis_of_its_only_component_is_accepted():
    env = to_gymnax(make_env("pendulum-control"), version="0.0.9")
    params = env.default_params
    _, state = env.reset(make_key(0), params)
    with_axis, without = (
        env.step(make_key(1), state, action, params)[0] for action in (jnp.ones(1), jnp.float32(1))
    )
    np.testing.assert_array_equal(with_axis, without)


def test_an_unknown_version_of_gymnax_is_refused():
    with pytest.raises(UnknownNameError, match=r"unknown version of gymnax '0\.9'"):
        to_gymnax(make_env("cartpole-control"), version="0.9")


# --- brax -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_brax_steps_are_the_environments_own_and_a_truncation_is_a_time_out():
    pytest.importorskip("brax")
    own = make_env("pendulum-control", max_steps=3)
    env = to_brax(own)
    assert (env.observation_size, env.action_size, env.backend) == (3, 1, "myriad")
    state = jax.jit(env.reset)(make_key(0))
    step = jax.jit(env.step)
    outs = []
    for action in (-1.0, 0.25, 1.0):
        key = jax.random.split(state.info["rng"])[1]
        expected = own.step(
            key, state.pipeline_state, jnp.float32([2 * action]), own.default_params
        )
        state = step(state, jnp.float32([action]))
        np.testing.assert_allclose(state.obs, expected[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(state.reward, expected[2], rtol=1e-5)
        outs.append((float(state.done), float(state.info["time_out"])))
    assert outs == [(0, 0), (0, 0), (1, 1)]


@pytest.mark.slow
def test_braxs_own_wrapper_starts_the_next_episode_and_counts_its_steps():
    pytest.importorskip("brax")
    from brax.envs.wrappers.training import EvalWrapper, wrap

    env = EvalWrapper(wrap(to_brax(make_env("pendulum-control", max_steps=3)), episode_length=100))
    state = jax.jit(env.reset)(jax.random.split(jax.random.PRNGKey(0), 4))  # noqa: TID251 (as brax)
    first, step = state.obs, jax.jit(env.step)
    for index in range(6):
        state = step(state, jnp.zeros((4, 1)))
        assert state.done.tolist() == [float(index % 3 == 2)] * 4
        assert state.info["time_out"].tolist() == state.done.tolist()
    np.testing.assert_array_equal(state.obs, first)
    assert state.info["eval_metrics"].episode_steps.tolist() == [3] * 4


def test_an_environment_of_choices_is_refused_for_brax():
    pytest.importorskip("brax")
    with pytest.raises(InvalidArgumentError, match=r"bounded continuous actions.*Discrete\(n=2\)"):
        to_brax(make_env("cartpole-control"))


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
    envs = to_sb3(env, 2)
    assert envs.get_attr("default_params") == [env.default_params] * 2
    assert envs.get_attr("default_params", indices=1) == [env.default_params]
    assert envs.render_mode is None
    assert not any(envs.env_is_wrapped(object))
    with pytest.raises(NotImplementedError, match="other fields to make_env"):
        envs.set_attr("default_params", None)
    images = to_sb3(env, 2, render_mode="rgb_array")
    images.reset()
    assert images.render().shape[2:] == (3,)
    images.close()


# --- dm_env ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_a_dm_env_plays_the_episodes_of_the_environment_within_its_specs(name):
    pytest.importorskip("dm_env")
    env = make_env(name, **SHORT[name])
    ours, again, rng = to_dm_env(env, seed=3), to_dm_env(env, seed=3), np.random.default_rng(0)
    spec, key, params = ours.action_spec(), make_key(3), env.default_params
    starts = 0
    for _ in range(30):
        action = rng.uniform(spec.minimum, spec.maximum + 0.5, spec.shape).astype(spec.dtype)
        action = np.minimum(action, spec.maximum, dtype=spec.dtype)
        step = ours.step(action)
        jax.tree.map(np.testing.assert_array_equal, step, again.step(action))
        jax.tree.map(lambda each, part: each.validate(part), ours.observation_spec(), step[3])
        key, own = jax.random.split(key)
        if step.first():
            starts += 1
            obs, state = env.reset(own, params)
        else:
            obs, state, reward, terminated, truncated, _ = env.step(own, state, action, params)
            assert step.reward == pytest.approx(float(reward), rel=1e-5)
            assert step.last() == bool(terminated | truncated)
            assert step.discount == float(not terminated)
        np.testing.assert_allclose(step.observation, obs, rtol=1e-5, atol=1e-5)
    assert starts > 1


def test_a_dm_env_passes_its_own_checks_and_refuses_another_action():
    test_utils = pytest.importorskip("dm_env.test_utils")
    from absl.testing import absltest

    class Conformance(test_utils.EnvironmentTestMixin, absltest.TestCase):
        def make_object_under_test(self):
            return to_dm_env(make_env("cartpole-control", max_steps=4))

    result = absltest.unittest.TestResult()
    absltest.unittest.defaultTestLoader.loadTestsFromTestCase(Conformance).run(result)
    assert result.testsRun >= 4
    assert not result.errors + result.failures
    env = to_dm_env(make_env("cartpole-control"))
    env.reset()
    for action in (2, 0.5, [0, 1], "left"):
        with pytest.raises(InvalidArgumentError, match="action must be of DiscreteArray"):
            env.step(action)
    swing = to_dm_env(make_env("pendulum-control"))
    swing.reset()
    with pytest.raises(InvalidArgumentError, match=r"action must be of BoundedArray.*nan"):
        swing.step([np.nan])
