"""TD3: its gradient steps against plain ones of algorithm 1, and learning."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from myriad import make_env
from myriad.agents.agent import alone
from myriad.agents.td3 import TD3
from myriad.engine.random import make_key
from tests.agents.plain_networks import SMALL, apply, q_value, sampled
from tests.learners import trained

RATE = 1e-2


def td3(**options):
    return TD3.create(make_env("pendulum-control"), **SMALL | options)


def critic_loss(critics, targets, target_actor, batch, noise):
    noise = jnp.clip(0.2 * noise, -0.5, 0.5)
    action = jnp.clip(jnp.tanh(apply(target_actor, batch.next_obs)) + noise, -1, 1)
    least = jnp.minimum(*[q_value(target, batch.next_obs, action) for target in targets])
    y = batch.reward + batch.discount * least
    return sum(jnp.mean((q_value(critic, batch.obs, batch.action) - y) ** 2) for critic in critics)


def actor_loss(actor, critic, batch):
    return -jnp.mean(q_value(critic, batch.obs, jnp.tanh(apply(actor, batch.obs))))


@pytest.mark.slow
def test_gradient_steps_are_those_of_optax_and_the_actor_takes_every_second():
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
        loss, gradient = jax.value_and_grad(critic_loss)(critics, slow, slow_actor, batch, noise)
        losses.append(loss)
        flat, unravel = ravel_pytree(critics)
        step, critic_opt = rule.update(ravel_pytree(gradient)[0], critic_opt)
        critics = unravel(flat + step)
        if (first_step + i + 1) % 2:
            continue
        gradient = jax.grad(actor_loss)(actor, critics[0], batch)
        flat, unravel = ravel_pytree(actor)
        step, actor_opt = rule.update(ravel_pytree(gradient)[0], actor_opt)
        actor = unravel(flat + step)
        slow_actor, slow = jax.tree.map(
            lambda old, new: 0.9 * old + 0.1 * new, (slow_actor, slow), (actor, critics)
        )
    tolerance = {"rtol": 1e-3, "atol": 1e-4}
    np.testing.assert_allclose(after.actor.params, ravel_pytree(actor)[0], **tolerance)
    np.testing.assert_allclose(after.critics.params, ravel_pytree(critics)[0], **tolerance)
    np.testing.assert_allclose(
        after.target_params, ravel_pytree([slow_actor, *slow])[0], **tolerance
    )
    np.testing.assert_allclose(metrics["critic_loss"], np.mean(losses), rtol=1e-3)


def test_actions_are_uniform_before_learning_and_near_the_actors_after():
    learner = td3(exploration_noise=0.05)
    keys = jax.random.split(jax.random.key(0), 4_000)
    uniform = learner.uniform(keys)
    assert float(uniform.min()) >= -1
    np.testing.assert_allclose([uniform.mean(), uniform.var()], [0, 1 / 3], atol=0.03)
    state = learner.init(make_key(0), 4)
    obs = jnp.broadcast_to(jnp.float32([0.1, 0.2, 0.3]), (4_000, 3))
    noisy = learner.explore(state, keys, obs)
    np.testing.assert_allclose(noisy.mean(0), learner._choice(state, obs)[0], atol=0.01)
    np.testing.assert_allclose(noisy.std(), 0.05, rtol=0.05)
