"""PPO against independent NumPy references, what holds for every learner, and learning itself."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

from myriad import create_config, make_env, make_key, train_and_evaluate
from myriad.agents import make_learner
from myriad.agents.gradients import annealed
from myriad.agents.minibatches import (
    BLOCK_ROWS,
    draw_permutation,
    map_over_blocks,
    mean_over_blocks,
)
from myriad.agents.policies import CategoricalPolicy, GaussianPolicy, TanhGaussianPolicy
from myriad.agents.ppo import PPO, PPOBatch, gae
from myriad.agents.trajectory import Trajectory
from myriad.engine.random import Counter
from myriad.errors import InvalidArgumentError
from myriad.spaces import Box
from myriad.training.loop import LearningLoop

SMALL = {"rollout_steps": 8, "num_epochs": 2, "num_minibatches": 4, "hidden_sizes": (8,)}
KEYS = jax.random.split(make_key(0), 20_000)
BEGIN = jnp.array(True)  # noqa: FBT003  (an array's value, not a switch)


def loop(env="cartpole-control", num_envs=4, **overrides):
    made = make_env(env)
    return LearningLoop(made, PPO.create(made, **{**SMALL, **overrides}), num_envs)


def first_state(learner, num_envs):
    """Return a learner's first state in NumPy, whose operations compile nothing."""
    return jax.device_get(jax.jit(learner.init, static_argnums=1)(make_key(0), num_envs))


def random_batch(rng, size, num_obs, choice):
    columns = rng.normal(size=(4, size)).astype(np.float32)
    obs = rng.normal(size=(size, num_obs)).astype(np.float32)
    return PPOBatch(obs, choice, *(0.3 * columns - 0.5))


def test_advantages_are_the_sum_over_the_rest_of_each_episode():
    rng, (T, N), gamma, lam = np.random.default_rng(0), (9, 3), 0.9, 0.8
    reward, value, next_value = rng.normal(size=(3, T, N)).astype(np.float32)
    terminated = rng.random((T, N)) < 0.2
    done = terminated | (rng.random((T, N)) < 0.2)
    expected = np.zeros((T, N))
    for n in range(N):
        for t in range(T):
            weight = 1.0
            for k in range(t, T):
                expected[t, n] += weight * (
                    reward[k, n] + gamma * (not terminated[k, n]) * next_value[k, n] - value[k, n]
                )
                weight *= gamma * lam
                if done[k, n]:
                    break
    np.testing.assert_allclose(
        gae(*map(jnp.asarray, (reward, value, next_value, terminated, done)), gamma, lam),
        expected,
        atol=1e-5,
    )


