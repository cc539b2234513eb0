"""PQN with a memory: a task that needs one, and a plain unroll of its loss and targets."""

import jax
import numpy as np
import pytest

from myriad import create_config, make_key, train_and_evaluate
from myriad.agents.recurrent_pqn import RecurrentPQN
from myriad.envs.wrappers import for_learner
from myriad.training.loop import LearningLoop
from tests.agents.test_pqn import reference_returns
from tests.agents.test_recurrent_ppo import SMALL, Cut, TMaze, gru


@pytest.mark.slow
def test_it_remembers_the_way(tmp_path):
    config = create_config(
        TMaze(), "pqn", num_envs=64, total_steps=40_960, eval_rollouts=128, eval_max_steps=10,
        **{"agent.network": "gru", "agent.rollout_steps": 32, "agent.learning_rate": 2e-3},
    )  # fmt: skip
    results = train_and_evaluate(config, tmp_path / "run", quiet=True)
    assert results.evaluations[-1]["return"] > 0.9


@pytest.mark.slow
def test_loss_and_targets_are_those_of_an_unroll_in_numpy_which_resets_at_episode_ends():
    env = for_learner(Cut())
    options = SMALL | {"hidden_sizes": (7, 5), "layer_norm": False, "normalize_rewards": False}
    learner = RecurrentPQN.create(env, network="gru", normalize_observations=False, **options)
    loop = LearningLoop(env, learner, 4)
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
