"""PPO against independent NumPy references, and what all learners from rollouts share with it."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

from myriad import make_env, make_key
from myriad.agents import minibatches
from myriad.agents.gradients import annealed
from myriad.agents.minibatches import BLOCK_ROWS, draw_permutation, mean_over_blocks
from myriad.agents.policies import CategoricalPolicy, GaussianPolicy, TanhGaussianPolicy
from myriad.agents.ppo import PPO
from myriad.agents.trajectory import act_and_step
from myriad.engine.random import Counter
from myriad.spaces import Box, Discrete
from myriad.training.loop import LearningLoop
from tests.agents.plain_networks import Unplayed, apply

SMALL = {"rollout_steps": 8, "num_epochs": 2, "num_minibatches": 4, "hidden_sizes": (8,)}
KEYS = jax.random.split(make_key(0), 20_000)
BEGIN = jnp.array(True)  # noqa: FBT003  (an array's value, not a switch)


def advantages(reward, value, next_value, terminated, done, gamma, lam):
    """Sum the weighted errors over the rest of each episode, by definition and not recursion."""
    (T, N), expected = reward.shape, np.zeros(reward.shape)
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
    return expected


def log_prob_and_entropy(policy, params, obs, choice):
    """Return what the definitions of the categorical and of the normal distribution say."""
    outputs = apply(params["actor"]["params"], obs, jnp.tanh)
    if isinstance(policy, GaussianPolicy):
        std = jnp.exp(params["log_std"])
        density = jax.scipy.stats.norm.logpdf(choice, jnp.tanh(outputs), std)
        return density.sum(1), jnp.sum(0.5 * jnp.log(2 * jnp.pi * jnp.e * std**2))
    log_prob = entropy = 0
    for i, logits in enumerate(jnp.split(outputs, np.cumsum(policy.nvec)[:-1], axis=1)):
        probs = jnp.exp(logits) / jnp.exp(logits).sum(1, keepdims=True)
        log_prob += jnp.log(probs[jnp.arange(len(probs)), choice[:, i].astype(int)])
        entropy -= jnp.sum(probs * jnp.log(probs), axis=1)
    return log_prob, entropy


def value_of(params, obs):
    return apply(params["critic"]["params"], obs, jnp.tanh)[..., 0]


def rows_of(learner, state, rollout, last_obs):
    """Return what the loss is computed from, `[32, ...]`, normalised."""
    obs = state.obs_stats.normalize(rollout.obs)
    value = value_of(state.params, obs)
    last_value = value_of(state.params, state.obs_stats.normalize(last_obs))
    following = np.concatenate([value[1:], last_value[None]])
    of_returns = state.return_stats.update(rollout.discounted_return)
    advantage = advantages(
        np.asarray(of_returns.scale(rollout.reward)),
        np.asarray(value),
        np.where(rollout.truncated, rollout.final_value, following),
        np.asarray(rollout.terminated),
        np.asarray(rollout.terminated | rollout.truncated),
        learner.gamma,
        learner.gae_lambda,
    )
    rows = {"obs": obs, "choice": rollout.choice[1], "value": value, "advantage": advantage}
    rows = {name: jnp.float32(each).reshape(32, *each.shape[2:]) for name, each in rows.items()}
    return rows | {"target": rows["advantage"] + rows["value"]}


def loss_of(params, learner, old_params, rows):
    """Return the negative of equation 9, and the share of ratios that are clipped."""
    obs, choice = rows["obs"], rows["choice"]
    log_prob, entropy = log_prob_and_entropy(learner.policy, params, obs, choice)
    ratio = jnp.exp(log_prob - log_prob_and_entropy(learner.policy, old_params, obs, choice)[0])
    clipped = jnp.clip(ratio, 1 - learner.clip_epsilon, 1 + learner.clip_epsilon)
    advantage = (rows["advantage"] - rows["advantage"].mean()) / rows["advantage"].std()
    surrogate = jnp.minimum(ratio * advantage, clipped * advantage).mean()
    value, limit = value_of(params, obs), learner.value_clip
    error = (value - rows["target"]) ** 2
    if limit is not None:
        near = rows["value"] + jnp.clip(value - rows["value"], -limit, limit)
        error = jnp.maximum(error, (near - rows["target"]) ** 2)
    bonus = learner.entropy_coef * jnp.mean(entropy)
    return -surrogate + learner.value_coef * error.mean() - bonus, jnp.mean(ratio != clipped)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "max_steps", "options"),
    [
        ("cartpole", 5, {"value_clip": 0.02, "value_coef": 0.7, "max_grad_norm": math.inf}),
        ("pendulum", 5, {"max_grad_norm": 0.05, "optimizer_epsilon": 1e-3, "clip_epsilon": 0.05}),
        ("bucket-brigade", None, {"entropy_coef": 0.2, "preserve_outputs": False}),
    ],
    ids=str,
)
def test_an_update_is_that_of_the_papers_on_the_same_rollout(env, max_steps, options):
    made = make_env(env, **({"max_steps": max_steps} if max_steps else {}))
    options = {"learning_rate": 0.04, "anneal_updates": 4, "hidden_sizes": (8, 8)} | options
    learner = PPO.create(made, **SMALL | options)
    loop = LearningLoop(made, learner, 4)
    # After a first update there are moments, and the learning rate has fallen.
    state, _ = jax.jit(loop.run)(jax.jit(loop.init)(make_key(5)), np.int32(1), BEGIN)
    key, before, at = make_key(6), state.agent, state.batch_state
    after, _, metrics = jax.jit(lambda: learner.update(key, before, at, loop))()
    _, ahead, rollout = jax.jit(lambda: learner.collect(key, before, at, loop))()
    assert rollout.truncated.any() == (max_steps is not None)
    rows = rows_of(learner, before, rollout, ahead.obs.reshape(4, -1))
    flat, unravel = ravel_pytree(before.params)
    rule = optax.chain(
        optax.clip_by_global_norm(learner.max_grad_norm),
        optax.scale_by_adam(eps=learner.optimizer_epsilon),
    )

    @jax.jit
    def reference_step(flat, opt_state, part):
        gradient_fn = jax.value_and_grad(
            lambda flat: loss_of(unravel(flat), learner, before.params, part), has_aux=True
        )
        reported, gradient = gradient_fn(flat)
        step, opt_state = rule.update(gradient, opt_state)
        return flat - 0.75 * 0.04 * step, opt_state, reported

    opt_state, reports = before.opt_state, []
    for epoch in range(2):
        order = draw_permutation(jax.random.fold_in(jax.random.fold_in(key, 1), epoch), 32)
        for each in order.reshape(4, 8):
            part = {name: column[each] for name, column in rows.items()}
            flat, opt_state, reported = reference_step(flat, opt_state, part)
            reports.append(reported)
    loss, clip_fraction = np.mean(reports, axis=0)
    assert clip_fraction > 0
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(metrics["clip_fraction"], clip_fraction, atol=1e-6)
    # The first layers follow the moments, so that the outputs are those of the last step.
    stats = after.obs_stats if learner.preserve_outputs else before.obs_stats
    inputs = stats.normalize(rollout.obs.reshape(32, -1))
    for outputs in (learner._outputs, learner._values):
        expected, found = outputs(unravel(flat), rows["obs"]), outputs(after.params, inputs)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    if env == "pendulum":
        np.testing.assert_allclose(after.params["log_std"], unravel(flat)["log_std"], atol=1e-5)


def test_the_learning_rate_falls_to_zero_and_no_further():
    rates = [float(annealed(0.5, Counter.of(n), 4)) for n in (0, 1, 4, 9, 2**40)]
    assert rates == [0.5, 0.375, 0, 0, 0]
    assert float(annealed(0.5, Counter.of(10**12), 4 * 10**12)) == pytest.approx(0.375)
    assert annealed(0.5, Counter.of(9), None) == 0.5


@pytest.mark.parametrize("size", [1, 7, pytest.param(1 << 22, marks=pytest.mark.slow)])
def test_permutations_hold_every_index_once_and_leave_no_order(size):
    drawn = [np.asarray(draw_permutation(make_key(seed), size)) for seed in (0, 1)]
    np.testing.assert_array_equal(np.sort(drawn), np.tile(np.arange(size), (2, 1)))
    assert size == 1 or not (drawn[0] == drawn[1]).all()
    # Of 2**26 rows a single word would leave six random bits: rows in 64 runs, each in order.
    ascents = np.count_nonzero(np.diff(drawn[0]) > 0)
    assert size < 100 or abs(ascents - size / 2) < 5 * math.sqrt(size / 12)


@pytest.mark.slow
@pytest.mark.parametrize("num_rows", [2 * BLOCK_ROWS, 3 * 521])
def test_the_mean_over_blocks_is_that_of_all_rows(num_rows):
    rows = jax.random.normal(jax.random.key(0), (num_rows, 3))
    of_blocks = mean_over_blocks(lambda block: block.mean(0), rows)
    np.testing.assert_allclose(of_blocks, rows.mean(0), atol=1e-6)


def test_parts_take_a_sixteenth_of_the_memory(monkeypatch):
    monkeypatch.setattr(minibatches, "BLOCK_ROWS", 1 << 30)  # blocks for the cache save it, too

    def loss(weights, rows):
        return jnp.mean(jnp.tanh(rows @ weights) ** 2)

    def temporaries(parts):
        gradient = functools.partial(jax.grad(loss), jnp.ones((64, 256)))
        program = jax.jit(lambda rows: mean_over_blocks(gradient, rows, parts))
        compiled = program.lower(jnp.ones((16_384, 64))).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporaries(1) >= 10 * temporaries(16)


@pytest.mark.slow
@pytest.mark.parametrize("narrow", [64, 0])
def test_an_episode_that_was_truncated_is_valued_by_its_last_observation(narrow, monkeypatch):
    monkeypatch.setattr(minibatches, "_NARROW", narrow)

    def choose(keys, obs):
        return jax.vmap(lambda key: jax.random.bernoulli(key).astype(jnp.int32))(keys), None

    def value(obs):
        return 3 + obs @ jnp.array([1.0, 2.0, 3.0, 4.0])

    env = make_env("cartpole-control", max_steps=3)  # Each is truncated, two in a rollout.
    learner = PPO.create(env, **SMALL)
    loop = LearningLoop(env, learner, 5)
    state, key = loop.init(make_key(0)), make_key(1)
    at, expected = state.batch_state, []
    rollout = jax.jit(lambda: learner.rollout(key, state.agent, at, loop, choose, value)[2])()
    for t in range(8):
        at, _, result = act_and_step(key, jnp.uint32(t), at, choose, loop)
        is_cut = result.truncated & ~result.terminated
        expected.append(np.where(is_cut, value(result.final_obs), 0))
    assert np.count_nonzero(expected) == 5 * 2
    np.testing.assert_allclose(rollout.final_value, expected, rtol=1e-5)
    np.testing.assert_array_equal(rollout.truncated, np.array(expected) != 0)


def test_observations_keep_their_dtype():
    env = Unplayed(Box(0, 255, (4,), np.uint8), Discrete(2))
    loop = LearningLoop(env, PPO.create(env, **SMALL), 8)
    state = jax.eval_shape(loop.init, make_key(0))
    assert jax.eval_shape(loop.collect, state)[1].obs.dtype == np.uint8


@pytest.mark.slow
def test_categorical_draws_follow_their_probabilities():
    policy = CategoricalPolicy((3, 2), scalar=False)
    shares = np.array([0.2, 0.5, 0.3, 0.9, 0.1])
    logits = jnp.tile(jnp.log(shares), (20_000, 1))
    drawn = np.asarray(policy.action(policy.sample(KEYS, logits, policy.initial_log_std())))
    found = [np.bincount(drawn[:, i], minlength=n) / 20_000 for i, n in enumerate((3, 2))]
    np.testing.assert_allclose(np.concatenate(found), shares, atol=0.012)
    np.testing.assert_array_equal(policy.action(policy.mode(logits))[0], [1, 0])


@pytest.mark.slow
def test_gaussian_draws_span_the_box_and_are_clipped_to_it():
    space = Box(np.array([0.0, -np.inf]), np.array([4.0, np.inf]), (2,))
    env = Unplayed(Box(0.0, 1.0, (1,)), space)
    policy = PPO.create(env, first_log_std=-1.0).policy
    mean = jnp.tile(jnp.array([0.5, 30.0]), (20_000, 1))
    drawn = policy.sample(KEYS, mean, policy.initial_log_std())
    np.testing.assert_allclose(drawn.std(0), math.exp(-1), atol=0.01)
    action = np.asarray(policy.action(drawn))
    assert action[:, 0].max() == 4
    assert action[:, 0].min() >= 0
    for output, expected in (([0.5, 30.0], [2 + 2 * math.tanh(0.5), 30]), ([1e3, 1e3], [4, 1e3])):
        found = policy.action(policy.mode(jnp.array([output])))[0]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    scaled = PPO.create(env, action_scale=10.0).policy
    np.testing.assert_allclose(scaled.action(jnp.array([[0.5, 3.0]]))[0], [3, 30])
    # Of a box of integers, they are integers that it accepts.
    space = Box(np.array([-3, 0]), np.array([2, 255]), (2,), np.int16)
    policy = GaussianPolicy(space)
    action = policy.action(policy.sample(KEYS, jnp.zeros((20_000, 2)), policy.initial_log_std()))
    assert action.dtype == np.int16
    assert space.contains(action)
    assert set(np.unique(action[:, 0])) == {-3, -2, -1, 0, 1, 2}
    np.testing.assert_array_equal(policy.action(jnp.array([[0.2, -1.0]]))[0], [0, 0])


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


@pytest.mark.slow
def test_an_update_takes_no_more_steps_once_the_policy_is_far():
    def after(target_kl):
        options = SMALL | {"learning_rate": 0.03, "normalize_observations": False}
        env = make_env("cartpole-control")
        learning = LearningLoop(env, PPO.create(env, **options, target_kl=target_kl), 4)
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
