"""Measure the host's work around the compiled programs: start-up, dispatch and adapters.

This is only an asv suite. The gate always times these benchmarks, because equal programs prove
nothing about the host.
"""

import contextlib
import importlib.util
import subprocess
import sys
import textwrap
from typing import Any, ClassVar

from benchmarks.harness.asv_suite import AsvSuite


class Imports:
    """Seconds that a new interpreter needs until an import or a command is done."""

    version = "1"
    timeout = 120
    # An interpreter imports a package once, so further calls in a sample would time nothing.
    number = 1

    def timeraw_import_myriad(self) -> str:
        """Import the package's face."""
        return "import myriad"

    def timeraw_import_trainer(self) -> str:
        """Import all that a training needs before it compiles."""
        return "from myriad import train_and_evaluate"

    def timeraw_help(self) -> str:
        """Answer `myriad --help`."""
        # asv reads the seconds on stdout.
        return """
            import contextlib, io
            with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
                from myriad.cli import main
                main(["--help"])
        """


class FirstStep(AsvSuite):
    """Seconds that a new interpreter needs from `import jax` to an environment's first step."""

    suite = "throughput"
    always = "cartpole-1k"
    version = "1"
    timeout = 120
    number = 1

    def timeraw_first_step(self) -> tuple[str, str]:
        """Make an environment, reset it and step it once, nothing compiled."""
        statement = """
            from myriad import make_env
            env = make_env("cartpole-control")
            params = env.default_params
            obs, state = env.reset(jax.random.key(0), params)
            jax.block_until_ready(env.step(jax.random.key(1), state, 1, params))
        """
        return statement, "import jax"


class WarmStart(AsvSuite):
    """Seconds that a new interpreter needs to run the shortest possible training."""

    suite = "training"
    always = "cartpole-dqn"
    version = "1"
    number = 1

    def setup_cache(self) -> None:
        """Fill the cache of compiled programs, in the folder that asv copies for each benchmark."""
        with contextlib.suppress(NotImplementedError):  # `setup` says it
            self.setup()
            statement, preparation = self.timeraw_training()
            program = textwrap.dedent(preparation) + textwrap.dedent(statement)
            subprocess.run([sys.executable, "-c", program], check=True, stdout=sys.stderr)

    def timeraw_training(self) -> tuple[str, str]:
        """Train for one chunk, every program from the cache, and save the run."""
        # One device, because the cache knows nothing of programs for another number.
        statement = """
            import myriad
            myriad.configure(cpu_devices=1)
            config = myriad.create_config("cartpole-control", "dqn", 64, 128, 128)
            myriad.train_and_evaluate(config, folder, quiet=True)
        """
        preparation = """
            import os, tempfile
            os.environ["MYRIAD_COMPILATION_CACHE"] = os.path.abspath("programs")
            folder = tempfile.mkdtemp(dir=".")
            import jax
        """
        return statement, preparation


class Dispatch(AsvSuite):
    """Seconds of calls with almost nothing to compute."""

    suite = "throughput"
    always = "cartpole-1k"
    version = "1"
    timeout = 120
    overrides: ClassVar[dict[str, Any]] = {"agent.learning_rate": 1e-3}

    def prepare(self, declared: Any) -> None:
        from myriad import Rollout, make_agent, make_env, timing

        env = make_env("cartpole-control")
        self.rollout = Rollout(env, make_agent("random", env), num_envs=1, scan_chunk_size=1)
        self.block: Any = timing.block_until_ready
        self.state = self.rollout.run_chunk(self.rollout.init(seed=0))
        self.time_record_chunk()  # compiles

    def time_run_chunk(self) -> None:
        """Run one step of one environment."""
        self.state = self.rollout.run_chunk(self.state)
        self.block(self.state)

    def time_record_chunk(self) -> None:
        """Run and record one step of one environment."""
        self.state, trajectory = self.rollout.record_chunk(self.state)
        self.block(trajectory)

    def time_create_config(self) -> None:
        """Make a complete configuration."""
        from myriad import create_config

        create_config("cartpole-control", "dqn", 1_000, 10_000, **self.overrides)


class UpdateDispatch(AsvSuite):
    """Seconds of an update with almost nothing to compute."""

    suite = "training"
    always = "cartpole-dqn"
    version = "1"
    timeout = 120

    def prepare(self, declared: Any) -> None:
        from myriad import create_config
        from myriad.programs import TrainingProgram

        config = create_config("cartpole-control", "dqn", 1, 16, 1, batch_size=1, buffer_size=64)
        self.training = TrainingProgram(config)
        self.training.start()
        self.time_update()

    def time_update(self) -> None:
        """Run one update and fetch its report."""
        self.training.run_updates(1)


class Adapters(AsvSuite):
    """Seconds of 50 steps through Gymnasium's interface, within one episode."""

    suite = "throughput"
    always = "pendulum-1k"
    version = "1"
    timeout = 120

    def prepare(self, declared: Any) -> None:
        if importlib.util.find_spec("gymnasium") is None:
            raise NotImplementedError("gymnasium is not installed")
        from myriad import make_env, to_gymnasium, to_gymnasium_vector

        self.env = to_gymnasium(make_env("pendulum-control"))
        self.env.action_space.seed(0)
        self.action = self.env.action_space.sample()
        self.envs = to_gymnasium_vector(make_env("pendulum-control"), 64)
        self.envs.action_space.seed(0)
        self.actions = self.envs.action_space.sample()
        self.time_single()
        self.time_vector()

    def time_single(self) -> None:
        """Reset and step one environment."""
        self.env.reset(seed=0)
        for _ in range(50):
            self.env.step(self.action)

    def time_vector(self) -> None:
        """Reset and step 64 environments."""
        self.envs.reset(seed=0)
        for _ in range(50):
            self.envs.step(self.actions)
