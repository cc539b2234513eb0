"""Learners with a memory: a task that needs one, plain unrolls of losses, and resets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.published_environments import TMaze
from myriad import Rollout, create_config, evaluate, load_agent, make_key, train_and_evaluate
from myriad.agents.controller import TrainedController
from myriad.agents.sequences import RecurrentPPO, RecurrentPQN
from myriad.envs.wrappers import for_learner
from myriad.training.evaluation import key_alone
from myriad.training.loop import LearningLoop
from tests.agents.test_pqn import reference_returns

LSTM = "tests.agents.networks.own_networks:LSTM"
SMALL = {"rollout_steps": 8, "num_epochs": 1, "num_minibatches": 2, "hidden_sizes": (8,)}


class Short(TMaze):
    """A corridor of 6 steps."""

    default_params = {"length": 6}  # noqa: RUF012  (an object's own, as users write it)


class Cut(Short):
    """The corridor with a time limit in place of an end, and legal actions."""

    def step(self, key, state, action, params):
        obs, state, reward, ends, _, info = super().step(key, state, action, params)
        return obs, state, reward, jnp.zeros((), bool), ends, info

    def action_mask(self, state):
        return jnp.stack([state[1] % 2 == 0, jnp.ones((), bool)])


def trained_in_the_maze(folder, agent, network, total_steps=16_384, maze=Short):
    config = create_config(
        maze(), agent, num_envs=64, total_steps=total_steps, eval_rollouts=128, eval_max_steps=12,
        **{"agent.network": network, "agent.rollout_steps": 32, "agent.learning_rate": 2e-3},
    )  # fmt: skip
    return config, train_and_evaluate(config, folder, quiet=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    # PPO's GRU is below.
    ("agent", "network", "total_steps", "maze", "least"),
    [("ppo", LSTM, 16_384, Short, 0.9), ("pqn", "gru", 40_960, TMaze, 0.95)],
)
def test_a_memory_finds_the_way(agent, network, total_steps, maze, least, tmp_path):
    _, results = trained_in_the_maze(tmp_path / "run", agent, network, total_steps, maze)
    assert results.evaluations[-1]["return"] >= least


@pytest.mark.slow
def test_a_loaded_agent_carries_its_memory_through_episodes_and_a_rollout(tmp_path):
    config, results = trained_in_the_maze(tmp_path / "run", "ppo", "gru")
    again, env, agent = load_agent(tmp_path / "run", env=Short())
    assert isinstance(agent, TrainedController)
    key, returns = key_alone(0), []
    for i in range(3):
        first = jax.random.fold_in(jax.random.fold_in(key, jnp.uint32(0xFFFFFFFF)), i)
        obs, state = env.reset(first, env.default_params)
        memory, total, ended = agent.first_memory(), 0.0, False
        while not ended:
            action, memory = agent.control(memory, key, obs)
            obs, state, reward, ended, _, _ = env.step(key, state, action, env.default_params)
            total += float(reward)
        returns.append(total)
    np.testing.assert_array_equal(evaluate(again, agent.state, 3), returns)
    assert np.mean(evaluate(config, results.agent_state, 64)) > 0.9
    rollout = Rollout(env, agent, num_envs=32, scan_chunk_size=7)
    summary = rollout.summary(rollout.run(rollout.init(0), 43))
    assert (summary.num_episodes, summary.mean_episode_return) == (6 * 32, 1.0)


def learner_and_loop(kind=RecurrentPPO, **options):
    sizes = SMALL | {"hidden_sizes": (7, 5), "normalize_observations": False}
    learner = kind.create(for_learner(Cut()), network="gru", **sizes | options)
    return learner, LearningLoop(learner.env, learner, 4)


def gru(params, memory, obs):
    """Return the next memory and the outputs of one observation, in float64."""
    layers = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params["params"])

    def dense(i, x):
        return x @ layers[f"Dense_{i}"]["kernel"] + layers[f"Dense_{i}"]["bias"]

    hidden = np.tanh(dense(0, obs))
    of_input, of_memory = dense(1, hidden).reshape(3, -1), dense(2, memory).reshape(3, -1)
    reset, update = (1 / (1 + np.exp(-of_input[i] - of_memory[i])) for i in range(2))
    memory = (1 - update) * np.tanh(of_input[2] + reset * of_memory[2]) + update * memory
    return memory, dense(3, memory)


@pytest.mark.slow
def test_the_loss_is_that_of_an_unroll_in_numpy_which_resets_at_episode_ends():
    learner, loop = learner_and_loop(entropy_coef=0.02)
    state, rollout = jax.jit(loop.collect)(jax.jit(loop.init)(make_key(0)))
    for _ in range(2):  # So that the memory is not that of a first step.
        state, rollout = jax.jit(loop.collect)(state)
    batch = learner._batch(state.agent, rollout, state.batch_state.obs)
    assert batch.done.any(axis=1).all()
    assert all((np.asarray(leaf) != 0).any() for leaf in jax.tree.leaves(batch.memory))
    params = jax.tree.map(lambda leaf: leaf + 0.1, state.agent.params)
    terms = []
    for n in range(4):
        memory = {name: np.asarray(batch.memory[name][n], np.float64) for name in batch.memory}
        for t in range(8):
            obs, mask = np.split(np.asarray(batch.obs[n, t], np.float64), [2])
            (memory["actor"], logits), (memory["critic"], value) = (
                gru(params[name], memory[name], obs) for name in ("actor", "critic")
            )
            legal = np.exp(logits)[mask > 0] / np.exp(logits)[mask > 0].sum()
            log_prob = np.log(legal[int(batch.choice[n, t, 0]) - (len(legal) == 1)])
            ratio = np.exp(log_prob - float(batch.log_prob[n, t]))
            advantage = float(batch.advantage[n, t])
            surrogate = min(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)
            squared = (value[0] - float(batch.target[n, t])) ** 2
            terms.append(0.5 * squared - surrogate + 0.02 * (legal * np.log(legal)).sum())
            if batch.done[n, t]:
                memory = {name: np.zeros(5) for name in memory}
    assert float(learner.loss(params, batch)[0]) == pytest.approx(np.mean(terms), rel=1e-4)


@pytest.mark.slow
def test_a_rollout_values_what_it_cuts_and_the_first_gradient_step_sees_what_it_acted_on():
    learner, loop = learner_and_loop()
    first = jax.jit(loop.init)(make_key(0))
    state, rollout = jax.jit(loop.collect)(first)
    t, n = np.argwhere(rollout.truncated)[0]
    memory = jax.tree.map(lambda leaf: leaf[n : n + 1], rollout.memory)
    for obs in rollout.obs[: t + 1, n]:
        memory, _, _ = learner._step(state.agent.params, memory, obs[None])
    # After the choice, neither the cue nor the end is seen.
    _, _, value = learner._step(state.agent.params, memory, jnp.float32([[0, 0, 1, 1]]))
    np.testing.assert_allclose(rollout.final_value[t, n], value[0], rtol=1e-5)
    assert (rollout.final_value != 0).sum() == rollout.truncated.sum() == 4
    batch = learner._batch(state.agent, rollout, state.batch_state.obs)
    _, metrics = learner.loss(state.agent.params, batch)
    assert float(metrics["policy_loss"]) == pytest.approx(-float(batch.advantage.mean()), abs=1e-6)
    assert float(metrics["value_loss"]) == pytest.approx(
        float((batch.advantage**2).mean()), rel=1e-4
    )


def test_a_critic_without_a_memory_values_what_it_sees_alone():
    learner, _ = learner_and_loop(critic_network="mlp", critic_hidden_sizes=(6,))
    params = learner.init(make_key(0), 4).params
    memory, inputs = learner.first_memory(4), jnp.float32(np.eye(4))
    assert memory["actor"].shape == (4, 5)
    for _ in range(2):
        memory, _, value = learner._step(params, memory, inputs)
        np.testing.assert_allclose(value, learner._values(params, inputs))
    assert (memory["actor"] != 0).any()
    assert not jax.tree.leaves(memory["critic"])


@pytest.mark.slow
def test_loss_and_targets_are_those_of_an_unroll_in_numpy_which_resets_at_episode_ends():
    options = {"layer_norm": False, "normalize_rewards": False}
    learner, loop = learner_and_loop(RecurrentPQN, **options)
    collect = jax.jit(loop.collect)
    state, _ = collect(jax.jit(loop.init)(make_key(0)))
    state, rollout = collect(state)
    batch = learner._batch(state.agent, rollout, state.batch_state.obs)
    assert batch.done.any(axis=1).all()
    assert (np.asarray(batch.memory) != 0).any()

    def values_of(params, memory, inputs):
        obs, mask = np.split(np.asarray(inputs, np.float64), [2])
        memory, values = gru(learner._network.unravel(params), memory, obs)
        return memory, np.where(mask > 0, values, -np.inf)

    best, errors = np.zeros((2, 9, 4)), []  # After each step, before a reset, and of each step.
    for n in range(4):
        memory = {"acts": np.asarray(batch.memory[n], np.float64)}
        memory["learns"] = memory["acts"]
        for t in range(8):
            obs = batch.obs[n, t]
            memory["acts"], values = values_of(state.agent.params, memory["acts"], obs)
            best[0, t, n] = values.max()
            memory["learns"], values = values_of(state.agent.params + 0.1, memory["learns"], obs)
            errors.append(values[int(batch.action[n, t])] - float(batch.target[n, t]))
            if batch.done[n, t]:
                # Neither the cue nor the end is seen, and the first action is not legal.
                final = np.array([0, 0, 0, 1])
                best[1, t, n] = values_of(state.agent.params, memory["acts"], final)[1].max()
                memory = {name: np.zeros(5) for name in memory}
        last = np.asarray(state.batch_state.obs)[n]
        best[0, 8, n] = values_of(state.agent.params, memory["acts"], last)[1].max()
    done = np.asarray(batch.done.T)
    following = np.where(done, best[1, :8], best[0, 1:])
    target = reference_returns(
        np.asarray(rollout.reward), following, np.zeros_like(done), done, 0.995, 0.95
    )
    np.testing.assert_allclose(batch.target.T, target, rtol=1e-4, atol=1e-5)
    loss, _ = learner.loss(state.agent.params + 0.1, batch)
    assert float(loss) == pytest.approx(0.5 * np.mean(np.square(errors)), rel=1e-4)
