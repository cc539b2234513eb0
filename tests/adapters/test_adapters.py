"""Adapters change shapes and names, never results, step for step, and other libraries train."""

import re
import sys
from functools import partial
from pathlib import Path
from unittest import mock
from urllib.error import URLError

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnax.environments import spaces as gymnax_spaces
from gymnax.utils import load_mnist

from myriad import Rollout, make_agent, make_env, make_key
from myriad.adapters import from_gymnax, to_gymnasium, to_gymnasium_vector, to_gymnax, to_sb3
from myriad.envs.cartpole import CartPoleState
from myriad.errors import MyriadError
from tests.adapters.rollouts import SHORT, assert_rolls_out_and_compiles_once
from tests.bits import assert_close
from tests.child_processes import python

# `make test-long` has the others.
PLAIN = ("CartPole-v1", "Catch-bsuite")
GYMNAX = [
    pytest.param(name, marks=() if name in PLAIN else pytest.mark.long)
    for name in gymnax.registered_envs
]


@pytest.fixture(autouse=True)
def _no_download(monkeypatch):
    """Give MNISTBandit a few random digits in place of the images that it would fetch."""
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 127, (32, 28, 28), np.int8), rng.integers(0, 10, 32, np.uint8)
    monkeypatch.setattr(load_mnist, "load_mnist", lambda: ((images, labels), None))


assert_trees_match = partial(assert_close, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SHORT, "gymnax:Catch-bsuite"])
def test_gymnasiums_checker_finds_nothing_to_warn_of(name):
    check_env(to_gymnasium(make_env(name)))


@pytest.mark.parametrize("name", SHORT)
def test_gymnasium_results_are_the_environments_own(name):
    env = make_env(name, **SHORT[name])
    params, adapted = env.default_params, to_gymnasium(env, normalize_actions=False)
    obs, info = adapted.reset(seed=5)
    key, reset_key = jax.random.split(make_key(5))
    expected_obs, state = jax.jit(env.reset)(reset_key, params)
    np.testing.assert_allclose(obs, expected_obs, rtol=1e-6)
    assert info == {}
    adapted.action_space.seed(0)
    step = jax.jit(env.step)
    for _ in range(12):
        action = adapted.action_space.sample()
        key, step_key = jax.random.split(key)
        in_own_dtype = np.asarray(action, env.action_space(params).dtype)
        expected_obs, state, *expected = step(step_key, state, in_own_dtype, params)
        obs, *results = adapted.step(action)
        np.testing.assert_allclose(obs, expected_obs, rtol=1e-6, atol=1e-6)
        assert_trees_match(jax.tree.map(np.asarray, results), expected)
        assert [type(result) for result in results] == [float, bool, bool, dict]


def test_every_bit_of_a_seed_counts_and_fixes_the_episodes_that_follow():
    env = make_env("cartpole-control")
    one, other = to_gymnasium(env), to_gymnasium(env)
    twice = [each.reset(seed=1)[0].tobytes() for each in (one, other)]
    twice += [each.reset()[0].tobytes() for each in (one, other)]
    assert twice[0] == twice[1] != twice[2] == twice[3]
    seeds = [2**32, 0, 2**63, 2**64, 2**200]
    each = [one.reset(seed=seed)[0].tobytes() for seed in seeds]
    assert len(set(each)) == len(seeds)
    together, _ = to_gymnasium_vector(env, len(seeds)).reset(seed=seeds)
    assert [row.tobytes() for row in together] == each
    counted, _ = to_gymnasium_vector(env, 2).reset(seed=2**32 - 1)
    assert counted[1].tobytes() == each[0]


def test_continuous_actions_run_from_minus_one_to_one_unless_asked_not_to():
    env = make_env("pendulum-control")
    scaled, plain = to_gymnasium(env), to_gymnasium(env, normalize_actions=False)
    assert (scaled.action_space.low, scaled.action_space.high) == (-1, 1)
    assert (plain.action_space.low, plain.action_space.high) == (-2, 2)
    for adapted in (scaled, plain):
        adapted.reset(seed=0)
    for action in (-1.0, 0.25, 1.0):
        ours, theirs = scaled.step(np.float32([action])), plain.step(np.float32([2 * action]))
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1] == theirs[1]


