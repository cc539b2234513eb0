"""A replay buffer in the host's memory leads to the same bits as one on the device."""

import json
import shutil

import jax
import numpy as np
import pytest

from myriad import create_config, evaluate, load_agent, train_and_evaluate
from myriad.api import resume
from myriad.autotune import autotune
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


def config_of(replay_memory, **fields):
    fields = SMALL | fields | {"agent.replay_memory": replay_memory}
    return create_config("cartpole-control", "dqn", **fields)


def compiled(replay_memory, **fields):
    training = CompiledTraining(config_of(replay_memory, **fields))
    training.compile()
    return training


def kinds_of(agent):
    return {column.sharding.memory_kind for column in jax.tree.leaves(agent.replay.columns)}


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
        assert kinds_of(state.agent) == {"pinned_host"}


@pytest.mark.slow
def test_a_run_trains_resumes_evaluates_and_is_tuned(tmp_path, monkeypatch):
    monkeypatch.setenv("MYRIAD_HOME", str(tmp_path / "home"))
    config = config_of("host", checkpoint_every_s=0.0)
    results = train_and_evaluate(config, tmp_path / "run", quiet=True)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["update"] for row in rows] == [10, 20, 30, 40]

    shutil.copytree(tmp_path / "run", tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut" / "checkpoints" / "40")
    resumed = resume(tmp_path / "cut", quiet=True)
    assert_same_bits(resumed.agent_state, results.agent_state)
    assert kinds_of(resumed.agent_state) == {"pinned_host"}

    _, _, agent = load_agent(tmp_path / "run")
    assert kinds_of(agent.state) == {"pinned_host"}
    assert_same_bits(agent.state, results.agent_state)
    returns = [evaluate(config, each, 8) for each in (agent.state, results.agent_state)]
    np.testing.assert_array_equal(*returns)
    assert autotune(config, verbose=False, seconds=0).scan_chunk_size >= 1
