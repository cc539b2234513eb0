"""The commands for what a training left: `myriad evaluate`, `render`, `plot` and `export`."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from myriad.cli.flags import AgentFlags, XlaFlags, config_flags, refuse_flags
from myriad.errors import InvalidArgumentError
from myriad.files import announced, require_free
from myriad.ranges import FramesPerSecond, Integer, Seed, VideoSteps


@dataclasses.dataclass(frozen=True)
class Evaluate(AgentFlags):
    """Evaluate the agent of a run over whole greedy episodes."""

    run_folder: tyro.conf.Positional[Path]
    """Folder of the run."""

    episodes: Annotated[int, Integer(1)] = 128
    """Episodes to play."""

    seed: Seed = 0
    """Seed of the episodes."""

    def run(self) -> None:
        """Print the mean return and its standard error."""
        import numpy as np

        from myriad.api import evaluate
        from myriad.training.run_folder import significant

        config, _, agent = self.load(self.run_folder)
        with announced(f"compiling and playing {self.episodes:,} episodes"):
            # A fixed policy has no state.
            found = evaluate(config, getattr(agent, "state", None), self.episodes, self.seed)
        returns = np.asarray(found, np.float64)
        error = float("nan")
        if len(returns) > 1:
            error = returns.std(ddof=1) / len(returns) ** 0.5
        print(
            f"return {significant(returns.mean())} +/- {significant(error)} "
            f"(standard error, {len(returns)} episodes)"
        )


@dataclasses.dataclass(frozen=True)
class Render(config_flags("env"), AgentFlags):
    """Write a video of one episode, a GIF or an MP4."""

    output: Path = dataclasses.field(kw_only=True)
    """File to write, ending in .gif or .mp4."""

    agent: str | None = None
    """Agent that needs no training: random, bangbang or pid. By default random."""

    run_folder: Path | None = None
    """Show the trained agent of this run in its environment."""

    steps: VideoSteps = 500
    """Maximum number of steps to show, if the episode lasts longer."""

    seed: Seed = 0
    """Seed of the first state, the actions and the dynamics."""

    fps: FramesPerSecond = 30
    """Steps shown per second."""

    force: bool = False
    """Replace the file of --output if it exists."""

    def run(self) -> None:
        """Record the episode, and print its steps and return."""
        from myriad.adapters import make_env
        from myriad.agents import Learner, make_agent
        from myriad.rendering.video import record, require_recordable

        require_free(self.output, force=self.force)
        if self.run_folder is not None:
            refuse_flags(self, ("env", "agent"), "beside --run-folder, which says what to show")
            _, env, agent = self.load(self.run_folder)
        elif self.env is None:
            raise InvalidArgumentError("--env or --run-folder is missing.")
        else:
            refuse_flags(self, ("train_seed", "point", "best", "trust"), "without --run-folder")
            env = make_env(self.env)
            agent = make_agent(self.agent or "random", env)
        if isinstance(agent, Learner):
            raise InvalidArgumentError(f"{self.agent} must be trained: name its --run-folder.")
        require_recordable(env, self.output, self.fps)
        with announced("compiling and drawing"):
            recording = record(
                env, agent, self.output, num_steps=self.steps, seed=self.seed, fps=self.fps
            )
        print(
            f"{recording.path}: {recording.num_steps} steps, "
            f"return {recording.episode_return:g}, {recording.end}"
        )


@dataclasses.dataclass(frozen=True)
class Plot(XlaFlags):
    """Draw the learning curves of runs. Runs that differ only in their seeds are one curve."""

    run_folders: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of the runs."""

    output: Path = Path("learning_curves.png")
    """File to write, ending in .png or .svg."""

    force: bool = False
    """Replace the file of --output if it exists."""

    def run(self) -> None:
        """Write the file, and print its name."""
        from myriad.training.curves import plot_runs

        require_free(self.output, force=self.force)
        plot_runs(self.run_folders, self.output)
        print(self.output)


@dataclasses.dataclass(frozen=True)
class Export(AgentFlags):
    """Write the trained agent of a run to a file that loads without Myriad."""

    run_folder: tyro.conf.Positional[Path]
    """Folder of the run."""

    format: Annotated[
        Literal["stablehlo", "safetensors"], tyro.conf.arg(metavar="{stablehlo,safetensors}")
    ] = dataclasses.field(kw_only=True)
    """stablehlo: a program of JAX that chooses the greedy actions for a batch of observations.
    safetensors: the parameters and the moments of observations, by name."""

    output: Path | None = None
    """File to write. By default agent.FORMAT in the run's folder."""

    force: bool = False
    """Replace the file of --output if it exists."""

    def run(self) -> None:
        """Write the file, and print its name and what it holds."""
        from myriad.training.export import export_agent

        output = self.output or self.run_folder / f"agent.{self.format}"
        training = self.load(self.run_folder)
        said = export_agent(*training, output, format=self.format, force=self.force)
        print(f"{output}: {said}")
