"""Environments of other JAX libraries by name. Each library that is not installed is skipped."""

import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import create_config, evaluate, make_env, make_key, train_and_evaluate
from myriad.adapters import ADAPTERS
from myriad.envs.checker import check_env
from myriad.envs.wrappers import MaskedObservation
from myriad.errors import InvalidArgumentError, NotInstalledError, UnknownNameError
from myriad.training.config import TrainingConfig
from tests.adapters.rollouts import assert_rolls_out_and_compiles_once
from tests.child_processes import python

ROOT = Path(__file__).parents[2]
# These libraries warn of each other and of what they will change.
pytestmark = pytest.mark.filterwarnings("default")

# One small environment of each library, and fields with other values than the defaults.
SMALL = {
    "brax:inverted_pendulum": {"backend": "positional", "episode_length": 7},
    "craftax:Craftax-Classic-Symbolic-v1": {"max_timesteps": 7},
    "jumanji:Snake-v1": {"num_rows": 4, "num_cols": 4, "time_limit": 7},
    "navix:Navix-Empty-5x5-v0": {"max_steps": 7},
    "pgx:2048": {},
    "playground:CartpoleBalance": {"episode_length": 7},
    "xland:MiniGrid-Empty-5x5": {"max_steps": 7},
}


def required(name):
    pytest.importorskip(ADAPTERS[name.partition(":")[0] + ":"].package)


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.slow) for name in SMALL])
def name(request):
    required(request.param)
    return request.param


def steps_of(env, num_steps):
    """Yield the state, the action and the results of each step of a random episode."""
    params = env.default_params
    step = jax.jit(lambda key, state, action: env.step(key, state, action, params))
    state = jax.jit(lambda key: env.reset(key, params))(make_key(0))[1]
    for index in range(num_steps):
        key, action_key = jax.random.split(make_key(index + 1))
        action = env.action_space(params).sample(action_key)
        results = step(key, state, action)
        yield key, state, action, results
        state = results[1]


# --- every library --------------------------------------------------------------------------------


def test_every_library_has_an_extra_and_a_row_on_the_page():
    page = (ROOT / "docs" / "adapters.md").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for prefix, library in ADAPTERS.items():
        assert f"`{prefix}" in page
        assert library.extra in extras["optional-dependencies"]


@pytest.mark.parametrize("prefix", ADAPTERS)
def test_a_library_that_is_missing_is_named_with_its_extra(prefix, monkeypatch):
    monkeypatch.setitem(sys.modules, ADAPTERS[prefix].package, None)
    with pytest.raises(NotInstalledError, match=rf"'myriad-rl\[{ADAPTERS[prefix].extra}\]'"):
        make_env(f"{prefix}any")


def test_an_environment_rolls_out_is_drawn_and_is_made_again_by_its_fields(name):
    env = make_env(name, **SMALL[name])
    assert_rolls_out_and_compiles_once(env)
    assert make_env(name, **SMALL[name]) == make_env(make_env(name), **SMALL[name]) == env
    assert not SMALL[name] or env != make_env(name)
    prefix = name.partition(":")[0]
    with pytest.raises(UnknownNameError, match=f"unknown {prefix} environment"):
        make_env(name + "x")
    with pytest.raises(UnknownNameError, match="unknown field 'no_such_field'"):
        make_env(name, no_such_field=1)
    if prefix not in ("brax", "playground"):  # these need OpenGL
        state = jax.jit(lambda key: env.reset(key, env.default_params))(make_key(0))[1]
        picture = env.render(state)
        assert (picture.dtype, picture.shape[2:]) == (np.uint8, (3,))


@pytest.mark.long
def test_the_checker_finds_no_fault(name):
    # Playground splits the key of its reset twice, and both splits are equal. Craftax draws trees
    # with a key that it then splits.
    skip = ("keys",) if name.startswith(("playground:", "craftax:")) else ()
    check_env(make_env(name, **SMALL[name]), skip=skip)


def test_an_environment_trains_and_its_file_makes_it_again_without_trust(name, tmp_path):
    options = {f"env.{field}": value for field, value in SMALL[name].items()}
    sizes = {"num_envs": 16, "rollout_steps": 8, "steps_per_env": 16, "eval_rollouts": 2}
    config = create_config(name, "ppo", **sizes, eval_max_steps=16, **options)
    results = train_and_evaluate(config, tmp_path / "run", quiet=True)
    assert np.isfinite(results.evaluations[-1]["return"])
    file = tmp_path / "run" / "config.toml"
    assert TrainingConfig.from_toml(file.read_text(), file).environment == config.environment
    # An object is recorded by the name that makes it again.
    assert create_config(make_env(name, **SMALL[name]), "ppo").env == name