@pytest.mark.slow
def test_truncation_bootstraps_from_the_last_observation_and_termination_from_none():
    learner = PPO.create(
        make_env("cartpole-control"), **SMALL, gamma=0.5, gae_lambda=0.0, normalize_rewards=False
    )
    state = first_state(learner, 3)
    T, N = 8, 3
    obs = jax.random.normal(jax.random.key(1), (T, N, 4))
    final_value = np.random.default_rng(1).normal(size=(T, N)).astype(np.float32)
    truncated = np.zeros((T, N), bool)
    truncated[2, 0] = truncated[5, 0] = truncated[7, 0] = truncated[4, 2] = True
    terminated = np.zeros((T, N), bool)
    terminated[3, 1] = True
    trajectory = Trajectory(
        obs, jnp.asarray(final_value), (jnp.zeros((T, N, 2)), jnp.zeros((T, N, 1))),
        jnp.ones((T, N)), jnp.ones((T, N)),
        jnp.asarray(terminated), jnp.asarray(truncated),
    )  # fmt: skip
    last_obs = jnp.full((N, 4), 0.3)
    values = jax.jit(learner._values)
    value = np.asarray(values(state.params, obs))
    next_value = np.concatenate([value[1:], values(state.params, last_obs)[None]])
    next_value = np.where(truncated, final_value, np.where(terminated, 0, next_value))
    batch = jax.jit(learner._batch)(state, trajectory, last_obs)
    np.testing.assert_allclose(batch.target.reshape(T, N), 1 + 0.5 * next_value, atol=1e-5)
    np.testing.assert_allclose(
        batch.advantage.reshape(T, N), 1 + 0.5 * next_value - value, atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("value_clip", [None, 0.2])
def test_the_loss_for_categorical_actions_is_equation_9(value_clip):
    env, rng = make_env("bucket-brigade"), np.random.default_rng(0)
    learner = PPO.create(env, **SMALL, value_clip=value_clip, entropy_coef=0.02, value_coef=0.7)
    params = jax.tree.map(lambda leaf: leaf + 0.1, first_state(learner, 4).params)
    nvec = learner.policy.nvec
    choice = rng.integers(0, nvec, (6, 3)).astype(np.float32)
    batch = random_batch(rng, 6, learner._obs_size, choice)
    outputs = np.asarray(jax.jit(learner._outputs)(params, batch.obs), np.float64)
    log_prob = entropy = 0
    for i, logits in enumerate(np.split(outputs, np.cumsum(nvec)[:-1], axis=-1)):
        probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        log_prob = log_prob + np.log(probs[np.arange(6), choice[:, i].astype(int)])
        entropy = entropy - (probs * np.log(probs)).sum(-1)
    assert_loss(learner, params, batch, log_prob, entropy)


@pytest.mark.slow
def test_the_loss_for_continuous_actions_is_equation_9():
    learner, rng = (
        PPO.create(make_env("pendulum-control"), **SMALL, entropy_coef=0.02),
        np.random.default_rng(0),
    )
    params = jax.tree.map(lambda leaf: leaf + 0.1, first_state(learner, 4).params)
    batch = random_batch(rng, 6, 3, rng.normal(size=(6, 1)).astype(np.float32))
    mean = np.tanh(np.asarray(jax.jit(learner._outputs)(params, batch.obs), np.float64))
    std = np.exp(float(params["log_std"][0]))
    deviation = (np.asarray(batch.choice) - mean) / std
    log_prob = (-0.5 * deviation**2 - np.log(std) - 0.5 * np.log(2 * np.pi))[:, 0]
    assert_loss(learner, params, batch, log_prob, 0.5 * np.log(2 * np.pi * np.e * std**2))


def assert_loss(learner, params, batch, log_prob, entropy):
    """Hold the loss to a plain one, given what the policy says in float64."""
    ratio = np.exp(log_prob - np.asarray(batch.log_prob))
    clipped = np.clip(ratio, 0.8, 1.2)
    surrogate = np.minimum(ratio * batch.advantage, clipped * batch.advantage).mean()
    value = np.asarray(jax.jit(learner._values)(params, batch.obs))
    error = (value - batch.target) ** 2
    if learner.value_clip is not None:
        near = batch.value + np.clip(value - batch.value, -learner.value_clip, learner.value_clip)
        error = np.maximum(error, (near - batch.target) ** 2)
    expected = (
        -surrogate + learner.value_coef * error.mean() - learner.entropy_coef * np.mean(entropy)
    )
    loss, metrics = jax.jit(learner.loss)(params, batch)
    assert float(loss) == pytest.approx(float(expected), rel=1e-5, abs=1e-5)
    assert float(metrics["clip_fraction"]) == pytest.approx(np.mean(ratio != clipped))


@pytest.mark.slow
@pytest.mark.parametrize(("max_grad_norm", "epsilon"), [(math.inf, 1e-5), (0.05, 1e-3)])
def test_a_gradient_step_is_adam_on_standardised_advantages_and_a_clipped_gradient(
    max_grad_norm, epsilon
):
    env = make_env("cartpole-control")
    options = {
        "num_epochs": 1,
        "num_minibatches": 1,
        "anneal_updates": 4,
        "max_grad_norm": max_grad_norm,
        "optimizer_epsilon": epsilon,
    }
    learner = PPO.create(env, **{**SMALL, **options})
    learning = LearningLoop(env, learner, 4)
    state = jax.jit(learning.init)(make_key(0))
    state = dataclasses.replace(
        state, agent=dataclasses.replace(state.agent, num_updates=Counter.of(1))
    )

    @jax.jit
    def collected():
        after, trajectory = learning.collect(state)
        # What `learn` makes of it: moments for rewards include the rollout.
        obs_stats = state.agent.obs_stats.update(trajectory.obs)
        return_stats = state.agent.return_stats.update(trajectory.discounted_return)
        under = dataclasses.replace(state.agent, obs_stats=obs_stats, return_stats=return_stats)
        batch = learner._batch(under, trajectory, after.batch_state.obs)
        batch = dataclasses.replace(batch, obs=learner._inputs(under, batch.obs))
        return after, trajectory, batch

    after_collecting, trajectory, batch = collected()
    learned = jax.jit(learning.learn)(after_collecting, trajectory)
    params = learned.agent.params
    state = state.agent
    advantage = (batch.advantage - batch.advantage.mean()) / batch.advantage.std()
    standardised = dataclasses.replace(batch, advantage=advantage)
    gradient = jax.device_get(
        jax.jit(jax.grad(lambda p: learner.loss(p, standardised)[0]))(state.params)
    )
    norm = math.sqrt(sum(float(np.sum(leaf**2)) for leaf in jax.tree.leaves(gradient)))
    factor = min(1, max_grad_norm / norm)
    # Adam's first step with both moments corrected for their start is g / (|g| + eps).
    rate = 0.75 * learner.learning_rate
    expected = jax.tree.map(
        lambda p, g: p - rate * factor * g / (abs(factor * g) + epsilon), state.params, gradient
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), params, expected)


