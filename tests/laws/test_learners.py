"""What holds for every learner, whatever it learns by."""

import collections
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import define_prng_impl

from myriad import Rollout, make_agent, make_env, make_key
from myriad.agents import AGENTS, make_learner
from myriad.agents.gradients import GRADIENT_METRICS
from myriad.engine import random
from myriad.envs.cartpole import CartPole
from myriad.envs.pendulum import Pendulum
from myriad.errors import InvalidArgumentError
from myriad.training.evaluation import Evaluation
from myriad.training.loop import LearningLoop, traced_names
from tests import learners
from tests.bits import assert_close, assert_same_bits

BEGIN = np.bool_(1)
PRIORITIES = {"priority_alpha": 0.6, "n_step": 1, "dueling": True}
SMALL = {name: (name, options) for name, options in learners.SMALL.items()} | {
    "ppo with a memory": ("ppo", learners.SMALL["ppo"] | {"network": "gru"}),
    "pqn with a memory": ("pqn", learners.SMALL["pqn"] | {"network": "gru"}),
    "dqn with priorities": ("dqn", learners.REPLAY | PRIORITIES),
    "dqn with four steps": ("dqn", learners.REPLAY | {"train_every": 4, "target_period": 2}),
}
every_learner = pytest.mark.parametrize("learner", SMALL)
# Updates after which each of them has learned from several minibatches.
UPDATES = 6


def loop_of(learner, num_envs=8, num_devices=1, env=None, **options):
    agent, small = SMALL.get(learner, (learner, {}))
    env = make_env(env or learners.env_of(agent))
    made = make_learner(agent, env, **small | options)
    return LearningLoop(env, made, num_envs, num_devices=num_devices)


@functools.lru_cache
def programs(learner, **options):
    return loop_of(learner, **options).jitted()


def after(learner, calls=(UPDATES,), seed=0, **options):
    """Return the state and the last report after some updates, in these calls."""
    init, run = programs(learner, **options)
    state = init(make_key(seed))
    for i, num_updates in enumerate(calls):
        state, report = run(state, np.int32(num_updates), np.bool_(i == 0))
    return state, report


@pytest.mark.slow
@every_learner
def test_results_are_the_same_bits_however_updates_are_cut_into_calls(learner):
    whole = after(learner)
    for calls in ((1, 5), (2, 0, 3, 1)):
        assert_same_bits(after(learner, calls), whole)
    assert programs(learner)[1]._cache_size() == 1


