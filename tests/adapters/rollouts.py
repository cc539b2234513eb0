"""What holds for environments that come from another library or go to one."""

from myriad import Rollout, make_agent
from tests.compilations import count_compilations

# Short episodes, so that a test of a few steps sees them end; with an info, a continuous action, a
# termination.
SHORT = {
    "bucket-brigade": {"min_nights": 3},
    "cartpole-control": {"max_steps": 7},
    "pendulum-control": {"max_steps": 5},
    "snake": {},
}


def assert_rolls_out_and_compiles_once(env):
    """Step an environment, and compile nothing after the first chunk."""
    rollout = Rollout(env, make_agent("random", env), num_envs=16, scan_chunk_size=4)
    state = rollout.run_chunk(rollout.init(0))
    with count_compilations() as compilations:
        state = rollout.run(state, num_steps=8)
    assert not compilations
    assert rollout.summary(state).num_steps == 16 * 12
