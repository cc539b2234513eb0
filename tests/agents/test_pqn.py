"""PQN: its update against an independent one in NumPy, a learner's properties, and learning."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from myriad import make_env
from myriad.agents import pqn
from myriad.agents.minibatches import draw_permutation
from myriad.agents.networks import NetworkSpec
from myriad.agents.pqn import PQN
from myriad.agents.q_learning import QNetwork, epsilon_greedy
from myriad.engine.random import Counter, make_key
from myriad.training.loop import LearningLoop
from tests.agents.plain_networks import apply

SMALL = {"rollout_steps": 8, "num_minibatches": 2, "num_epochs": 2, "hidden_sizes": (8, 8)}


def reference_returns(reward, next_value, terminated, done, gamma, td_lambda):
    """Mix n-step returns by definition, not recursion: weights (1 - lambda) lambda**(n - 1)."""
    num_steps, num_envs = reward.shape
    targets = np.zeros(reward.shape)
    for env_index in range(num_envs):
        for t in range(num_steps):
            last = next((s for s in range(t, num_steps) if done[s, env_index]), num_steps - 1)
            total, returns = 0.0, []
            for s in range(t, last + 1):
                total += gamma ** (s - t) * reward[s, env_index]
                ahead = 0.0 if terminated[s, env_index] else next_value[s, env_index]
                returns.append(total + gamma ** (s - t + 1) * ahead)
            weights = [(1 - td_lambda) * td_lambda**n for n in range(len(returns) - 1)]
            targets[t, env_index] = np.dot([*weights, td_lambda ** (len(returns) - 1)], returns)
    return targets


@pytest.mark.parametrize("td_lambda", [0.65, 1.0])
def test_lambda_returns_are_mixtures_of_n_step_returns_cut_at_ends(td_lambda):
    rng = np.random.default_rng(1)
    reward, next_value = rng.normal(size=(2, 12, 40)).astype(np.float32)
    ended = rng.random(reward.shape)
    terminated, done = ended < 0.1, ended < 0.2
    arguments = (reward, next_value, terminated, done)
    targets = pqn.lambda_returns(*map(jnp.asarray, arguments), 0.97, td_lambda)
    expected = reference_returns(*arguments, 0.97, td_lambda)
    np.testing.assert_allclose(targets, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_an_update_is_the_one_that_numpy_makes_of_the_same_rollout():
    learner = PQN.create(
        make_env("cartpole-control", max_steps=5), **SMALL, learning_rate=1e-2, anneal_updates=10
    )
    loop = LearningLoop(learner.env, learner, 4)
    start = jax.jit(loop.init)(make_key(5))
    key = make_key(6)
    before = (key, start.agent, start.batch_state, loop)
    after, _, metrics = jax.jit(lambda: learner.update(*before))()
    _, ahead, trajectory = jax.jit(lambda: learner.collect(*before))()
    assert trajectory.truncated.any()

    network, old = learner._network, start.agent.params
    following = np.concatenate([trajectory.obs[1:], ahead.obs[None]])
    values = apply(network.unravel(old)["params"], following, jnp.tanh)
    variance = np.var(np.asarray(trajectory.discounted_return, np.float64))
    scaled = np.asarray(trajectory.reward) / np.sqrt(variance + 1e-8)
    done = np.asarray(trajectory.terminated | trajectory.truncated)
    target = reference_returns(
        np.clip(scaled, -10, 10),
        np.where(trajectory.truncated, trajectory.final_value, values.max(-1)),
        np.asarray(trajectory.terminated),
        done,
        0.995,
        0.95,
    )
    shuffle = jax.random.fold_in(key, 1)
    drawn = [draw_permutation(jax.random.fold_in(shuffle, epoch), 32) for epoch in range(2)]
    permutations = np.asarray(drawn).reshape(4, 16)
    obs, action = trajectory.obs.reshape(32, 4), trajectory.choice[0].reshape(32)
    rule = optax.chain(optax.clip_by_global_norm(0.1), optax.radam(1e-2, eps=1.5e-4))
    target = jnp.asarray(target.reshape(32), jnp.float32)

    def loss(params, order):
        values = apply(network.unravel(params)["params"], obs[order], jnp.tanh)
        chosen = values[jnp.arange(16), action[order]]
        return 0.5 * jnp.mean((chosen - target[order]) ** 2)

    @jax.jit
    def reference_step(params, state, order):
        value, gradient = jax.value_and_grad(loss)(params, order)
        step, state = rule.update(gradient, state)
        return params + step, state, value

    params, state, losses = old, rule.init(old), []
    for order in permutations:
        params, state, value = reference_step(params, state, order)
        losses.append(value)
    np.testing.assert_allclose(after.params, params, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(metrics["loss"], np.mean(losses), rtol=1e-4)
    mean = np.asarray(obs, np.float64).mean(0)
    np.testing.assert_allclose(after.obs_stats.mean, mean, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_epsilon_is_the_share_of_random_actions(epsilon):
    values = jnp.tile(jnp.array([0.0, 2.0, 1.0]), (60_000, 1))
    keys = jax.random.split(make_key(0), 60_000)
    action = epsilon_greedy(keys, values, jnp.float32(epsilon))
    shares = np.bincount(action, minlength=3) / len(action)
    np.testing.assert_allclose(shares, [epsilon / 3, 1 - 2 * epsilon / 3, epsilon / 3], atol=0.01)


@pytest.mark.parametrize(("spread", "ends"), [(0.0, [0.2, 0.2, 0.2]), (1.0, [0.0, 0.2, 0.4])])
def test_epsilon_falls_by_steps_of_all_environments_and_then_rests_at_its_own_value_in_each(
    spread, ends
):
    options = {**SMALL, "exploration_steps": 48, "epsilon_end": 0.2, "epsilon_spread": spread}
    learner = PQN.create(make_env("cartpole-control"), **options)
    state = learner.init(make_key(0), 3)
    for num_updates, fraction in ((0, 0.0), (1, 0.5), (2, 1.0), (9, 1.0), (2**40, 1.0)):
        after = dataclasses.replace(state, num_updates=Counter.of(num_updates))
        expected = 1 + fraction * (np.array(ends) - 1)
        np.testing.assert_allclose(learner._epsilons(after, 3), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dueling", [False, True])
def test_the_best_of_each_component_is_the_best_of_all_actions_of_a_multi_discrete(dueling):
    network = QNetwork(NetworkSpec("mlp", (5,), (8,), "tanh"), 5, dueling, (2, 3))
    obs = jax.random.normal(jax.random.key(1), (64, 5))
    # The mask closes the last choice of the second component, and in one row all of the first.
    mask = np.tile(np.array([1, 1, 1, 1, 0], np.float32), (64, 1))
    mask[0, :2] = 0
    params = jax.jit(network.init)(jax.random.key(0))
    values = network.values(params, jnp.concatenate([obs, mask], axis=1))
    each = [
        network.value_of(values, jnp.tile(jnp.array(action), (64, 1)))
        for action in itertools.product(range(2), range(3))
    ]
    np.testing.assert_array_equal(network.best_value(values), np.max(each, axis=0))
    best = network.best_action(values)
    np.testing.assert_array_equal(best[:, 0] * 3 + best[:, 1], np.argmax(each, axis=0))
    keys = jax.random.split(make_key(0), 64)
    drawn = network.epsilon_greedy(keys, values, jnp.float32(1), masked=True)
    assert set(map(tuple, drawn.tolist())) == set(itertools.product(range(2), range(2)))
