"""Train by PPO at equal hyperparameters, and rejax's own training.

A chunk is one whole training from new parameters. In every library the networks, their optimiser
and the environment run in one compiled program. Myriad's own training is in ours.py, since rejax
runs in a Python that lacks Myriad.
"""

from collections.abc import Mapping
from typing import Any

from benchmarks.harness.workload import Workload
from benchmarks.libraries.server import SEED, Stepper, Totals

AGENT = "ppo"
# Hyperparameters by Myriad's names. Neither library scales observations or rewards, as is rejax's
# default.
HYPERPARAMETERS: dict[str, Any] = {
    "rollout_steps": 128,
    "num_epochs": 4,
    "num_minibatches": 4,
    "learning_rate": 2.5e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_epsilon": 0.2,
    "value_coef": 0.5,
    "entropy_coef": 0.01,
    "max_grad_norm": 0.5,
}
HIDDEN_SIZES = (64, 64)
ACTIVATION = "tanh"
# What rejax calls the hyperparameters of PPO and of DQN, where it has names of its own.
REJAX_NAMES = {
    "rollout_steps": "num_steps",
    "clip_epsilon": "clip_eps",
    "value_coef": "vf_coef",
    "entropy_coef": "ent_coef",
    "gradient_steps": "num_epochs",
    "learning_starts": "fill_buffer",
    "double": "ddqn",
    "target_period": "target_update_freq",
    "epsilon_start": "eps_start",
    "epsilon_end": "eps_end",
}


def rejax_training(agent: str, env: str, num_steps: int, fields: Mapping[str, Any]) -> Any:
    """Return rejax's training without its evaluations. Fields have our names or rejax's."""
    import rejax  # type: ignore[import-not-found]

    named = {REJAX_NAMES.get(name, name): value for name, value in fields.items()}
    lengths = {"total_timesteps": num_steps, "eval_freq": num_steps}
    algorithm = rejax.get_algo(agent).create(env=env, **named, **lengths)
    return algorithm.replace(eval_callback=lambda *_: (), skip_initial_evaluation=True)


class TrainingStepper(Stepper):
    """The base of what trains. Every training has its own seed, and no episodes are counted."""

    compiles = True

    def __init__(self, workload: Workload):
        if workload.agent != AGENT:
            raise NotImplementedError(
                f"only trainings by {AGENT} are measured, not the agent {workload.agent!r}"
            )
        self.workload = workload
        self.seed = SEED

    def run(self, num_steps: int) -> None:
        for _ in range(num_steps // self.workload.scan_chunk_size):
            self.seed += 1
            self.train(self.seed)

    def train(self, seed: int) -> None:
        """Train for `scan_chunk_size` steps per environment. Return when the device is done."""
        raise NotImplementedError

    def totals(self) -> Totals:
        return Totals(0, None)


class RejaxTraining(TrainingStepper):
    """rejax's whole training under `jit`, without its evaluations."""

    def __init__(self, workload: Workload, env_id: str):
        import jax

        super().__init__(workload)
        num_steps = workload.num_envs * workload.scan_chunk_size
        network = {"hidden_layer_sizes": HIDDEN_SIZES, "activation": ACTIVATION}
        fields = HYPERPARAMETERS | {"num_envs": workload.num_envs, "agent_kwargs": network}
        self._train = jax.jit(rejax_training(AGENT, env_id, num_steps, fields).train)

    def train(self, seed: int) -> None:
        import jax

        jax.block_until_ready(self._train(jax.random.key(seed)))