def test_rendering_shows_the_state():
    env = make_env("cartpole-control")
    for adapted in (
        to_gymnasium(env, render_mode="rgb_array"),
        to_gymnasium_vector(env, 3, render_mode="rgb_array"),
    ):
        obs, _ = adapted.reset(seed=0)
        frames = np.reshape(adapted.render(), (-1, 400, 600, 3))
        for frame, row in zip(frames, np.atleast_2d(obs), strict=True):
            np.testing.assert_array_equal(frame, env.render(CartPoleState(*row, time=0)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("cartpole-control", AutoresetMode.NEXT_STEP),
        ("cartpole-control", AutoresetMode.SAME_STEP),
        ("pendulum-control", AutoresetMode.DISABLED),
        ("bucket-brigade", AutoresetMode.SAME_STEP),
    ],
)
def test_the_vector_environment_equals_gymnasiums_own_over_single_ones(name, mode):
    env, num_envs = make_env(name, **SHORT[name]), 3
    ours = to_gymnasium_vector(env, num_envs, autoreset_mode=mode.value)
    theirs = SyncVectorEnv([lambda: to_gymnasium(env)] * num_envs, autoreset_mode=mode)
    assert ours.metadata == theirs.metadata
    for space in ("observation_space", "action_space"):
        for name_ in (space, f"single_{space}"):
            assert getattr(ours, name_) == getattr(theirs, name_)
    assert data_equivalence(ours.reset(seed=11), theirs.reset(seed=11))
    ours.action_space.seed(0)
    ends = 0
    for _ in range(25):
        actions = ours.action_space.sample()
        result, expected = ours.step(actions), theirs.step(actions)
        assert data_equivalence(result, expected), (result, expected)
        assert result[0] in ours.observation_space
        done = result[2] | result[3]
        ends += done.sum()
        if mode is AutoresetMode.DISABLED and done.any():
            reset = [each.reset(options={"reset_mask": done}) for each in (ours, theirs)]
            assert data_equivalence(*reset)
    assert ends > 0


BLIND = make_env("gymnax:CartPole-v1")


def reset_by(env, **options):
    env.reset(options=options)


def act(name, action):
    env = to_gymnasium(make_env(name))
    env.reset(seed=0)
    env.step(action)


def step_beyond_the_end(env):
    envs = to_gymnasium_vector(env, 2, autoreset_mode="Disabled")
    envs.reset(seed=0)
    envs.step([0, 0])
    envs.step([0, 0])


def without(package, adapt):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, package, None)
        adapt(make_env("cartpole-control"))


def without_a_network():
    with mock.patch.object(load_mnist, "load_mnist", side_effect=URLError("no network")):
        make_env("gymnax:MNISTBandit-bsuite")


INSTALL = r"needs {}.*pip install 'myriad-rl\[{}\]'".format


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda env: to_gymnasium(env).step(0), "a running episode; call reset first"),
        (lambda env: to_gymnasium_vector(env, 2).step([0, 0]), "call reset first"),
        (step_beyond_the_end, "sub-environment 0 has ended; reset it"),
        (lambda env: to_gymnasium_vector(env, 0), "num_envs must be .* but got 0"),
        (lambda env: to_gymnasium_vector(env, 2).reset(seed=[1]), "seed must hold 2 integers"),
        (lambda env: to_gymnasium_vector(env, 2).reset(seed=[1, -1]), "integers of at least 0"),
        (lambda env: reset_by(to_gymnasium_vector(env, 2), reset_mask=[True]), "2 booleans"),
        (lambda env: reset_by(to_gymnasium_vector(env, 2), low=0.1), "must be reset_mask, but got"),
        (lambda _: act("cartpole-control", 0.5), r"action must be integers of shape \(\), but got"),
        (lambda _: act("bucket-brigade", [0, 2, 0]), "action must be .*MultiDiscrete.* but got 2"),
        (lambda _: act("pendulum-control", [np.nan]), "action must be .*Box.* but got nan"),
        (lambda env: to_gymnasium(env, render_mode="human"), "render mode 'human' of CartPole"),
        (lambda _: to_gymnasium(BLIND, render_mode="rgb_array"), "'rgb_array' of FromGymnax"),
        (lambda env: to_gymnax(env, version="0.9"), r"unknown version of gymnax '0\.9'"),
        (lambda _: from_gymnax("Breakout"), "did you mean 'Breakout-MinAtar'"),
        (lambda _: from_gymnax("Catch-bsuite", row=7), "'row' of gymnax's Catch-.*mean 'rows'"),
        (lambda _: from_gymnax(gymnax.make("Catch-bsuite")[0], rows=7), "rows"),
        (lambda _: without_a_network(), "here: <urlopen error no network>"),
        (lambda _: without("gymnax", to_gymnax), INSTALL("gymnax", "bench")),
        (
            lambda _: without("stable_baselines3", partial(to_sb3, num_envs=2)),
            INSTALL("stable_baselines3", "sb3"),
        ),
    ],
)
def test_a_wrong_call_is_named(call, named):
    with pytest.raises(MyriadError, match=named):
        call(make_env("cartpole-control", max_steps=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "version"), [*((name, "1.0.1") for name in SHORT), ("bucket-brigade", "0.0.9")]
)
def test_gymnax_steps_are_the_environments_own_and_reset_by_themselves(name, version):
    env, is_old = make_env(name, **SHORT[name]), version == "0.0.9"
    own_params, own_reset, own_step = env.default_params, jax.jit(env.reset), jax.jit(env.step)
    adapted = to_gymnax(env, version=version)
    assert isinstance(adapted, gymnax.environments.environment.Environment)
    # Keys are words in the old form, as purejaxrl's are.
    given = jax.random.key_data if is_old else lambda key: key
    params = adapted.default_params
    key, reset_key = jax.random.split(jax.random.key(0))
    obs, state = adapted.reset(given(reset_key), params)
    assert_trees_match((obs, state.env_state), own_reset(reset_key, own_params))
    ends = 0
    for _ in range(15):
        key, act_key, step_key = jax.random.split(key, 3)
        action = env.action_space(own_params).sample(act_key)
        own_key, own_reset_key = jax.random.split(step_key)
        expected = own_step(own_key, state.env_state, action, own_params)
        terminated, truncated = expected[3:5]
        obs, state, reward, *flags, info = adapted.step(given(step_key), state, action, params)
        done = bool(terminated | truncated)
        assert flags == ([done] if is_old else [terminated, truncated])
        assert info["discount"] == 1 - terminated
        np.testing.assert_allclose(reward, expected[2], rtol=1e-5)
        first = own_reset(own_reset_key, own_params)
        assert_trees_match((obs, state.env_state), first if done else expected[:2])
        assert int(state.time) == 0 or not done
        if not is_old:
            assert_trees_match(info["final_observation"], expected[0])
            assert (info["terminated"], info["truncated"]) == (terminated, truncated)
        ends += done
    assert ends > 0 or name == "snake"


