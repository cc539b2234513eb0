"""A replay buffer in the host's memory leads to the same bits as one on the device."""

import jax
import numpy as np
import pytest

from myriad import create_config
from myriad.training.compiled import CompiledTraining
from tests.bits import assert_same_bits

SMALL = {
    "num_envs": 4,
    "steps_per_env": 40,
    "eval_frequency": 10,
    "eval_rollouts": 2,
    "eval_max_steps": 8,
    "buffer_size": 60,
    "batch_size": 16,
    "agent.hidden_sizes": (8,),
    "agent.learning_starts": 24,
}


def compiled(replay_memory, **fields):
    fields = SMALL | fields | {"agent.replay_memory": replay_memory}
    training = CompiledTraining(create_config("cartpole-control", "dqn", **fields))
    training.compile()
    return training


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"agent.n_step": 3, "agent.priority_alpha": 0.6},
        {"agent.train_every": 2, "num_envs": 250},
    ],
    ids=str,
)
def test_states_and_reports_are_the_same_bits_for_any_chunk(fields):
    on_device = compiled("device", **fields)
    expected = on_device.programs["run"](on_device.first_state(), np.int32(20), np.bool_(1))
    training = compiled("host", **fields)
    for calls in ([20], [7, 0, 13]):
        state = training.first_state()
        for number, num_updates in enumerate(calls):
            state, report = training.programs["run"](
                state, np.int32(num_updates), np.bool_(number == 0)
            )
        assert_same_bits((state, report), expected)
        columns = jax.tree.leaves(state.agent.replay.columns)
        assert {column.sharding.memory_kind for column in columns} == {"pinned_host"}
