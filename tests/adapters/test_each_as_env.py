"""Agents of one environment as environments of a batch, which needs none of the libraries."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import create_config, make_key, train_and_evaluate
from myriad.adapters.each_as_env import each_as_env
from myriad.envs.vector import VectorEnv
from myriad.errors import InvalidArgumentError
from myriad.spaces import Box, Discrete

# Agents, steps of an episode, and the numbers that they see.
AGENTS, STEPS, NUMBERS = 3, 5, 4


@dataclasses.dataclass(frozen=True)
class Together:
    """An agent that names the number that it sees gets 1, and 1 more if all agents do."""

    default_params = None

    def reset(self, key, params):
        def joint(_, key):
            seen = jax.random.randint(key, (AGENTS,), 0, NUMBERS)
            return jax.nn.one_hot(seen, NUMBERS), (seen, jnp.int32(0))

        return each_as_env(joint, AGENTS)(None, key)

    def step(self, key, state, action, params):
        def joint(actions, key_and_state):
            key, (seen, t) = key_and_state
            right = actions == seen
            seen = jax.random.randint(key, (AGENTS,), 0, NUMBERS)
            reward = jnp.float32(right) + right.all()
            return (jax.nn.one_hot(seen, NUMBERS), reward), ((seen, t + 1), t >= STEPS - 1)

        (obs, reward), (state, truncated) = each_as_env(joint, AGENTS)(action, (key, state))
        return obs, state, reward, jnp.bool_(0), truncated, {}

    def observation_space(self, params):
        return Box(0.0, 1.0, (NUMBERS,))

    def action_space(self, params):
        return Discrete(NUMBERS)


class Masked(Together):
    """Only the number that an agent sees is legal."""

    def action_mask(self, state):
        def joint(_, state):
            return jax.nn.one_hot(state[0], NUMBERS, dtype=bool), ()

        return each_as_env(joint, AGENTS)(None, state)[0]


def test_each_agent_has_its_own_row_and_all_of_an_environment_live_together():
    envs = VectorEnv(Together(), 2 * AGENTS)
    state = envs.reset(jax.random.split(make_key(0), 2 * AGENTS))
    step, rng = jax.jit(envs.step), np.random.default_rng(0)
    for t in range(2 * STEPS + 1):
        keys = jax.random.split(make_key(t + 1), (2, 2 * AGENTS))
        seen = state.obs.argmax(axis=1)
        np.testing.assert_array_equal(state.env_state[0], np.repeat(seen.reshape(2, -1), 3, axis=0))
        action = np.where(rng.random(2 * AGENTS) < 0.8, seen, (seen + 1) % NUMBERS)
        state, result = step(state, action, *keys)
        right = np.float32(action == seen).reshape(2, -1)
        expected = right + right.all(axis=1, keepdims=True)
        np.testing.assert_array_equal(result.reward, expected.ravel())
        np.testing.assert_array_equal(result.truncated, [t % STEPS == STEPS - 1] * 2 * AGENTS)
    np.testing.assert_array_equal(state.num_episodes, 2)


@pytest.mark.slow
def test_agents_as_environments_learn_with_shared_parameters(tmp_path):
    sizes = {"num_envs": 8 * AGENTS, "eval_rollouts": 8 * AGENTS, "total_steps": 60_000}
    config = create_config(Together(), "ppo", **sizes)
    results = train_and_evaluate(config, tmp_path, seeds=range(2), quiet=True)
    assert min(results.final_returns) > 0.95 * 2 * STEPS


@pytest.mark.slow
@pytest.mark.parametrize("mapping", ["map", "vmap"])
def test_each_agent_obeys_its_own_mask_for_several_seeds_at_once(mapping, tmp_path):
    sizes = {"num_envs": 2 * AGENTS, "eval_rollouts": 2 * AGENTS, "steps_per_env": 32}
    sizes |= {"buffer_size": 90, "batch_size": 8, "agent.learning_starts": 30, "mapping": mapping}
    config = create_config(Masked(), "dqn", **sizes)
    results = train_and_evaluate(config, tmp_path, seeds=range(2), quiet=True)
    assert results.final_returns == (2 * STEPS,) * 2


def test_a_batch_without_all_agents_of_an_environment_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"multiples of 3, .* but one of them is 16"):
        VectorEnv(Together(), 16).reset(jax.random.split(make_key(0), 16))