@pytest.mark.slow
def test_gymnax_spaces_hold_the_observations_and_the_actions():
    adapted = to_gymnax(make_env("bucket-brigade"))
    params = adapted.default_params
    obs, state = adapted.reset(jax.random.key(0), params)
    assert adapted.observation_space(params).contains(obs)
    actions = adapted.action_space()
    assert isinstance(actions, gymnax_spaces.Tuple)
    assert [space.n for space in actions.spaces] == [10, 2, 2]
    by_tuple = adapted.step(jax.random.key(1), state, (3, 1, 0), params)
    by_array = adapted.step(jax.random.key(1), state, jnp.array([3, 1, 0]), params)
    assert_trees_match(by_tuple, by_array)
    assert (adapted.num_actions, adapted.name) == (3, "BucketBrigade")
    assert to_gymnax(make_env("snake")).num_actions == 4


@pytest.mark.slow
@pytest.mark.parametrize("name", GYMNAX)
def test_a_gymnax_environment_rolls_out_and_its_step_is_gymnaxs_own(name):
    theirs, params = gymnax.make(name)
    ours = from_gymnax(name)
    assert_rolls_out_and_compiles_once(ours)
    space, obs_space = ours.action_space(params), ours.observation_space(params)
    key, reset_key = jax.random.split(jax.random.key(2))
    obs, state = jax.jit(ours.reset)(reset_key, params)
    first = theirs.reset(reset_key, params)
    assert_trees_match((obs, state), first)
    assert (obs.shape, obs.dtype) == (obs_space.shape, obs_space.dtype)
    both = jax.jit(
        lambda *arguments: (ours.step(*arguments, params), theirs.step_env(*arguments, params))
    )
    for _ in range(4):
        key, act_key, step_key = jax.random.split(key, 3)
        action = space.sample(act_key)
        (obs, state, reward, terminated, truncated, info), expected = both(step_key, state, action)
        assert_trees_match((obs, state, reward, terminated, info), expected)
        assert bool(truncated) == bool(theirs.is_truncated(expected[1], params))
        assert (reward.dtype, terminated.dtype, truncated.dtype) == (jnp.float32, bool, bool)
        assert not any(
            leaf.weak_type for leaf in jax.tree.leaves((obs, state, reward, terminated, truncated))
        )
        assert obs.dtype == obs_space.dtype


def test_the_time_limit_of_a_gymnax_environment_truncates():
    env = from_gymnax("MountainCar-v0", max_steps_in_episode=3)
    rollout = Rollout(env, make_agent("random", env), num_envs=2, scan_chunk_size=6)
    trajectory = rollout.record_chunk(rollout.init(0))[1]
    assert trajectory.truncated[:, 0].tolist() == [False, False, True] * 2
    assert not trajectory.terminated.any()


# --- trained by others ----------------------------------------------------------------------------


ROOT = Path(__file__).parents[2]
# These libraries warn of each other and of what they will change.
warns = pytest.mark.filterwarnings("default")
# What the page's lines print, at the least: a random policy reaches 22 in CartPole.
LEAST = {"rejax": 40, "stable_baselines3": 100}


@pytest.mark.long
@warns
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


@pytest.mark.slow
@warns
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
