"""`myriad render`."""

import dataclasses
from pathlib import Path

from myriad.cli.flags import AgentFlags, config_flags, refuse_flags
from myriad.errors import InvalidArgumentError
from myriad.files import require_free
from myriad.ranges import FramesPerSecond, Seed, VideoSteps


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
        from myriad.files import announced
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
