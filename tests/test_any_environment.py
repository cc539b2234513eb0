"""Environments that nobody here wrote: every learner trains and is evaluated in them."""

import pytest

from myriad import Rollout, create_config, load_agent, train_and_evaluate
from tests import child_processes
from tests.generated_env import drawn
from tests.learners import SMALL, env_of

# Small, so that compiling is all there is to wait for. All of these have discrete actions.
OPTIONS = {"random": {}} | {
    agent: {f"agent.{name}": value for name, value in small.items()}
    for agent, small in SMALL.items()
    if env_of(agent) == "cartpole"
}


@pytest.mark.long
@pytest.mark.parametrize("number", range(1, 41))
def test_a_generated_step_ends_no_process_and_is_that_of_the_plain_loop(number):
    child_processes.python("-m", "tests.generated_env", number)


@pytest.mark.long
@pytest.mark.parametrize("number", range(8))
def test_agents_train_are_loaded_and_step_in_generated_environments(number, tmp_path):
    env, agent = drawn(number), sorted(OPTIONS)[number % len(OPTIONS)]
    options = OPTIONS[agent]
    steps = 3 * options.get("agent.rollout_steps", 1)
    config = create_config(env, agent, 16, steps, eval_rollouts=2, eval_max_steps=20, **options)
    run = train_and_evaluate(config, tmp_path / "run", quiet=True).run_folder
    _, env, trained = load_agent(run, env=env)
    rollout = Rollout(env, trained, 16, scan_chunk_size=8)
    state, _ = rollout.record_chunk(rollout.init(0), final_obs=True)
    assert rollout.summary(rollout.run(state, 12)).num_steps == 16 * 20
