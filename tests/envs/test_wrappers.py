"""Wrappers: what they show of the environment inside, and that learners learn behind them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import (
    Rollout,
    check_env,
    create_config,
    make_agent,
    make_env,
    train_and_evaluate,
)
from myriad.envs.vector import VectorEnv
from myriad.envs.wrappers import (
    FlattenObservation,
    FrameStackObservation,
    MaskedObservation,
    PrivilegedObservation,
    Wrapper,
)
from myriad.errors import FaultyEnvironmentError, InvalidArgumentError
from myriad.spaces import Box, Discrete, MultiDiscrete
from tests.learners import SMALL, env_of


@dataclasses.dataclass(frozen=True)
class Taxi:
    """Find the goal in a row of `size` places. An observation is the number of the place."""

    size: int = 20
    default_params: tuple[()] = ()

    def reset(self, key, params):
        place = jax.random.randint(key, (), 0, self.size)
        return place, (place, jnp.int32(0))

    def step(self, key, state, action, params):
        place, time = state
        goal = self.size // 3  # no monotone function of the place leads there
        place = jnp.clip(place + 2 * action - 1, 0, self.size - 1)
        found = place == goal
        late = (time + 1 >= 2 * self.size) & ~found
        return place, (place, time + 1), jnp.where(found, 1.0, -0.02), found, late, {}

    def observation_space(self, params):
        return Discrete(self.size)

    def action_space(self, params):
        return Discrete(2)

    def control_error(self, obs):
        return jnp.float32(10 - obs)


class Parts(Taxi):
    """The same, as a dict of a choice, choices and a vector."""

    def parts(self, place):
        digits = jnp.stack([place // 10, place % 10])
        return {"place": place, "digits": digits, "far": jnp.float32(place)[None] / self.size}

    def reset(self, key, params):
        place, state = super().reset(key, params)
        return self.parts(place), state

    def step(self, key, state, action, params):
        place, *rest = super().step(key, state, action, params)
        return self.parts(place), *rest

    def observation_space(self, params):
        return {
            "place": Discrete(self.size),
            "digits": MultiDiscrete((3, 10)),
            "far": Box(0.0, 1.0, (1,)),
        }


def test_choices_become_zeros_and_a_one_and_parts_follow_each_other_by_name():
    env = FlattenObservation(Parts())
    space = env.observation_space(())
    obs, _ = env.reset(jax.random.key(3), ())
    place = int(Taxi().reset(jax.random.key(3), ())[0])
    assert space.shape == obs.shape == (13 + 1 + 20,)
    assert obs.dtype == space.dtype == np.float32
    digits, far, one_hot = np.split(np.asarray(obs), [13, 14])
    assert far[0] == np.float32(place) / np.float32(20)
    assert [np.flatnonzero(digits).tolist(), np.flatnonzero(one_hot)] == [
        [place // 10, 3 + place % 10], [place],
    ]  # fmt: skip
    assert FlattenObservation(Taxi()).observation_space(()).dtype == np.uint8


def test_the_last_frames_are_joined_along_the_last_axis():
    inner = make_env("cartpole")
    env = FrameStackObservation(inner, num_frames=3)
    params = env.default_params
    obs, state = env.reset(jax.random.key(0), params)
    first, inner_state = inner.reset(jax.random.key(0), params)
    np.testing.assert_array_equal(obs, np.tile(first, 3))
    obs, state, *_ = env.step(jax.random.key(1), state, 1, params)
    second, *_ = inner.step(jax.random.key(1), inner_state, 1, params)
    np.testing.assert_array_equal(obs, np.concatenate([first, first, second]))
    np.testing.assert_array_equal(env.render(state), inner.render(state.env_state))
    assert not hasattr(env, "control_error")


@pytest.mark.parametrize("env", [Taxi(), FrameStackObservation(FlattenObservation(Parts()), 2)])
def test_an_environment_has_no_fault_with_wrappers_and_without(env):
    check_env(env)


def test_a_part_out_of_its_space_is_named():
    class Far(Parts):
        def parts(self, place):
            return super().parts(place) | {"far": jnp.full(1, 2.0)}

    with pytest.raises(FaultyEnvironmentError, match=r"obs\['far'\]\[0\] is 2.0, above its bound"):
        check_env(Far())


@pytest.mark.parametrize("agent", [name for name in SMALL if env_of(name) == "cartpole"])
def test_learners_refuse_an_observation_that_is_no_box(agent):
    with pytest.raises(InvalidArgumentError, match=r"env must have observations in a Box.*Discr"):
        make_agent(agent, Taxi())
    make_agent(agent, FlattenObservation(Taxi()))


def test_only_a_learner_sees_a_flat_observation(tmp_path):
    sizes = {"num_envs": 2, "steps_per_env": 4, "eval_frequency": 4, "eval_max_steps": 8}
    assert create_config(Parts(), "ppo").environment == FlattenObservation(Parts())
    for agent, env in (("bangbang", Taxi()), ("random", Parts())):
        config = create_config(env, agent, **sizes)
        assert config.environment is env
        train_and_evaluate(config, tmp_path / agent, quiet=True)


class Watched(Taxi):
    """Its critic sees the place and the time."""

    def privileged_observation(self, state, params):
        return jnp.stack(state).astype(jnp.float32)


def test_what_a_critic_sees_follows_the_observation_also_before_a_reset():
    inner = FlattenObservation(Watched())
    env = PrivilegedObservation(inner)
    space = env.observation_space(())
    assert (space.shape, space.dtype) == ((22,), np.float32)
    envs = VectorEnv(env, 4)
    state = jax.jit(envs.reset)(jax.random.split(jax.random.key(0), 4))
    place, _ = state.env_state
    np.testing.assert_array_equal(state.obs[:, :20], jax.nn.one_hot(place, 20))
    np.testing.assert_array_equal(state.obs[:, 20:], jnp.stack([place, 0 * place], axis=1))
    state = dataclasses.replace(state, env_state=(place, jnp.full(4, 39)))
    keys = jax.random.split(jax.random.key(1), (2, 4))
    _, transition = jax.jit(envs.step)(state, jnp.ones(4, jnp.int32), *keys)
    assert (transition.terminated | transition.truncated).all()
    np.testing.assert_array_equal(transition.final_obs[:, 21], np.full(4, 40.0))
    np.testing.assert_array_equal(transition.obs[:, 21], np.zeros(4))
    config = create_config(Watched(), "ppo")
    assert config.environment == inner
    assert (config.learner.sees_privileged, make_agent("pqn", inner).sees_privileged) == (1, 0)


def test_overrides_reach_the_environment_inside():
    env = make_env(FrameStackObservation(make_env("cartpole")), gravity=1.6, num_frames=2)
    assert (env.num_frames, env.default_params.gravity) == (2, 1.6)
    assert isinstance(env, Wrapper)


@dataclasses.dataclass(frozen=True)
class Doors:
    """Rooms with 64 doors, two of which open. One of them gives a reward, and a closed one ends it.

    The best return is 20. `pair` makes the action two choices of 8 doors each.
    """

    pair: bool = False
    default_params: tuple[()] = ()

    def legal(self, room):
        """Return the good door and the other one of a room."""
        good = room * 7 % 64
        return good, (good + 31 + room) % 64

    def reset(self, key, params):
        room = jax.random.randint(key, (), 0, 8)
        return jax.nn.one_hot(room, 8), (room, jnp.int32(0))

    def step(self, key, state, action, params):
        room, time = state
        good, other = self.legal(room)
        door = good if self.pair else action
        if self.pair:  # Both halves must be the good door's, and other digits end the episode.
            is_good = jnp.all(action == jnp.stack([good // 8, good % 8]))
            is_open = jnp.all(self.action_mask(state).reshape(2, 8)[jnp.arange(2), action])
        else:
            is_good, is_open = door == good, (door == good) | (door == other)
        room = jax.random.randint(key, (), 0, 8)
        obs = jax.nn.one_hot(room, 8)
        reward = jnp.where(is_good, 1.0, 0.0)
        return obs, (room, time + 1), reward, ~is_open, is_open & (time >= 19), {}

    def action_mask(self, state):
        doors = jnp.stack(self.legal(state[0]))
        if not self.pair:
            return jnp.zeros(64, bool).at[doors].set(True)
        digits = jnp.stack([doors // 8, 8 + doors % 8])
        return jnp.zeros(16, bool).at[digits].set(True)

    def observation_space(self, params):
        return Box(0.0, 1.0, (8,))

    def action_space(self, params):
        return MultiDiscrete((8, 8)) if self.pair else Discrete(64)


@pytest.mark.parametrize("pair", [False, True])
def test_the_random_agent_opens_no_closed_door(pair):
    config = create_config(Doors(pair), "random", num_envs=16, steps_per_env=64)
    assert isinstance(config.environment, MaskedObservation)
    env = config.environment
    rollout = Rollout(env, make_agent("random", env), num_envs=64, scan_chunk_size=100)
    _, recorded = rollout.record_chunk(rollout.init(0))
    assert not recorded.terminated.any()
    # One door in two is the good one, and so is one pair in four.
    np.testing.assert_allclose(recorded.reward.mean(), 0.25 if pair else 0.5, atol=0.03)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "pair", "steps"),
    [
        ("ppo", True, 2_048),
        ("dqn", False, 3_000),
    ],
)
def test_learners_choose_legal_actions_and_learn_which_are_good(agent, pair, steps, tmp_path):
    options = {"num_envs": 16, "steps_per_env": steps}
    config = create_config(Doors(pair), agent, **options)
    results = train_and_evaluate(config, tmp_path / "run", quiet=True)
    # A closed door would have ended an episode early.
    assert results.evaluations[-1]["return"] > 19
