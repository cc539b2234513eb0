"""The chunk's properties: the same bits for every chunk, tile and device count; one compilation."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import Rollout, list_envs, make_agent, make_env, make_key
from myriad.engine.random import Counter
from myriad.errors import InvalidArgumentError
from tests.bits import assert_same_bits
from tests.compilations import count_compilations
from tests.generated_env import Generated

NUM_STEPS = 96


@functools.cache
def make_rollout(num_envs: int, scan_chunk_size: int, **options) -> Rollout:
    """Make a rollout once for all tests of its sizes: its programs are then compiled once, too."""
    env = make_env("cartpole-control")
    return Rollout(env, make_agent("random", env), num_envs, scan_chunk_size, **options)


class Network:
    uses_observation = True

    def act(self, key, obs):
        hidden = jnp.tanh(obs @ jnp.linspace(-1, 1, 4 * 64).reshape(4, 64))
        return jax.random.categorical(key, hidden @ jnp.linspace(-1, 1, 2 * 64).reshape(64, 2))


GENERATED = Generated(("draw", "stack", "branch", "mean", "largest and smallest"))


@pytest.mark.parametrize(
    ("env", "num_envs", "scan_chunk_size", "tile_size"),
    [
        *(pytest.param(name, 128, 7, 32, marks=pytest.mark.slow) for name in list_envs()),
        *((GENERATED, *sizes) for sizes in ((1, 7, 32), (17, 1, 1), (49, 5, 1), (100, 7, 33))),
    ],
)
def test_any_environment_compiles_once_and_has_the_same_bits_however_it_is_laid_out(
    env, num_envs, scan_chunk_size, tile_size
):
    env = make_env(env)
    agent = Network() if env == GENERATED else make_agent("random", env)
    whole = Rollout(env, agent, num_envs, 24, num_devices=1)
    parts = Rollout(
        env, agent, num_envs, scan_chunk_size, tile_size=tile_size, num_devices=min(2, num_envs)
    )
    state = parts.run_chunk(parts.init(seed=0))
    with count_compilations() as compilations:
        state = parts.run(state, 24 - scan_chunk_size)
    assert not compilations
    assert parts.summary(state).num_steps == num_envs * 24
    expected = whole.batch_state(whole.run(whole.init(seed=0), 24))
    assert_same_bits(parts.batch_state(state), expected)
    assert env != GENERATED or expected.num_episodes.min() > 0


@pytest.mark.slow
@pytest.mark.parametrize("num_envs", [1, 100])
def test_a_recorded_rollout_takes_the_same_steps_and_has_final_observations_for_whoever_asks(
    num_envs,
):
    recorder = make_rollout(num_envs, 32, num_devices=2)
    state = recorder.init(seed=0)
    chunks = []
    for _ in range(NUM_STEPS // 32):
        state, trajectory = recorder.record_chunk(state)
        chunks.append(trajectory)
    plain = recorder.batch_state(state)
    at_once = make_rollout(num_envs, NUM_STEPS, num_devices=1)
    assert_same_bits(plain, at_once.batch_state(at_once.run(at_once.init(seed=0), NUM_STEPS)))
    _, asked = at_once.record_chunk(at_once.init(seed=0), final_obs=True)
    assert asked.obs.shape == (NUM_STEPS, num_envs, 4)
    recorded = jax.tree.map(lambda *rows: np.concatenate(rows), *chunks)
    assert_same_bits(recorded, dataclasses.replace(asked, final_obs=None))
    done = np.asarray(asked.terminated | asked.truncated)
    np.testing.assert_array_equal(done.sum(axis=0), plain.num_episodes)
    np.testing.assert_array_equal(asked.final_obs[~done], asked.obs[~done])
    limits = at_once.env.default_params
    beyond = (np.abs(asked.final_obs[..., 0]) > limits.x_threshold) | (
        np.abs(asked.final_obs[..., 2]) > limits.theta_threshold
    )
    np.testing.assert_array_equal(beyond, asked.terminated)
    assert np.abs(np.asarray(asked.obs)[done]).max() <= 0.05


@pytest.mark.slow
def test_environments_with_parameters_of_their_own_follow_them_for_every_layout():
    env = make_env("cartpole-control")
    gravity = np.linspace(1.0, 20.0, 100).astype(np.float32)
    params = dataclasses.replace(env.default_params, gravity=gravity)
    agent = make_agent("random", env)

    def final(**options):
        rollout = Rollout(env, agent, 100, params=params, **options)
        return rollout.batch_state(rollout.run(rollout.init(seed=3), NUM_STEPS))

    whole = final(scan_chunk_size=NUM_STEPS, num_devices=1)
    assert_same_bits(whole, final(scan_chunk_size=7, tile_size=32, num_devices=2))
    np.testing.assert_array_equal(whole.own_params[0], gravity)
    for env_index in (0, 99):
        one = dataclasses.replace(env.default_params, gravity=gravity[env_index])
        rollout = Rollout(env, agent, 100, NUM_STEPS, params=one)
        alone = rollout.batch_state(rollout.run(rollout.init(seed=3), NUM_STEPS))
        np.testing.assert_allclose(
            alone.env_state.theta[env_index], whole.env_state.theta[env_index], rtol=1e-4, atol=1e-6
        )


@pytest.mark.slow
def test_episodes_are_counted_beyond_32_bits():
    env = make_env("cartpole-control", max_steps=1)  # every step ends an episode
    rollout = Rollout(env, make_agent("random", env), num_envs=32, scan_chunk_size=4)
    state = rollout.init(seed=0)
    for step, num_episodes in ((2**31 - 2, 2**31 - 2), (2**32 - 2, -2)):
        many = jnp.full_like(state.batch_state.num_episodes, num_episodes)
        batch_state = dataclasses.replace(state.batch_state, num_episodes=many)
        state = dataclasses.replace(state, step=Counter.of(step), batch_state=batch_state)
        state = rollout.run(state, 4)
        assert rollout.summary(state).num_episodes == 32 * (step + 4)
    assert rollout.summary(state).num_steps == 32 * (2**32 + 2)
    assert np.isnan(rollout.summary(state).mean_episode_return)


@pytest.mark.slow
def test_a_controller_remembers_and_forgets_with_the_episode():
    env = make_env("cartpole", max_steps=30)
    pid = make_agent("pid", env)
    rollout = Rollout(env, pid, num_envs=3, scan_chunk_size=40)
    state, trajectory = rollout.record_chunk(rollout.init(seed=0))
    first_obs = rollout.batch_state(rollout.init(seed=0)).obs
    for i in range(3):
        obs = first_obs[i]
        memory = pid.first_memory()
        for t in range(40):
            action, memory = pid.control(memory, make_key(0), obs)
            np.testing.assert_array_equal(trajectory.action[t, i], action)
            obs = trajectory.obs[t, i]
            if trajectory.truncated[t, i]:
                memory = pid.first_memory()
    assert trajectory.truncated[29].all()
    assert rollout.summary(state).mean_episode_length == 30
    assert type(rollout.batch_state(state).env_state) is type(
        env.reset(make_key(0), env.default_params)[1]
    )


def of_params(**params):
    env = make_env("cartpole-control")
    params = dataclasses.replace(env.default_params, **params)
    return Rollout(env, make_agent("random", env), 10, 4, params=params)


def first(num_envs, scan_chunk_size):
    rollout = make_rollout(num_envs, scan_chunk_size)
    return rollout, rollout.init(0)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: make_rollout(0, 4), "num_envs must be .* but got 0"),
        (lambda: make_rollout(4, 2.5), "scan_chunk_size must be .* but got 2.5"),
        (lambda: make_rollout(4, 4, tile_size=-1), "tile_size must be .* but got -1"),
        (lambda: make_rollout(4, 4, num_devices=99), "num_devices must be at most"),
        (lambda: of_params(gravity=np.ones(7)), r"gravity must be of shape \(\) or \(10,\)"),
        (lambda: Rollout.run_chunk(*first(4, 8), 9), "num_steps must be .* 0 to 8, but got 9"),
        (lambda: Rollout.run(*first(4, 8), -3), "num_steps must be .* but got -3"),
        (  # before it is allocated
            lambda: Rollout.record_chunk(*first(1_000, 10**9)),
            "1,000,000,000 recorded steps of 1,000 environments need .* TiB of memory, and .* fit",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(call, named):
    with pytest.raises(InvalidArgumentError, match=named):
        call()


def test_a_state_that_is_not_this_rollouts_or_was_used_is_refused():
    rollout, donated = first(4, 8)
    rollout.run(donated, 1)
    for call in ("run_chunk", "record_chunk", "summary", "batch_state"):
        for state, says in (
            (first(8, 4)[1], "state must be this rollout's, as init"),
            (None, "state must be this rollout's, as init"),
            (donated, "state was used after it was passed to"),
        ):
            with pytest.raises(InvalidArgumentError, match=says):
                getattr(rollout, call)(state)
