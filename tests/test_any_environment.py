"""Environments that nobody here wrote: every learner trains, is evaluated and drawn in them."""

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from myriad import Rollout, create_config, load_agent, train_and_evaluate
from myriad.rendering.video import record
from tests import child_processes
from tests.generated_env import environments
from tests.learners import SMALL, env_of

# Small, so that compiling is all there is to wait for. All of these have discrete actions.
OPTIONS = {"random": {}} | {
    agent: {f"agent.{name}": value for name, value in small.items()}
    for agent, small in SMALL.items()
    if env_of(agent) == "cartpole"
}


def lives_in(env, agent, folder):
    """Train for three updates, evaluate, load, record a rollout, and draw what can be drawn."""
    options = OPTIONS[agent]
    steps = 3 * options.get("agent.rollout_steps", 1)
    config = create_config(env, agent, 16, steps, eval_rollouts=2, eval_max_steps=20, **options)
    run = train_and_evaluate(config, folder / "run", quiet=True).run_folder
    made = None if isinstance(env, str) else env
    _, env, trained = load_agent(run, env=made)
    rollout = Rollout(env, trained, 16, scan_chunk_size=8)
    state, _ = rollout.record_chunk(rollout.init(0), final_obs=True)
    assert rollout.summary(rollout.run(state, 12)).num_steps == 16 * 20
    if hasattr(env, "render"):
        record(env, trained, folder / "it.gif", num_steps=2)


@pytest.mark.long
@pytest.mark.parametrize("number", range(1, 41))
def test_a_generated_step_ends_no_process_and_is_that_of_the_plain_loop(number):
    child_processes.python("-m", "tests.generated_env", number)


@pytest.mark.long
def test_agents_train_in_generated_environments(tmp_path_factory):
    @seed(19)
    @settings(
        max_examples=8,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(environments(), st.sampled_from(sorted(OPTIONS)))
    def check(env, agent):
        lives_in(env, agent, tmp_path_factory.mktemp(agent))

    check()
