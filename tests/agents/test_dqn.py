"""DQN: its update against an independent one in NumPy, a learner's properties, and learning."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from myriad import make_env
from myriad.agents import replay
from myriad.agents.agent import alone
from myriad.agents.dqn import DQN
from myriad.agents.replay import Experience, ReplayRing
from myriad.engine.random import make_key
from myriad.training.loop import LearningLoop
from tests.agents.plain_networks import SMALL, apply
from tests.learners import trained


def values_of(layers, obs, *, dueling):
    outputs = np.asarray(apply(layers, obs))
    if not dueling:
        return outputs
    return outputs[:, :1] + outputs[:, 1:] - outputs[:, 1:].mean(1, keepdims=True)


def a_batch(size, rng):
    return Experience(
        obs=rng.normal(size=(size, 4)).astype(np.float32),
        action=rng.integers(0, 2, size).astype(np.int32),
        reward=rng.normal(size=size).astype(np.float32),
        discount=rng.choice([0.0, 0.9, 0.81], size).astype(np.float32),
        next_obs=rng.normal(size=(size, 4)).astype(np.float32),
    )


@pytest.mark.parametrize(
    ("double", "dueling", "huber_delta"),
    [(False, False, None), (True, False, 0.5), (False, True, 0.5), (True, True, None)],
)
def test_target_and_loss_are_those_of_the_papers(double, dueling, huber_delta):
    learner = DQN.create(
        make_env("cartpole-control"),
        hidden_sizes=(8, 8),
        double=double,
        dueling=dueling,
        huber_delta=huber_delta,
    )
    network, rng = learner._network, np.random.default_rng(0)
    online, frozen = (
        rng.normal(size=network.init(make_key(0)).shape).astype(np.float32) for _ in range(2)
    )
    batch = a_batch(64, rng)
    layers = [network.unravel(params)["params"] for params in (online, frozen)]
    next_online, next_frozen = (values_of(net, batch.next_obs, dueling=dueling) for net in layers)
    best = (next_online if double else next_frozen).argmax(1)
    expected = batch.reward + batch.discount * next_frozen[np.arange(64), best]
    target = learner.target(online, batch, network.values(frozen, batch.next_obs))
    np.testing.assert_allclose(target, expected, rtol=1e-4, atol=1e-4)

    values = values_of(layers[0], batch.obs, dueling=dueling)
    error = values[np.arange(64), batch.action] - expected
    squared = 0.5 * error**2
    if huber_delta is not None:
        squared = np.where(
            np.abs(error) < huber_delta, squared, huber_delta * (np.abs(error) - huber_delta / 2)
        )
    np.testing.assert_allclose(learner.loss(online, batch, target), squared.mean(), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"polyak": 0.9}, {"polyak": 0.0, "target_period": 2}])
def test_gradient_steps_are_those_of_optax_on_the_sampled_batches(options):
    learner = DQN.create(
        make_env("cartpole-control"), **SMALL, gradient_steps=3, learning_rate=1e-2, **options
    )
    state = trained(learner, 4, 10)[0].agent
    key, num_updates = make_key(3), int(state.num_updates)
    after, metrics = jax.jit(lambda: learner.learn(key, state, None, None, alone))()

    @jax.jit
    def sampled():
        ring = ReplayRing(learner.buffer_size, 4)
        slots = ring.draw(jax.random.fold_in(key, 1), state.replay, 3 * learner.batch_size)
        return learner._normalized(state, ring.at(state.replay, slots))

    batch = sampled()
    np.testing.assert_allclose(
        batch.reward.max(),
        sum(0.995**i for i in range(3)) / np.sqrt(state.return_stats.variance),
        rtol=1e-5,
    )
    rule = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(1e-2, eps=1.5e-4))
    optimizer = rule.init(state.params)
    optimizer = (optimizer[0], (state.opt_state[1], *optimizer[1][1:]))
    params, losses = state.params, []

    @jax.jit
    def reference_step(params, optimizer, part):
        next_values = learner._network.values(state.target_params, part.next_obs)
        target = learner.target(params, part, next_values)
        loss, gradient = jax.value_and_grad(learner.loss)(params, part, target)
        step, optimizer = rule.update(gradient, optimizer)
        return params + step, optimizer, loss

    for i in range(3):
        part = jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[16 * i : 16 * (i + 1)], batch)
        params, optimizer, loss = reference_step(params, optimizer, part)
        losses.append(loss)
    np.testing.assert_allclose(after.params, params, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(metrics["loss"], np.mean(losses), rtol=1e-4)
    decay = learner.polyak if (num_updates + 1) % learner.target_period == 0 else 1.0
    np.testing.assert_allclose(
        after.target_params,
        decay * state.target_params + (1 - decay) * params,
        rtol=1e-4,
        atol=1e-5,
    )


def expected_return(window, *, stops_before):
    """Return the reward, the discount, the observation after these steps, and how they end."""
    reward, discount, next_obs = 0.0, 1.0, None
    for obs, _, transition in window:
        if stops_before and transition.truncated:
            return reward, discount, obs, "truncated"
        reward += discount * float(transition.reward)
        discount *= 0.995
        next_obs = transition.final_obs
        if transition.terminated:
            return reward, 0.0, next_obs, "terminated"
        if transition.truncated:
            return reward, discount, next_obs, "truncated"
    return reward, discount, next_obs, "running"


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "bootstrap_truncated"), [(3, True), (1, False), (3, False)])
@pytest.mark.parametrize("is_kept_once", [False, True])
def test_the_buffer_holds_the_n_step_experience_that_was_lived(
    steps, bootstrap_truncated, is_kept_once, monkeypatch
):
    if is_kept_once:
        monkeypatch.setattr(replay, "_KEPT_ONCE", 0)
    learner = DQN.create(
        make_env("cartpole-control", max_steps=13),  # some fall before, and some don't
        **{**SMALL, "n_step": steps, "learning_starts": 1000},
        bootstrap_truncated=bootstrap_truncated,
    )
    loop = LearningLoop(learner.env, learner, 3)
    state = jax.jit(loop.init)(make_key(1))
    lived = []

    step_of_loop = loop.step

    def recording(key, batch_state, action):
        after, transition = step_of_loop(key, batch_state, action)
        jax.debug.callback(
            lambda *step: lived.append(step), batch_state.obs, action, transition, ordered=True
        )
        return after, transition

    loop.step = recording

    @jax.jit
    def update(key, agent, batch_state):
        return learner.update(key, agent, batch_state, loop)

    agent, batch_state = state.agent, state.batch_state
    for i in range(30):
        key = jax.random.fold_in(make_key(3), i)
        agent, batch_state, _ = update(key, agent, batch_state)
    jax.effects_barrier()
    assert len(lived) == 30
    rows = 31 - steps
    assert int(agent.replay.num_writes) == rows
    rows -= steps * is_kept_once
    columns = learner._ring(3).at(agent.replay, jnp.arange(3 * rows))
    seen = set()
    for row in range(rows):
        for env_index in range(3):
            window = [
                jax.tree.map(lambda leaf, i=env_index: leaf[i], each)
                for each in lived[row : row + steps]
            ]
            stops_before = is_kept_once and bootstrap_truncated
            reward, discount, next_obs, end = expected_return(window, stops_before=stops_before)
            if end == "truncated" and not bootstrap_truncated:
                discount = 0.0
            seen.add(end)
            slot = row * 3 + env_index
            np.testing.assert_array_equal(columns.obs[slot], lived[row][0][env_index])
            np.testing.assert_array_equal(columns.action[slot], lived[row][1][env_index])
            np.testing.assert_allclose(columns.reward[slot], reward, rtol=1e-6)
            np.testing.assert_allclose(columns.discount[slot], discount, rtol=1e-6)
            if discount or not is_kept_once:
                np.testing.assert_array_equal(columns.next_obs[slot], next_obs)
    assert seen == {"terminated", "truncated", "running"}


@pytest.mark.slow
def test_nothing_is_learned_before_there_is_something_to_learn_from():
    learner = DQN.create(make_env("cartpole-control"), **SMALL)
    first = learner.init(jax.random.fold_in(make_key(0), 0), 4)
    before, after = (trained(learner, 4, n)[0].agent for n in (4, 5))
    jax.tree.map(
        np.testing.assert_array_equal,
        (first.params, first.opt_state),
        (before.params, before.opt_state),
    )
    assert (after.params != before.params).any()
    late = DQN.create(
        make_env("cartpole-control"),
        **{**SMALL, "learning_starts": 1, "n_step": 5, "train_every": 2},
    )
    assert late.first_learning_update(100_000) == 3
