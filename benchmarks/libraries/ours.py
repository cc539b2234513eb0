"""Step and train with Myriad: its rollout, and its training by PPO."""

from typing import Any

from benchmarks.harness.workload import Case, Workload
from benchmarks.libraries.network_policy import NetworkPolicy, is_network
from benchmarks.libraries.ppo_training import (
    ACTIVATION,
    HIDDEN_SIZES,
    HYPERPARAMETERS,
    TrainingStepper,
)
from benchmarks.libraries.server import SEED, Stepper, Totals


class MyriadStepper(Stepper):
    """The rollout engine of this package."""

    compiles = True

    def __init__(self, case: Case):
        import myriad
        from myriad import Rollout, timing

        workload = case.workload
        env = myriad.make_env(workload.env)
        if is_network(workload.agent):
            params = env.default_params
            num_actions = getattr(env.action_space(params), "n", None)
            shape = env.observation_space(params).shape
            agent: Any = NetworkPolicy(workload.agent, shape, num_actions)
        else:
            agent = myriad.make_agent(workload.agent, env)
        self.record = case.record
        self._block = timing.block_until_ready
        self.rollout = Rollout(env, agent, workload.num_envs, workload.scan_chunk_size)
        self.num_devices = self.rollout.layout.num_devices
        self.state = self.rollout.init(SEED)

    def program(self) -> Any:
        return None if self.record else self.rollout.compile(self.state)

    def run(self, num_steps: int) -> None:
        trajectory = None
        if self.record:
            for start in range(0, num_steps, self.rollout.scan_chunk_size):
                chunk = min(self.rollout.scan_chunk_size, num_steps - start)
                self.state, trajectory = self.rollout.record_chunk(self.state, chunk)
        else:
            self.state = self.rollout.run(self.state, num_steps)
        self._block((self.state, trajectory))

    def totals(self) -> Totals:
        found = self.rollout.summary(self.state)
        if not found.num_episodes:
            return Totals(0, 0.0)
        return Totals(found.num_episodes, found.num_episodes * found.mean_episode_return)


def _config(workload: Workload, **fields: Any) -> Any:
    """Return a training of one chunk, with the hyperparameters of all libraries."""
    import myriad

    options = HYPERPARAMETERS | {"hidden_sizes": HIDDEN_SIZES, "activation": ACTIVATION}
    options |= {"normalize_observations": False, "normalize_rewards": False}
    steps = workload.scan_chunk_size
    return myriad.create_config(
        workload.env,
        workload.agent,
        workload.num_envs,
        steps,
        steps,
        rollout_steps=options.pop("rollout_steps"),
        **{f"agent.{name}": value for name, value in options.items()},
        **fields,
    )


class MyriadTraining(TrainingStepper):
    """The compiled loop that `myriad train` runs. It compiles in the first training."""

    def __init__(self, workload: Workload):
        from myriad.programs import TrainingProgram

        super().__init__(workload)
        self.training = TrainingProgram(_config(workload, compile_mode="jit"))

    def train(self, seed: int) -> None:
        self.training.start(seed)
        self.training.run_updates(self.training.num_updates)