def test_the_learning_rate_falls_to_zero_and_no_further():
    rates = [float(annealed(0.5, Counter.of(n), 4)) for n in (0, 1, 4, 9, 2**40)]
    assert rates == [0.5, 0.375, 0, 0, 0]
    assert float(annealed(0.5, Counter.of(10**12), 4 * 10**12)) == pytest.approx(0.375)
    assert annealed(0.5, Counter.of(9), None) == 0.5


@pytest.mark.parametrize("size", [1, 7, pytest.param((1 << 20) + 3, marks=pytest.mark.slow)])
def test_permutations_hold_every_index_once(size):
    drawn = [np.asarray(draw_permutation(make_key(seed), size)) for seed in (0, 1)]
    np.testing.assert_array_equal(np.sort(drawn), np.tile(np.arange(size), (2, 1)))
    assert size == 1 or not (drawn[0] == drawn[1]).all()


@pytest.mark.slow
def test_a_permutation_of_many_rows_leaves_none_of_their_order():
    # Of 2**26 rows a single word would leave six random bits: rows in 64 runs, each in order.
    size = 1 << 22
    order = np.asarray(draw_permutation(make_key(0), size))
    ascents = np.count_nonzero(np.diff(order) > 0)
    assert abs(ascents - size / 2) < 5 * math.sqrt(size / 12)


@pytest.mark.slow
@pytest.mark.parametrize("num_rows", [2 * BLOCK_ROWS, 3 * 521])
def test_blocks_change_nothing_but_the_memory(num_rows):
    rows = jax.random.normal(jax.random.key(0), (num_rows, 3))
    np.testing.assert_allclose(
        mean_over_blocks(lambda block: block.mean(0), rows), rows.mean(0), atol=1e-6
    )
    np.testing.assert_array_equal(
        map_over_blocks(lambda block: block[:, 0] * 2, rows), rows[:, 0] * 2
    )


@pytest.mark.slow
def test_categorical_draws_follow_their_probabilities():
    policy = CategoricalPolicy((3, 2), scalar=False)
    logits = jnp.tile(jnp.log(jnp.array([0.2, 0.5, 0.3, 0.9, 0.1])), (20_000, 1))
    drawn = np.asarray(policy.action(policy.sample(KEYS, logits, policy.initial_log_std())))
    np.testing.assert_allclose(
        np.bincount(drawn[:, 0], minlength=3) / 20_000, [0.2, 0.5, 0.3], atol=0.012
    )
    np.testing.assert_allclose(
        np.bincount(drawn[:, 1], minlength=2) / 20_000, [0.9, 0.1], atol=0.012
    )
    np.testing.assert_array_equal(policy.action(policy.mode(logits))[0], [1, 0])