# --- brax -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_brax_steps_are_its_own_and_its_time_limit_truncates():
    required("brax:")
    import brax.envs

    env = make_env("brax:inverted_pendulum", **SMALL["brax:inverted_pendulum"])
    own = brax.envs.get_environment("inverted_pendulum", backend="positional")
    own_step = jax.jit(own.step)
    theirs = jax.jit(own.reset)(make_key(0))
    for index, (_, _, action, results) in enumerate(steps_of(env, 7)):
        theirs = own_step(theirs, action)
        obs, _, reward, terminated, truncated, _ = results
        np.testing.assert_allclose(obs, theirs.obs, rtol=1e-5, atol=1e-5)
        assert reward == theirs.reward
        assert bool(terminated) == bool(theirs.done)
        assert bool(truncated) == (index == 6 and not terminated)


# --- the other libraries --------------------------------------------------------------------------


@pytest.mark.slow
def test_jumanji_steps_are_its_own_and_a_discount_of_zero_terminates():
    required("jumanji:")
    import jumanji

    name = "jumanji:Snake-v1"
    env, own = make_env(name, **SMALL[name]), jumanji.make("Snake-v1", **SMALL[name])
    own_step = jax.jit(own.step)
    theirs, _ = jax.jit(own.reset)(make_key(0))
    for _, _, action, (obs, _, reward, terminated, truncated, _) in steps_of(env, 7):
        theirs, timestep = own_step(theirs, action)
        jax.tree.map(np.testing.assert_array_equal, obs, timestep.observation)
        assert reward == timestep.reward
        assert bool(terminated) == bool(timestep.last() & (timestep.discount == 0))
        assert not truncated
    assert jax.tree.structure(obs) == jax.tree.structure(env.observation_space(None))
    # The spec of Jumanji leaves out the last count of steps, our space does not.
    assert env.observation_space(None).step_count.high == 7


@pytest.mark.slow
def test_random_moves_of_jumanji_obey_its_masks_beside_an_observation_of_many_parts():
    required("jumanji:")
    options = {f"env.{field}": value for field, value in SMALL["jumanji:Snake-v1"].items()}
    config = create_config("jumanji:Snake-v1", "random", eval_max_steps=8, **options)
    assert isinstance(config.environment, MaskedObservation)
    assert np.isfinite(evaluate(config, None, num_episodes=4)).all()


@pytest.mark.slow
def test_pgx_ends_a_game_after_an_illegal_move_and_refuses_two_players():
    required("pgx:")
    env = make_env("pgx:2048")
    obs, state = jax.jit(env.reset)(make_key(0), None)
    assert obs.dtype == np.uint8
    illegal = int(jnp.argmin(state.legal_action_mask))
    while state.legal_action_mask[illegal]:
        state = env.step(make_key(1), state, jnp.int32(illegal), None)[1]
        illegal = int(jnp.argmin(state.legal_action_mask))
    results = env.step(make_key(1), state, jnp.int32(illegal), None)
    assert (float(results[2]), bool(results[3]), bool(results[4])) == (-1.0, True, False)
    with pytest.raises(
        InvalidArgumentError, match="must be a game for one player, but got 'pgx:chess"
    ):
        make_env("pgx:chess")


@pytest.mark.slow
def test_the_time_limit_of_navix_truncates_and_its_own_reset_is_off():
    required("navix:")
    env = make_env("navix:Navix-Empty-16x16-v0", max_steps=7)
    ends = [(bool(r[3]), bool(r[4]), int(r[1].t)) for *_, r in steps_of(env, 8)]
    assert ends == [(False, False, t) for t in range(1, 7)] + [(False, True, 7), (False, True, 8)]


@pytest.mark.slow
def test_the_time_limit_of_xland_truncates_and_its_fields_change_the_observation():
    required("xland:")
    env = make_env("xland:MiniGrid-EmptyRandom-16x16", max_steps=7, view_size=5)
    assert env.observation_space(None).shape == (5, 5, 2)
    ends = [(bool(r[3]), bool(r[4])) for *_, r in steps_of(env, 7)]
    assert ends == [(False, False)] * 6 + [(False, True)]


@pytest.mark.long
def test_the_script_prints_a_row_for_each_name_and_skips_what_is_missing(tmp_path):
    required("gymnax:")
    missing = [
        name for name in SMALL if not find_spec(ADAPTERS[name.partition(":")[0] + ":"].package)
    ]
    script = ROOT / "scripts" / "other_libraries.py"
    done = python(script, "gymnax:Catch-bsuite", *missing, "--total-steps=2000", cwd=tmp_path)
    gymnax, *others = [line for line in done.stdout.splitlines() if line.startswith("| `")]
    assert all("skipped: this adapter needs" in line for line in others)
    assert len(others) == len(missing)
    *_, film, final, random, _ = gymnax.split("|")
    assert film.strip() == "no `render`"
    assert all(-1 <= float(number) <= 1 for number in (final, random))