@pytest.mark.slow
@pytest.mark.parametrize("learner", learners.DISTINCT)
def test_seeds_side_by_side_learn_as_each_does_alone(learner):
    loop = loop_of(learner)
    keys = jnp.stack([make_key(seed) for seed in (0, 1)])

    def params(key):
        return loop.run(loop.init(key), np.int32(UPDATES), BEGIN)[0].agent.params

    together = jax.jit(jax.vmap(params))(keys)
    for seed in (0, 1):
        own = jax.tree.map(lambda leaf, seed=seed: leaf[seed], together)
        assert_close(own, after(learner, seed=seed)[0].agent.params, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("learner", learners.DISTINCT)
def test_parts_of_a_minibatch_have_its_gradient_and_statistics_change_nothing(learner):
    options = {"gradient_accumulation": 4, "gradient_statistics": True}
    (whole, report), (parts, of_parts) = after(learner, (4,)), after(learner, (4,), **options)
    assert_close(parts.agent.params, whole.agent.params, rtol=1e-7, atol=1e-6)
    assert not report.metric_sums.keys() & set(GRADIENT_METRICS)
    sums = {name: float(of_parts.metric_sums[name]) for name in GRADIENT_METRICS}
    assert all(total > 0 for total in sums.values())
    assert sums["parameter_norm"] > sums["update_norm"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learner", "num_envs"), [("dqn with priorities", 8), ("dqn with four steps", 250)]
)
def test_a_replay_buffer_in_the_hosts_memory_leads_to_the_same_bits(learner, num_envs):
    expected = after(learner, (20,), num_envs=num_envs)
    for calls in ((20,), (7, 0, 13)):
        found = after(learner, calls, num_envs=num_envs, replay_memory="host")
        assert_same_bits(found, expected)
        columns = jax.tree.leaves(found[0].agent.replay.columns)
        assert {column.sharding.memory_kind for column in columns} == {"pinned_host"}


@pytest.mark.slow
@pytest.mark.parametrize("learner", learners.SMALL)
def test_float_hyperparameters_may_be_arguments_of_the_program(learner):
    loop = loop_of(learner)

    init, run = programs(learner)
    unused = getattr(loop.learner, "unused", {})
    values = {name: getattr(loop.learner, name) for name in traced_names(loop.learner)}
    options = {
        name: 0.9 * value
        for name, value in values.items()
        if isinstance(value, float) and name not in unused
    }
    other, _ = run(init(make_key(0), options), np.int32(UPDATES), BEGIN)
    assert run._cache_size() == 1
    assert_close(other.agent.params, after(learner, **options)[0].agent.params, atol=1e-5)
    same, _ = run(init(make_key(0)), np.int32(UPDATES), BEGIN)
    found = zip(*map(jax.tree.leaves, (same.agent.params, other.agent.params)), strict=True)
    assert any((a != b).any() for a, b in found)


class SeenPole(CartPole):
    """Its critic sees the actor's observation by another way."""

    def privileged_observation(self, state, params):
        return jnp.stack([state.x, state.x_dot, state.theta, state.theta_dot])


class SeenPendulum(Pendulum):
    def privileged_observation(self, state, params):
        return jnp.stack([jnp.cos(state.theta), jnp.sin(state.theta), state.theta_dot])


LONG_PRIVILEGED = ("td3", "ppo with a memory")


@pytest.mark.slow
@pytest.mark.parametrize(
    "learner", ["ppo", "sac", *(pytest.param(n, marks=pytest.mark.long) for n in LONG_PRIVILEGED)]
)
def test_a_critic_that_sees_what_the_actor_sees_learns_as_without_an_observation_of_its_own(
    learner,
):
    env = SeenPendulum() if learners.env_of(SMALL[learner][0]) == "pendulum" else SeenPole()
    agent, options = SMALL[learner]
    loop = LearningLoop(env, make_learner(agent, env, **options), 8)
    init, run = loop.jitted()
    state, _ = run(init(make_key(0)), np.int32(UPDATES), BEGIN)
    size = env.observation_space(env.default_params).shape[0]
    both = state.batch_state.obs
    assert both.shape[1] == 2 * size
    alone, _ = after(learner)
    found, expected = state.agent, alone.agent
    assert_close(found.params, expected.params, rtol=1e-3, atol=1e-4)
    assert_close(found.privileged_stats, expected.obs_stats, rtol=1e-3, atol=1e-4)
    # The trained actor needs no more than it sees.
    memory = loop.learner.first_memory(8)
    acts = (loop.learner.control(found, memory, make_key(1), obs, greedy=True)
            for obs in (both[:, :size], both))  # fmt: skip
    assert_same_bits(*acts)


def pairs():
    """Yield environments, each with one learner of its actions, by turns."""
    # One of each kind of actions and observations.
    for place, name in enumerate(("bucket-brigade", "cartpole", "pendulum", "snake")):
        actions = (env := make_env(name)).action_space(env.default_params)
        suit = [
            learner
            for learner in learners.SMALL
            if isinstance(actions, learners.ACTIONS.get(learner, object))
        ]
        yield suit[place % len(suit)], name


@pytest.mark.slow
@pytest.mark.parametrize(("learner", "env"), list(pairs()))
def test_it_learns_and_acts_in_every_kind_of_space(learner, env):
    loop = loop_of(learner, env=env)
    state, report = jax.jit(loop.run)(jax.jit(loop.init)(make_key(0)), np.int32(8), BEGIN)
    assert not report.is_bad.any()
    space = loop.envs.env.action_space(loop.envs.env.default_params)
    for greedy in (True, False):
        action = loop.learner.act(state.agent, make_key(3), state.batch_state.obs, greedy=greedy)
        assert action.dtype == space.dtype
        assert jax.vmap(space.contains)(action).all()
    assert_same_bits(*(loop.learner.act(state.agent, make_key(seed), state.batch_state.obs,
                                        greedy=True) for seed in (1, 2)))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "options"),
    [
        *(
            pytest.param(agent, {}, marks=() if agent in learners.DISTINCT else pytest.mark.long)
            for agent in learners.REACHED
        ),
        pytest.param("ppo", {"compute_dtype": "bfloat16"}, marks=pytest.mark.long),
    ],
)
def test_it_learns_to_balance_the_pole_or_to_swing_the_pendulum_up(agent, options):
    seed, num_updates, least = learners.REACHED[agent]
    env = make_env(learners.env_of(agent))
    num_envs = AGENTS.load(agent).default_num_envs
    learner = make_learner(agent, env, num_envs, **options).scheduled(num_updates)
    loop = LearningLoop(env, learner, num_envs)
    state, _ = jax.jit(loop.run)(jax.jit(loop.init)(make_key(seed)), np.int32(num_updates), BEGIN)
    evaluation = Evaluation(env, learner, 64, max_steps=env.default_params.max_steps)
    returns, ended = jax.jit(evaluation.returns)(state.agent, make_key(1))
    assert ended.all()
    assert returns.mean() > least


# On several devices. Two are there; more shares than devices are computed by one of them.


