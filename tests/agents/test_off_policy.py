"""DQN, SAC and TD3: gradient steps against plain ones of the papers' equations, and actions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from myriad import make_env
from myriad.agents.actor_critic import TwinCritics
from myriad.agents.agent import alone
from myriad.agents.dqn import DQN
from myriad.agents.networks import NetworkSpec
from myriad.agents.sac import SAC
from myriad.agents.td3 import TD3
from myriad.engine.random import make_key
from myriad.spaces import Box
from tests.agents.plain_networks import SMALL, Unplayed, apply, q_value, sampled
from tests.bits import assert_same_bits
from tests.learners import trained

RATE = 1e-2


def sac(**options):
    return SAC.create(make_env("pendulum-control"), **SMALL | options)


def td3(**options):
    return TD3.create(make_env("pendulum-control"), **SMALL | options)


# SAC, by the equations of its paper, on flax's layers.


def drawn(actor, obs, noise):
    """Return actions by the reparameterisation, and their densities as in appendix C."""
    mean, log_std = jnp.split(apply(actor, obs), 2, axis=1)
    unsquashed = mean + jnp.exp(log_std) * noise
    density = jax.scipy.stats.norm.logpdf(unsquashed, mean, jnp.exp(log_std))
    return jnp.tanh(unsquashed), jnp.sum(density - jnp.log(1 - jnp.tanh(unsquashed) ** 2), axis=1)


def critic_loss(critics, actor, targets, alpha, batch, noise):
    """Equations 3 and 5, summed over both critics."""
    action, log_prob = drawn(actor, batch.next_obs, noise[:, 0])
    least = jnp.minimum(*[q_value(target, batch.next_obs, action) for target in targets])
    target = batch.reward + batch.discount * (least - alpha * log_prob)
    return sum(
        0.5 * jnp.mean((q_value(critic, batch.obs, batch.action) - target) ** 2)
        for critic in critics
    )


def actor_loss(actor, critics, alpha, batch, noise):
    """Equation 9, with the lesser of both values."""
    action, log_prob = drawn(actor, batch.obs, noise[:, 1])
    least = jnp.minimum(*[q_value(critic, batch.obs, action) for critic in critics])
    return jnp.mean(alpha * log_prob - least)


def temperature_loss(log_alpha, actor, batch, noise, target_entropy):
    """Equation 18."""
    _, log_prob = drawn(actor, batch.obs, noise[:, 1])
    return jnp.mean(-jnp.exp(log_alpha) * (log_prob + target_entropy))


def layers_of(learner, params, target_params):
    """Return the layers of the actor, of both critics and of both targets."""
    size = target_params.shape[1]
    networks = [
        *[(learner.actor, params[: -2 * size])],
        *[(learner.critics.network, each) for each in (params[-2 * size : -size], params[-size:])],
        *[(learner.critics.network, each) for each in target_params],
    ]
    actor, *others = [network.unravel(each)["params"] for network, each in networks]
    return actor, others[:2], others[2:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "rates"),
    [
        (
            {"actor_learning_rate": 3e-3, "critic_learning_rate": 2e-3,
             "temperature_learning_rate": 0.1},
            (3e-3, 2e-3, 0.1),
        ),
        ({"temperature": 0.3, "critic_learning_rate": 2e-3}, (RATE, 2e-3, 0.0)),
    ],
    ids=str,
)  # fmt: skip
def test_sacs_gradient_steps_are_those_of_optax_on_the_sampled_batches(options, rates):
    learner = sac(gradient_steps=3, learning_rate=RATE, polyak=0.9, **options)
    before, _ = trained(learner, 4, 10)
    state, key = before.agent, make_key(3)
    after, metrics = jax.jit(lambda: learner.learn(key, state, before.batch_state, None, alone))()

    noises = jax.random.normal(jax.random.fold_in(key, 2), (3, 16, 2, 1))
    rule = optax.adam(1.0)
    params, targets, log_alpha = state.params, state.target_params, state.log_temperature
    of_networks, of_alpha = (
        (optimizer, *rule.init(jnp.zeros(1))[1:])
        for optimizer in (state.opt_state, state.temperature_opt_state)
    )
    reported = []
    for noise, batch in zip(noises, sampled(learner, state, key, 4), strict=True):
        actor, critics, slow = layers_of(learner, params, targets)
        alpha = options.get("temperature", jnp.exp(log_alpha))
        arguments = (batch, noise)
        losses, of_critics = jax.value_and_grad(critic_loss)(
            critics, actor, slow, alpha, *arguments
        )
        loss, of_actor = jax.value_and_grad(actor_loss)(actor, critics, alpha, *arguments)
        gradient = jax.grad(temperature_loss)(log_alpha, actor, batch, noise, -1.0)
        of_actor, *of_critics = (ravel_pytree(each)[0] for each in (of_actor, *of_critics))
        step, of_networks = rule.update(jnp.concatenate([of_actor, *of_critics]), of_networks)
        rate = np.repeat(rates[:2], [of_actor.size, targets.size])
        params = params + rate.astype(np.float32) * step
        targets = 0.9 * targets + 0.1 * params[-targets.size :].reshape(targets.shape)
        step, of_alpha = rule.update(gradient, of_alpha)
        log_alpha = log_alpha + rates[2] * step
        reported.append([loss, losses, -drawn(actor, batch.obs, noise[:, 1])[1].mean()])
    np.testing.assert_allclose(after.params, params, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(after.target_params, targets, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(after.log_temperature, log_alpha, rtol=1e-4)
    found = [metrics[name] for name in ("actor_loss", "critic_loss", "entropy")]
    np.testing.assert_allclose(found, np.mean(reported, axis=0), rtol=1e-3)
    assert int(after.num_updates) == 11
    if "temperature" in options:
        np.testing.assert_allclose(metrics["temperature"], 0.3, rtol=1e-6)


def test_a_density_is_finite_however_far_a_choice_is_and_choices_span_the_box():
    actions = Box(np.float32([-2, 0]), np.float32([2, 10]), (2,))
    learner = SAC.create(Unplayed(Box(0.0, 1.0, (2,)), actions))
    outputs = jnp.tile(jnp.float32([0.4, -0.3, -0.5, 0.2]), (3, 1))
    _, log_prob = learner.sample(outputs, jnp.float32([[-8, -8], [0, 0], [8, 8]]))
    assert np.isfinite(log_prob).all()
    np.testing.assert_allclose(learner.mode(outputs[:1]), np.tanh([[0.4, -0.3]]), rtol=1e-6)
    corners = learner.policy.action(jnp.float32([[-1, -1], [0, 0], [1, 1]]))
    np.testing.assert_array_equal(corners, [[-2, 0], [0, 5], [2, 10]])


@pytest.mark.slow
def test_actions_are_uniform_before_learning_and_those_of_the_policy_after():
    learner = sac(learning_starts=4_000, buffer_size=8_000, hidden_sizes=(8,))
    filled, _ = trained(learner, 400, 20)
    # The second update of learning writes the last rows of the policy that the first changed.
    before, after = jnp.split(filled.agent.replay.columns.action[:8_000, 0], 2)
    np.testing.assert_allclose([before.mean(), before.var()], [0, 1 / 3], atol=0.03)
    assert abs(float(after.var()) - 1 / 3) > 0.03


def test_a_critic_of_a_grid_sees_the_action_in_every_cell():
    critics = TwinCritics(NetworkSpec("cnn", (4, 5, 3), (8,), "relu"), num_choices=2)
    params = jax.vmap(critics.network.init)(jax.random.split(jax.random.key(0)))
    rng = np.random.default_rng(0)
    obs, choice = jnp.float32(rng.normal(size=(2, 60))), jnp.float32(rng.normal(size=(2, 2)))
    in_cells = np.broadcast_to(choice[:, None, None], (2, 4, 5, 2))
    inputs = jnp.concatenate([obs.reshape(2, 4, 5, 3), in_cells], axis=-1).reshape(2, -1)
    expected = [critics.network.values(each, inputs)[:, 0] for each in params]
    np.testing.assert_array_equal(critics.values(params, obs, choice), expected)


def test_a_step_is_taken_for_each_transition_but_not_from_very_many():
    assert SAC.defaults_for(5, None, {}) == {"gradient_steps": 5}
    assert SAC.defaults_for(4096, None, {})["gradient_steps"] == 64
    assert sac(learning_starts=1_000).first_learning_update(300) == 4


# TD3, by algorithm 1 of its paper.


def td3_critic_loss(critics, targets, target_actor, batch, noise):
    noise = jnp.clip(0.2 * noise, -0.5, 0.5)
    action = jnp.clip(jnp.tanh(apply(target_actor, batch.next_obs)) + noise, -1, 1)
    least = jnp.minimum(*[q_value(target, batch.next_obs, action) for target in targets])
    y = batch.reward + batch.discount * least
    return sum(jnp.mean((q_value(critic, batch.obs, batch.action) - y) ** 2) for critic in critics)


def td3_actor_loss(actor, critic, batch):
    return -jnp.mean(q_value(critic, batch.obs, jnp.tanh(apply(actor, batch.obs))))


@pytest.mark.slow
def test_td3s_gradient_steps_are_those_of_optax_and_the_actor_takes_every_second():
    learner = td3(gradient_steps=3, learning_rate=RATE, polyak=0.9)
    before, _ = trained(learner, 4, 10)
    state, key = before.agent, make_key(3)
    after, metrics = jax.jit(lambda: learner.learn(key, state, before.batch_state, None, alone))()

    noises = jax.random.normal(jax.random.fold_in(key, 2), (3, 16, 1))

    def of_actor(params):
        return learner.actor.unravel(params)["params"]

    def of_critic(params):
        return learner.critics.network.unravel(params)["params"]

    size = learner.critics.size
    actor = of_actor(state.actor.params)
    critics = [of_critic(each) for each in state.critics.params.reshape(2, -1)]
    slow_actor = of_actor(state.target_params[: -2 * size])
    slow = list(map(of_critic, state.target_params[-2 * size :].reshape(2, -1)))
    rule = optax.adam(RATE)
    actor_opt, critic_opt = (
        (optimizer.opt_state, *rule.init(jnp.zeros(1))[1:])
        for optimizer in (state.actor, state.critics)
    )
    first_step, losses = 3 * int(state.num_updates), []
    batches = sampled(learner, state, key, 4)
    for i, (noise, batch) in enumerate(zip(noises, batches, strict=True)):
        loss, gradient = jax.value_and_grad(td3_critic_loss)(
            critics, slow, slow_actor, batch, noise
        )
        losses.append(loss)
        flat, unravel = ravel_pytree(critics)
        step, critic_opt = rule.update(ravel_pytree(gradient)[0], critic_opt)
        critics = unravel(flat + step)
        if (first_step + i + 1) % 2:
            continue
        gradient = jax.grad(td3_actor_loss)(actor, critics[0], batch)
        flat, unravel = ravel_pytree(actor)
        step, actor_opt = rule.update(ravel_pytree(gradient)[0], actor_opt)
        actor = unravel(flat + step)
        slow_actor, slow = jax.tree.map(
            lambda old, new: 0.9 * old + 0.1 * new, (slow_actor, slow), (actor, critics)
        )
    tolerance = {"rtol": 1e-3, "atol": 1e-4}
    np.testing.assert_allclose(after.actor.params, ravel_pytree(actor)[0], **tolerance)
    np.testing.assert_allclose(after.critics.params, ravel_pytree(critics)[0], **tolerance)
    followed = ravel_pytree([slow_actor, *slow])[0]
    np.testing.assert_allclose(after.target_params, followed, **tolerance)
    np.testing.assert_allclose(metrics["critic_loss"], np.mean(losses), rtol=1e-3)


def test_td3s_actions_are_near_the_actors():
    learner = td3(exploration_noise=0.05)
    state, keys = learner.init(make_key(0), 4), jax.random.split(jax.random.key(0), 4_000)
    obs = jnp.broadcast_to(jnp.float32([0.1, 0.2, 0.3]), (4_000, 3))
    noisy = learner.explore(state, keys, obs)
    np.testing.assert_allclose(
        noisy.mean(0), learner.mode(learner.outputs(state, obs))[0], atol=0.01
    )
    np.testing.assert_allclose(noisy.std(), 0.05, rtol=0.05)


# DQN, by the equations of its papers.


def values_of(learner, params, obs):
    outputs = apply(learner._network.unravel(params)["params"], obs)
    if not learner.dueling:
        return outputs
    advantages = outputs[:, 1:]
    return outputs[:, :1] + advantages - advantages.mean(1, keepdims=True)


def loss_of(params, learner, target_params, batch):
    rows = jnp.arange(len(batch.action))
    following = values_of(learner, target_params, batch.next_obs)
    chosen_by = values_of(learner, params, batch.next_obs) if learner.double else following
    target = batch.reward + batch.discount * following[rows, chosen_by.argmax(1)]
    error = jnp.abs(values_of(learner, params, batch.obs)[rows, batch.action] - target)
    if learner.huber_delta is None:
        return 0.5 * jnp.mean(error**2)
    delta = learner.huber_delta
    return jnp.mean(jnp.where(error < delta, 0.5 * error**2, delta * (error - delta / 2)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"polyak": 0.9},
        {"polyak": 0.0, "target_period": 2, "double": False, "dueling": True},
        {"dueling": True, "huber_delta": 0.5},
    ],
    ids=str,
)
def test_dqns_gradient_steps_are_those_of_optax_on_the_sampled_batches(options):
    env = make_env("cartpole-control")
    learner = DQN.create(env, **SMALL, gradient_steps=3, learning_rate=1e-2, **options)
    state = trained(learner, 4, 10)[0].agent
    # Far from each other, both networks choose different actions.
    params, target_params = np.random.default_rng(0).normal(size=(2, state.params.size))
    params, target_params = jnp.float32(params), jnp.float32(target_params)
    state = dataclasses.replace(state, params=params, target_params=target_params)
    key, num_updates = make_key(3), int(state.num_updates)
    after, metrics = jax.jit(lambda: learner.learn(key, state, None, None, alone))()
    rule = optax.chain(
        optax.clip_by_global_norm(10.0), optax.scale_by_adam(eps=1.5e-4), optax.scale(-1e-2)
    )
    opt_state, losses = (*state.opt_state, optax.EmptyState()), []

    @jax.jit
    def reference_step(params, opt_state, batch):
        loss, gradient = jax.value_and_grad(loss_of)(params, learner, target_params, batch)
        step, opt_state = rule.update(gradient, opt_state)
        return params + step, opt_state, loss

    for batch in sampled(learner, state, key, 4):
        part = dataclasses.replace(batch, reward=state.return_stats.scale(batch.reward))
        params, opt_state, loss = reference_step(params, opt_state, part)
        losses.append(loss)
    np.testing.assert_allclose(after.params, params, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(metrics["loss"], np.mean(losses), rtol=1e-4)
    decay = learner.polyak if (num_updates + 1) % learner.target_period == 0 else 1.0
    followed = decay * target_params + (1 - decay) * params
    np.testing.assert_allclose(after.target_params, followed, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_dqn_learns_nothing_before_there_is_something_to_learn_from():
    learner = DQN.create(make_env("cartpole-control"), **SMALL)
    first = learner.init(jax.random.fold_in(make_key(0), 0), 4)
    before, after = (trained(learner, 4, n)[0].agent for n in (4, 5))
    assert_same_bits((first.params, first.opt_state), (before.params, before.opt_state))
    assert (after.params != before.params).any()
    late = SMALL | {"learning_starts": 1, "n_step": 5, "train_every": 2}
    assert DQN.create(make_env("cartpole-control"), **late).first_learning_update(100_000) == 3
