"""Measure a trial of `myriad tune` in a program that is compiled. This is only an asv suite."""

from typing import ClassVar

from benchmarks.harness.asv_suite import AsvSuite
from benchmarks.harness.workloads import Training

_VALUES = {"learning_rate": 3e-4, "num_epochs": 4, "gamma": 0.99}


class TracedTrial(AsvSuite):
    """Seconds of a trial as a member of a compiled population, its reset included."""

    suite = "tuning"
    params: ClassVar = ["cartpole-ppo"]
    version = "1"
    num_updates = 4

    def prepare(self, declared: Training) -> None:
        import myriad.programs  # noqa: F401 (commits without it build a population otherwise)
        from myriad import create_config, timing
        from myriad.training.population import Population

        config = create_config(declared.env, declared.agent, total_steps=declared.num_steps)
        # With the hyperparameters as its arguments.
        self.population = Population(config, 1, tuple(_VALUES))
        self.population.compile()
        self.block_until_ready = timing.block_until_ready
        self.options = {name: [value] for name, value in _VALUES.items()}
        self.state = self.population.first_state([0], self.options)
        self.time_trial(declared.name)

    def time_trial(self, workload: str) -> None:
        """Begin a trial and train it."""
        state = self.population.refill(self.state, [0], [1], self.options)
        state, _ = self.population.run(state, [self.num_updates], [True])
        self.state = self.block_until_ready(state)
