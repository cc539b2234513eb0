"""The command `myriad`: each subcommand is a dataclass whose fields are its options and whose `run` does the work.

What is heavy loads inside the functions, so that `myriad --help` answers at once.
"""

import contextlib
import dataclasses
import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from myriad.errors import InvalidArgumentError, MyriadError, NotInstalledError, UnknownNameError

_DESCRIPTION = "Massively parallel reinforcement-learning environments on JAX."


class Command(Protocol):
    """A subcommand, its fields read from the command line."""

    def run(self) -> None:
        """Do it; what it finds goes to standard output.

        Raises:
            MyriadError: it can't be done; the sentence goes to standard error, and the exit code is 2.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Render:
    """Write a moving picture of one episode, a GIF or an MP4."""

    env: str
    """Environment: a name that `myriad envs` lists, or an alias."""

    output: Path
    """File to write; its ending, .gif or .mp4, says which kind."""

    agent: str = "random"
    """Agent: a name that `myriad agents` lists."""

    steps: int = 500
    """Stop after so many steps if the episode has not ended."""

    seed: int = 0
    """Seed of the first state, the actions and the dynamics."""

    fps: int = 30
    """Steps shown in a second."""

    def run(self) -> None:
        """Record the episode and say how it went."""
        from myriad.agents import make_agent
        from myriad.envs import make_env
        from myriad.recording import record

        env = make_env(self.env)
        agent = make_agent(self.agent, env)
        recording = record(env, agent, self.output, num_steps=self.steps, seed=self.seed, fps=self.fps)
        print(f"{recording.path}: {recording.num_steps} steps, return {recording.episode_return:g}, {recording.end}")


@dataclasses.dataclass(frozen=True)
class Envs:
    """List the environments, one name a line."""

    def run(self) -> None:
        """Print the names."""
        from myriad.envs import list_envs

        print("\n".join(list_envs()))


@dataclasses.dataclass(frozen=True)
class Agents:
    """List the agents, one name a line."""

    def run(self) -> None:
        """Print the names."""
        from myriad.agents import list_agents

        print("\n".join(list_agents()))


COMMANDS: dict[str, type[Command]] = {"render": Render, "envs": Envs, "agents": Agents}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, or 2 where the input can't be used."""
    try:
        command = parse(sys.argv[1:] if argv is None else argv)
        # Before anything can start JAX's backend, which reads its options once.
        from myriad.hardware import configure

        configure()
        command.run()
    except MyriadError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def parse(argv: Sequence[str]) -> Command:
    """Turn arguments into a command.

    Raises:
        InvalidArgumentError: they can't be used.
        NotInstalledError: tyro is absent.
        SystemExit: help was asked for, and printed.
    """
    if not argv:
        raise InvalidArgumentError(f"myriad needs a command, one of {', '.join(COMMANDS)}; see `myriad --help`.")
    if not argv[0].startswith("-") and argv[0] not in COMMANDS:
        raise UnknownNameError("command", argv[0], COMMANDS)
    try:
        import tyro
    except ImportError as error:
        raise NotInstalledError("the command line needs tyro; install it with: pip install tyro.") from error
    # tyro draws a box about what it can't use.
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="myriad", description=_DESCRIPTION, args=argv)
    except SystemExit as end:
        if not end.code:
            raise
        program = f"myriad {argv[0]}" if argv[0] in COMMANDS else "myriad"
        raise InvalidArgumentError(f"{_sentence(said.getvalue())} (`{program} --help` tells more)") from end


def _sentence(box: str) -> str:
    """Take from tyro's box what is wrong and the options that it names; leave out their help."""
    rows = [re.sub(r"\x1b\[[\d;]*m", "", row).strip("│| ") for row in box.splitlines()[1:-1]]
    # Rules part what is wrong from what may have been meant and from where help is.
    parts = re.split(r"^[─-]{3,}$", "\n".join(rows), flags=re.MULTILINE)
    wrong, *hints = filter(str.strip, parts)
    statement = " ".join(re.split(r"^--", wrong, maxsplit=1, flags=re.MULTILINE)[0].split())
    meant = [name for hint in hints if "meant" in hint for name in _options(hint)]
    unknown = [name for hint in hints if "Unrecognized" in hint for name in _options(hint)]
    named = " ".join([statement, ", ".join(_options(wrong))]).rstrip(". ")
    named += f"; unknown: {', '.join(unknown)}" if unknown else ""
    return f"{named}; did you mean {' or '.join(meant)}?" if meant else named


def _options(rows: str) -> list[str]:
    return re.findall(r"^--[\w-]+", rows, flags=re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main())
