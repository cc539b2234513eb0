"""What no learner is made with: a value out of its range, and parts that don't go together."""

import numpy as np
import pytest

from myriad import create_config, make_env
from myriad.agents import AGENTS, make_learner
from myriad.errors import InvalidArgumentError
from myriad.spaces import Box, MultiDiscrete
from tests.agents.plain_networks import Unplayed
from tests.learners import SMALL, env_of

OWN = "tests.agents.networks.own_networks"
HYPERPARAMETERS = [
    ("ppo", {"num_epochs": 2.0}, "num_epochs must be an integer from 1 to .*, but got 2.0"),
    ("ppo", {"anneal_updates": "trainin"}, "'training' or None, but got 'trainin'"),
    ("ppo", {"value_clip": True}, "value_clip must be .* above 0 or None, but got True"),
    ("ppo", {"activation": "tan"}, "did you mean 'tanh'"),
    ("ppo", {"hidden_sizes": (0,)}, "hidden_sizes must be .*, each an integer from 1 to"),
    ("dqn", {"polyak": 1.5}, "polyak must be a number from 0 to 1, but got 1.5"),
    ("dqn", {"replay_memory": "hots"}, r"replay_memory is refused: .* got 'hots'\.$"),
    ("td3", {"kernel_init": "zeros"}, r"kernel_init is refused: .* got 'zeros'\.$"),
    ("pqn", {"compute_dtype": "bf16"}, "compute_dtype is refused: .* but got 'bf16'"),
    ("pqn", {"loss_scaling": "off", "compute_dtype": "float16"}, "must be 'dynamic' with float16"),
    # Of 8 environments.
    ("pqn", {"num_minibatches": 7}, "num_minibatches must divide .* = 64, .* 7"),
    ("ppo", {"gradient_accumulation": 3}, "must divide a minibatch of 32 rows, .* 3"),
    ("ppo", {"network": "gru", "gradient_accumulation": 8}, "must divide num_envs = 8 with"),
    ("ppo", {"network": f"{OWN}:LSTM"}, r"^agent.hidden_sizes must be \(64, 64\) with"),
    # Of schedules.
    ("ppo", {"clip_epsilon": "linear(0.2, -1)"}, "clip_epsilon must be .* above 0, but got -1"),
    ("ppo", {"gamma": "cosine(0.9, 1.2)"}, "gamma must be a number from 0 to 1, but got 1.2"),
    ("ppo", {"gamma": "linear(0.9)"}, r"gamma must be a number, linear\(.*'linear\(0.9\)'"),
    ("ppo", {"gamma": "points(0: 1, 0: 0.9)"}, "gamma must be a number.*increasing shares"),
    ("ppo", {"num_epochs": "linear(4, 1)"}, "num_epochs must be constant over a training"),
    (
        "pqn",
        {"learning_rate": "linear(1, 0)", "anneal_updates": "training"},
        "anneal_updates must be None if learning_rate has a schedule, but got 'training'",
    ),
]
NETWORKS = [
    ("snake", "ppo", {"network": "cnm"}, "did you mean 'cnn'"),
    ("cartpole", "ppo", {"critic_network": "cnn"}, r"^critic_network needs a grid .*, not \[4\]"),
    ("narrow", "ppo", {"network": "cnn"}, "3 x 3 cells"),
    ("snake", "ppo", {"network": "nature-cnn"}, "36 x 36 cells"),
    ("cartpole", "ppo", {"first_log_std": 3.0}, "^first_log_std .* no effect, but got 3.0"),
    ("pendulum", "ppo", {"action_scale": 3.0}, "^action_scale .* no effect, but got 3.0"),
    ("snake", "ppo", {"attention": "xla"}, "attention must be 'auto' with network mlp"),
    ("snake", "ppo", {"network": "attention", "attention": "chunked"}, "attention 'chunked'.* Kno"),
    ("cartpole", "ppo", {"network": "gru", "preserve_outputs": True}, "preserve_outputs must be"),
    ("cartpole", "ppo", {"network": "gru", "hidden_sizes": ()}, "hidden_sizes must .*'gru'"),
    ("cartpole", "dqn", {"network": "gru"}, "must be one without a memory with DQN, but got 'gru'"),
    ("cartpole", "ppo", {"network": f"{OWN}:Growing"}, "network .*:Growing must return .* carry"),
    (
        "cartpole",
        "pqn",
        {"network": f"{OWN}:of_role", "kernel_init": "lecun_normal"},
        "kernel_init must be 'orthogonal' with network .*of_role",
    ),
    ("snake", "ppo", {"network": f"{OWN}:Wide"}, r"to floats \[B, 4\].*\[B, 5\]"),
    ("snake", "ppo", {"network": f"{OWN}:Moving"}, "keep all .* in `params`.* batch_stats"),
    ("snake", "ppo", {"network": f"{OWN}:NoSize"}, "NoSize.* can't be built: TypeError"),
    ("snake", "ppo", {"network": f"{OWN}:nothing"}, "a module of flax.linen, .* None"),
    ("snake", "ppo", {"network": f"{OWN}:Flatt"}, "can't be imported"),
    (
        "cartpole",
        "ppo",
        {"critic_network": f"{OWN}:of_role", "critic_hidden_sizes": (8,)},
        "critic_hidden_sizes must be None with network mlp and .*of_role",
    ),
]


@pytest.mark.parametrize(("agent", "options", "says"), HYPERPARAMETERS, ids=str)
def test_a_hyperparameter_that_can_not_be_is_refused_by_name(agent, options, says):
    learner = {f"agent.{name}": value for name, value in (SMALL[agent] | options).items()}
    with pytest.raises(InvalidArgumentError, match=says):
        create_config(env_of(agent), agent, num_envs=8, **learner)


@pytest.mark.parametrize(("env", "agent", "options", "says"), NETWORKS, ids=str)
def test_a_network_that_does_not_fit_is_refused(env, agent, options, says):
    made = make_env("snake", height=2, width=9) if env == "narrow" else make_env(env)
    with pytest.raises(InvalidArgumentError, match=says):
        make_learner(agent, made, **options)


# tests/training/test_trainer.py has every agent in every environment.
@pytest.mark.parametrize(
    ("agent", "actions", "says"),
    [
        ("ppo", "a space of another kind", "must be Discrete"),
        ("sac", Box(-1.0, np.inf, (2,)), r"a Box with bounds .* Box\(.*\)\.$"),
        ("sac", MultiDiscrete((2, 3)), "a Box with bounds .* MultiDiscrete"),
    ],
)
def test_actions_that_no_environment_of_ours_has_are_refused(agent, actions, says):
    with pytest.raises(InvalidArgumentError, match=says):
        AGENTS.load(agent).create(Unplayed(Box(0.0, 1.0, (2,)), actions))
