"""What the host does around the compiled programs: imports, dispatch, the configuration.

An asv suite alone. The gate always times these: equal programs do not speak for the host.
"""

from typing import Any, ClassVar

from benchmarks.harness import package
from benchmarks.harness.skipping import skip_unless_runnable
from benchmarks.harness.workloads import load


def _skip_without_trainer() -> None:
    package.find("myriad:train_and_evaluate")


def _skip_without_configurations() -> None:
    package.find("myriad:create_config")


class Imports:
    """Seconds of a new interpreter until something can be used."""

    version = "1"
    timeout = 120
    # An interpreter imports a package once, so more calls per sample would time nothing.
    number = 1

    def timeraw_import_myriad(self) -> str:
        """Import the package's face."""
        return "import myriad"

    def timeraw_import_trainer(self) -> str:
        """Import all that a training needs before it compiles."""
        return "import myriad.api"

    timeraw_import_trainer.setup = _skip_without_trainer  # type: ignore[attr-defined]


class Dispatch:
    """Seconds of calls that have next to nothing to compute."""

    version = "1"
    timeout = 120
    rollout: Any = None
    overrides: ClassVar[dict[str, Any]] = {"agent.learning_rate": 1e-3}

    def setup(self) -> None:
        """Compile the smallest rollout there is, once: asv calls this before every sample."""
        if self.rollout is not None:
            return
        skip_unless_runnable(load().workloads["throughput"]["cartpole-1k"])
        from myriad import Rollout, make_agent, make_env, timing

        env = make_env("cartpole-control")
        self.rollout = Rollout(env, make_agent("random", env), num_envs=1, scan_chunk_size=1)
        self.block: Any = timing.block_until_ready
        self.state = self.rollout.run_chunk(self.rollout.init(seed=0))

    def time_run_chunk(self) -> None:
        """Run one step of one environment."""
        self.state = self.rollout.run_chunk(self.state)
        self.block(self.state)

    def time_create_config(self) -> None:
        """Make and resolve a configuration."""
        from myriad import create_config

        create_config("cartpole-control", "dqn", 1_000, 10_000, **self.overrides).resolve()

    time_create_config.setup = _skip_without_configurations  # type: ignore[attr-defined]
