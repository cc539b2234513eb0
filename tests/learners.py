"""What the tests of all learners know of each: a new learner needs its row here."""

from myriad.spaces import Box, Discrete

ROLLOUT = {"rollout_steps": 8, "num_epochs": 2, "num_minibatches": 2, "hidden_sizes": (8,)}
REPLAY = {"batch_size": 16, "buffer_size": 96, "learning_starts": 24, "hidden_sizes": (8,)}
# Options with which 8 environments learn in 4 updates.
SMALL = {
    "ppo": ROLLOUT,
    "pqn": ROLLOUT,
    "dqn": REPLAY,
    "sac": REPLAY | {"gradient_steps": 2, "target_entropy": -1.0},
    "td3": REPLAY | {"gradient_steps": 3},
}
# Other values of floats that only this learner has.
OTHERS = {
    "ppo": {"clip_epsilon": 0.3, "gae_lambda": 0.9, "entropy_coef": 0.03, "value_coef": 0.3},
    "pqn": {"td_lambda": 0.5, "epsilon_end": 0.13},
    "dqn": {"polyak": 0.93, "epsilon_end": 0.13},
    "sac": {"polyak": 0.93, "target_entropy": -3.0},
    "td3": {"polyak": 0.93, "exploration_noise": 0.3, "target_noise": 0.4},
}
# The only kind of action that it learns.
ACTIONS = {"pqn": Discrete, "dqn": Discrete, "sac": Box, "td3": Box}


def env_of(agent):
    """Return the name of an environment in which an agent can act."""
    return "pendulum" if ACTIONS.get(agent) is Box else "cartpole"
