"""The loops in C step Myriad's environments: the same draws, actions and ends of episodes."""

import re
import shutil
from functools import partial

import jax
import numpy as np
import pytest

from benchmarks.harness.workload import Case, Workload
from benchmarks.libraries.server import SEED
from myriad import Rollout, make_agent, make_env
from myriad.envs.cartpole import CartPoleState
from myriad.envs.pendulum import PendulumState
from tests import c_loops
from tests.c_loops import CStepper

NUM_ENVS, CHUNK = 150, 100  # two whole blocks and a part of one
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def case_of(env, *, record=False):
    workload = Workload("comparison", "tiny", env, "random", NUM_ENVS, CHUNK, (), num_steps=CHUNK)
    return Case("c", workload, record)


def cartpole_state(obs, time):
    return CartPoleState(*np.moveaxis(obs, -1, 0), time)


def pendulum_state(obs, time):
    return PendulumState(np.arctan2(obs[..., 1], obs[..., 0]), obs[..., 2], time)


@needs_compiler
@pytest.mark.parametrize(
    ("env", "state_of"),
    [("cartpole-control", cartpole_state), ("pendulum-control", pendulum_state)],
)
def test_the_loops_take_the_same_steps_as_a_rollout(env, state_of):
    ours = make_env(env)
    rollout = Rollout(ours, make_agent("random", ours), NUM_ENVS, CHUNK)
    state = rollout.init(SEED)
    stepper, unrecorded = CStepper(case_of(env, record=True)), CStepper(case_of(env))
    step = jax.jit(jax.vmap(jax.vmap(partial(ours.step, params=ours.default_params))))
    keys = jax.random.split(jax.random.key(0), (CHUNK - 1, NUM_ENVS))
    for _ in range(4):
        state, expected = rollout.record_chunk(state)
        stepper.run(CHUNK)
        rows = stepper.rows
        for name, each in rows.items():
            theirs = np.asarray(getattr(expected, name))
            assert (each.shape, each.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(rows["action"], expected.action, atol=1e-6)
        np.testing.assert_array_equal(rows["terminated"], expected.terminated)
        np.testing.assert_array_equal(rows["truncated"], expected.truncated)
        # Both systems are unstable, so every step starts from what the loops observed before it.
        before = state_of(rows["obs"][:-1], np.zeros((CHUNK - 1, NUM_ENVS), np.int32))
        obs, _, reward, *_ = step(keys, before, rows["action"][1:])
        np.testing.assert_allclose(rows["reward"][1:], reward, rtol=1e-5, atol=1e-5)
        ended = (rows["terminated"] | rows["truncated"])[1:, :, None]
        after = np.where(ended, expected.obs[1:], obs)
        np.testing.assert_allclose(rows["obs"][1:], after, rtol=1e-5, atol=1e-5)
    unrecorded.run(3 * CHUNK + 7)  # the last chunk of a call may be shorter
    unrecorded.run(CHUNK - 7)
    summary = rollout.summary(state)
    assert summary.num_episodes >= 2 * NUM_ENVS
    for totals in (stepper.totals(), unrecorded.totals()):
        assert totals.num_episodes == summary.num_episodes
        mean_return = totals.return_sum / totals.num_episodes
        assert mean_return == pytest.approx(summary.mean_episode_return, rel=1e-3)


@pytest.mark.parametrize(
    ("compiler", "env", "error", "reason"),
    [
        ("no-such-cc", "cartpole-control", ImportError, "name yours in CC"),
        ("false", "cartpole-control", ImportError, "false"),
        ("true", "snake", NotImplementedError, "have no snake"),
    ],
)
def test_what_the_loops_cannot_do_is_a_sentence(compiler, env, error, reason, monkeypatch):
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(error, match=reason):
        CStepper(case_of(env))


@needs_compiler
@pytest.mark.slow
def test_the_command_prints_our_share(monkeypatch, capsys):
    monkeypatch.setattr(c_loops, "SIZES", {64: 50})
    monkeypatch.setattr(c_loops, "configure", lambda: None)
    monkeypatch.setattr("sys.argv", ["c_loops", "pendulum-control"])
    c_loops.main()
    assert re.fullmatch(
        r"pendulum-control, 64: [\d.]+ \([\d.]+ to [\d.]+\) of C\n", capsys.readouterr().out
    )
