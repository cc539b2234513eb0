"""DQN: its gradient steps against plain ones of the papers' equations, and when it begins."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from myriad import make_env
from myriad.agents.agent import alone
from myriad.agents.dqn import DQN
from myriad.engine.random import make_key
from tests.agents.plain_networks import SMALL, apply, sampled
from tests.bits import assert_same_bits
from tests.learners import trained


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
def test_gradient_steps_are_those_of_optax_on_the_sampled_batches(options):
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
def test_nothing_is_learned_before_there_is_something_to_learn_from():
    learner = DQN.create(make_env("cartpole-control"), **SMALL)
    first = learner.init(jax.random.fold_in(make_key(0), 0), 4)
    before, after = (trained(learner, 4, n)[0].agent for n in (4, 5))
    assert_same_bits((first.params, first.opt_state), (before.params, before.opt_state))
    assert (after.params != before.params).any()
    late = SMALL | {"learning_starts": 1, "n_step": 5, "train_every": 2}
    assert DQN.create(make_env("cartpole-control"), **late).first_learning_update(100_000) == 3
