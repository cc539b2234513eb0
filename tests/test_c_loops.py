"""The loops in C step Myriad's environments: the same draws, actions and ends of episodes."""

import shutil

import pytest

from benchmarks.harness.workload import Workload
from benchmarks.libraries.server import SEED
from myriad import Rollout, make_agent, make_env
from tests import c_loops
from tests.c_loops import CStepper

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
NUM_ENVS, CHUNK = 150, 100  # two whole blocks and a part of one


@pytest.mark.parametrize("name", c_loops.ENVS)
def test_the_loops_take_the_same_steps_as_a_rollout(name):
    env = make_env(name)
    rollout = Rollout(env, make_agent("random", env), NUM_ENVS, CHUNK)
    summary = rollout.summary(rollout.run(rollout.init(SEED), 4 * CHUNK))
    stepper = CStepper(Workload("comparison", "tiny", name, "random", NUM_ENVS, CHUNK, ()))
    stepper.run(3 * CHUNK + 7)  # the last chunk of a call may be shorter
    stepper.run(CHUNK - 7)
    # Both systems are unstable: with one other draw, episodes would end elsewhere.
    totals = stepper.totals()
    assert totals.num_episodes == summary.num_episodes >= 2 * NUM_ENVS
    mean_return = totals.return_sum / totals.num_episodes
    assert mean_return == pytest.approx(summary.mean_episode_return, rel=1e-5)