@pytest.mark.slow
def test_gaussian_draws_span_the_box_and_are_clipped_to_it():
    policy = GaussianPolicy(
        Box(np.array([0.0, -np.inf]), np.array([4.0, np.inf]), (2,)), first_log_std=-1.0
    )
    mean = jnp.tile(jnp.array([0.5, 30.0]), (20_000, 1))
    drawn = policy.sample(KEYS, mean, policy.initial_log_std())
    np.testing.assert_allclose(drawn.std(0), math.exp(-1), atol=0.01)
    action = np.asarray(policy.action(drawn))
    assert action[:, 0].max() == 4
    assert action[:, 0].min() >= 0
    np.testing.assert_allclose(
        policy.action(policy.mode(mean))[0], [2 + 2 * math.tanh(0.5), 30], rtol=1e-6
    )
    far = policy.action(policy.mode(jnp.array([[1e3, 1e3]])))[0]
    np.testing.assert_allclose(far, [4, 1e3])
    scaled = dataclasses.replace(policy, action_scale=10.0)
    np.testing.assert_allclose(scaled.action(jnp.array([[0.5, 3.0]]))[0], [3, 30])


def test_squashed_draws_have_the_density_of_the_change_of_variables_and_stay_in_the_box():
    bounds = np.array([-2.0, 0.0, -np.inf]), np.array([2.0, 10.0, np.inf])
    policy = TanhGaussianPolicy(Box(*bounds, (3,)), first_log_std=-0.5, action_scale=4.0)
    row = np.float32([0.4, -0.3, 2.0, 0.3, -0.2, 0.1])
    outputs = jnp.tile(row, (20_000, 1))
    choice = policy.sample(KEYS, outputs, policy.initial_log_std())
    action = np.asarray(policy.action(choice), np.float64)
    assert (abs(action[:, 0]) < 2).all()
    assert ((action[:, 1] > 0) & (action[:, 1] < 10)).all()
    # The density of actions in units in which -1 to 1 spans the box.
    unit = np.stack([action[:, 0] / 2, action[:, 1] / 5 - 1, action[:, 2] / 4], axis=1)
    unsquashed = np.stack([*np.arctanh(unit[:, :2].T), unit[:, 2]], axis=1)
    mean, std = row[:3].astype(np.float64), np.exp(np.float64(row[3:]) - 0.5)
    expected = stats.norm(mean, std).logpdf(unsquashed).sum(1)
    expected -= np.log(1 - unit[:, :2] ** 2).sum(1)
    log_prob, entropy = policy.log_prob_and_entropy(outputs, jnp.zeros(0), choice)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(entropy[0], -expected.mean(), atol=5 * expected.std() / 20_000**0.5)
    middle = policy.action(policy.mode(outputs))[0]
    np.testing.assert_allclose(middle, [2 * np.tanh(0.4), 5 + 5 * np.tanh(-0.3), 8], rtol=1e-6)


def test_squashed_draws_far_beyond_the_bounds_have_a_density_and_a_gradient():
    policy = TanhGaussianPolicy(Box(-1.0, 1.0, (1,)))
    choice = jnp.float32([[-50], [0], [50]])

    def total(outputs):
        return sum(each.sum() for each in policy.log_prob_and_entropy(outputs, None, choice))

    for far in ([0.0, 100.0], [40.0, -100.0]):
        found = jax.value_and_grad(total)(jnp.tile(jnp.float32(far), (3, 1)))
        assert all(jnp.isfinite(each).all() for each in found)
    np.testing.assert_array_equal(policy.action(choice), [[-1], [0], [1]])


@dataclasses.dataclass(frozen=True)
class FarAway:
    """The best action is 50, and nothing says so but the reward."""

    default_params = ()

    def reset(self, key, params):
        return jnp.zeros(1), jnp.int32(0)

    def step(self, key, state, action, params):
        reward = -jnp.square(action[0] - 50) / 100
        return jnp.zeros(1), state + 1, reward, jnp.bool_(0), state >= 9, {}

    def observation_space(self, params):
        return Box(-1.0, 1.0, (1,))

    def action_space(self, params):
        return Box(-np.inf, np.inf, (1,))