def joined(state):
    """Return the environments of all devices in their order."""
    return jax.tree.map(
        lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:]), state.batch_state
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "learner", [*learners.DISTINCT, "ppo with a memory", "dqn with priorities"]
)
def test_environments_live_the_same_on_two_devices(learner):
    # The first update collects with the parameters that were drawn.
    alone, report = after(learner, (1,))
    shared, of_all = after(learner, (1,), num_devices=2)
    assert_same_bits(joined(shared), alone.batch_state)
    assert_same_bits(of_all.num_episodes, report.num_episodes)
    if (moments := alone.agent.obs_stats) is not None:
        assert_close(shared.agent.obs_stats.mean, moments.mean, rtol=1e-5, atol=1e-6)
        assert_close(shared.agent.obs_stats.variance, moments.variance, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("learner", "num_devices"), [("ppo", 2), ("pqn", 4)])
def test_the_gradient_of_a_batch_is_the_same_on_any_number_of_devices(learner, num_devices):
    # With one minibatch all shares learn from the same rows. The first moment of Adam is a tenth
    # of the gradient.
    options = {"num_epochs": 1, "num_minibatches": 1, "num_envs": 16}
    alone, shared = (
        jax.tree.leaves(after(learner, (1,), num_devices=n, **options)[0].agent.opt_state)[1]
        for n in (1, num_devices)
    )
    error = np.linalg.norm(np.asarray(shared) - np.asarray(alone)) / np.linalg.norm(alone)
    assert error < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["ppo", "dqn with priorities"])
def test_one_device_computes_the_shares_of_two_as_they_do(learner, monkeypatch):
    loop = loop_of(learner, num_devices=2)
    assert loop.num_present == 2
    state, report = after(learner, num_devices=2)
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    alone = loop_of(learner, num_devices=2)
    assert alone.num_present == 1
    init, run = alone.jitted()
    found, of_one = run(init(make_key(0)), np.int32(UPDATES), BEGIN)
    assert_close(found.agent.params, state.agent.params, rtol=1e-3, atol=1e-4)
    assert_close(of_one.num_episodes, report.num_episodes)
    # Every device has come to the same, and its first share is what the learner knows.
    first = loop.of_first_device(state)
    assert_same_bits(first.agent.params, state.agent.params)
    assert first.agent.running_return.shape == (4,)


@pytest.mark.parametrize(
    ("learner", "options", "says"),
    [
        ("ppo", {"num_devices": 3}, "num_devices must divide num_envs = 8, .* 3"),
        ("pqn", {"num_devices": 8, "num_minibatches": 16}, "num_minibatches must divide"),
        ("dqn", {"num_devices": 8, "batch_size": 12}, "must divide batch_size = 12, .* 8"),
        ("sac", {"num_devices": 8, "buffer_size": 44}, "must divide buffer_size = 44, .* 8"),
        ("dqn", {"num_devices": 2, "replay_memory": "host"}, "replay_memory must be 'device'"),
        ("random", {"num_devices": 2}, "num_devices must be 1 with Memoryless"),
    ],
)
def test_shares_that_can_not_be_are_refused(learner, options, says):
    with pytest.raises(InvalidArgumentError, match=says):
        loop_of(learner, **options)


# No key is drawn from twice, so no two draws are the same numbers.


DRAWN = []


def _recorded_bits(key, bit_width, shape):
    jax.debug.callback(lambda words: DRAWN.append(tuple(np.asarray(words).tolist())), key)
    return random._random_bits(key, bit_width, shape)


RECORDING = define_prng_impl(
    key_shape=(2,),
    seed=random._seed,
    split=random._split,
    random_bits=_recorded_bits,
    fold_in=random._fold,
    name="recording",
    tag="rec",
)


# An environment whose step and whose reset draw.
SNAKE = make_env("snake", height=4, width=4)


def keys_drawn_from_twice(run):
    DRAWN.clear()
    run(jax.random.key(0, impl=RECORDING))
    jax.effects_barrier()
    assert len(DRAWN) > 10
    return [key for key, uses in collections.Counter(DRAWN).items() if uses > 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "options", "num_devices"),
    # One device computes the shares of four, so that callbacks see each of them.
    [
        ("ppo", {}, 4),
        ("dqn", {"priority_alpha": 0.6}, 1),
        *((name, {}, 1) for name in learners.SMALL if name not in ("ppo", "dqn")),
    ],
)
def test_a_training_draws_from_no_key_twice(agent, options, num_devices):
    env = SNAKE if learners.env_of(agent) == "cartpole" else make_env("pendulum")
    small = learners.SMALL[agent]
    at_once = {"learning_starts": 1} if "learning_starts" in small else {}
    learner = make_learner(agent, env, **small | at_once | options)
    loop = LearningLoop(env, learner, 2 * num_devices, num_devices=num_devices)

    def train(key):
        state = jax.jit(loop.init)(key)
        jax.jit(loop.run)(state, jnp.int32(2), jnp.bool_(True))  # noqa: FBT003

    assert keys_drawn_from_twice(train) == []


def test_a_rollout_draws_from_no_key_twice():
    rollout = Rollout(SNAKE, make_agent("random", SNAKE), num_envs=2, scan_chunk_size=2)
    assert keys_drawn_from_twice(lambda key: rollout.run(rollout.init(key), num_steps=5)) == []