@pytest.mark.slow
def test_an_unbounded_action_far_from_zero_is_found_with_its_scale():
    learner = make_learner("ppo", FarAway(), 16, action_scale=10.0, first_log_std=0.5)
    learning = LearningLoop(learner.env, learner, 16)
    state = jax.jit(learning.init)(make_key(0))
    np.testing.assert_array_equal(state.agent.params["log_std"], [0.5])
    state, _ = jax.jit(learning.run)(state, jnp.int32(98), BEGIN)
    action = learner.act(state.agent, make_key(1), jnp.zeros((1, 1)), greedy=True)
    assert abs(action.item() - 50) < 2


@pytest.mark.parametrize(
    ("env", "field", "value"),
    [
        ("cartpole-control", "first_log_std", 3.0),
        ("cartpole-control", "action_scale", 3.0),
        ("cartpole-control", "squash_actions", True),
        ("pendulum-control", "action_scale", 3.0),
    ],
)
def test_a_choice_of_draws_that_has_no_effect_is_refused(env, field, value):
    message = f"^{field} must be .* no effect, but got {value}"
    with pytest.raises(InvalidArgumentError, match=message):
        make_learner("ppo", make_env(env), **{field: value})


@pytest.mark.slow
def test_the_actions_of_a_box_of_integers_are_integers_that_it_accepts():
    space = Box(np.array([-3, 0]), np.array([2, 255]), (2,), np.int16)
    policy = GaussianPolicy(space)
    choice = policy.sample(KEYS, jnp.zeros((20_000, 2)), policy.initial_log_std())
    action = policy.action(choice)
    jax.vmap(space.validate)(action)
    assert action.dtype == np.int16
    assert space.contains(action)
    assert set(np.unique(action[:, 0])) == {-3, -2, -1, 0, 1, 2}
    np.testing.assert_array_equal(policy.action(jnp.array([[0.2, -1.0]]))[0], [0, 0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "options"), [("cartpole", {}), ("pendulum", {"squash_actions": True})]
)
def test_the_first_gradient_step_sees_the_policy_that_acted(env, options):
    learning = loop(env, num_epochs=1, num_minibatches=1, **options)
    run = jax.jit(learning.run)
    # The first update is another case: before it there are no moments to act under.
    state, _ = run(jax.jit(learning.init)(make_key(0)), jnp.int32(1), BEGIN)
    for count in (2, 3):
        state, report = run(state, jnp.int32(1), BEGIN)
        assert float(state.agent.obs_stats.count) == count * 8 * 4
        assert float(state.agent.return_stats.count) == count * 8 * 4
        # Every ratio is 1, and standardised advantages have mean 0.
        assert abs(float(report.metric_sums["policy_loss"])) < 1e-6
        assert float(report.metric_sums["clip_fraction"]) == 0


@pytest.mark.slow
def test_an_update_takes_no_more_steps_once_the_policy_is_far():
    def after(target_kl):
        options = {"learning_rate": 0.03, "normalize_observations": False}
        learning = loop(**options, target_kl=target_kl)
        state, _ = jax.jit(learning.run)(jax.jit(learning.init)(make_key(0)), jnp.int32(1), BEGIN)
        counts = [leaf for leaf in jax.tree.leaves(state.agent.opt_state) if leaf.dtype == "int32"]
        return int(counts[0]), state

    free, of_free = after(None)
    held, of_held = after(1e9)
    assert free == held == 8
    np.testing.assert_allclose(*(ravel_pytree(s.agent.params)[0] for s in (of_free, of_held)))
    assert "approx_kl" not in of_free.metric_sums
    assert of_held.metric_sums["approx_kl"] > 0
    # The first minibatch finds the policy that acted. The step on it leads too far already.
    assert after(1e-5)[0] == 1


@pytest.mark.long
@pytest.mark.parametrize("squash_actions", [False, True])
def test_a_default_training_swings_the_pendulum_up(squash_actions, tmp_path):
    config = create_config("pendulum", "ppo", **{"agent.squash_actions": squash_actions})
    assert train_and_evaluate(config, tmp_path).final_returns[0] > -250
