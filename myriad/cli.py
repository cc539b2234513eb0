"""The command `myriad`: each subcommand is a dataclass whose fields are its options and whose `run` does the work.

What is heavy loads inside the functions, so that `myriad --help` answers at once.
"""

import contextlib
import dataclasses
import io
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import tyro

from myriad.errors import InvalidArgumentError, MyriadError, UnknownNameError

_DESCRIPTION = "Massively parallel reinforcement-learning environments on JAX."


class Command(Protocol):
    """A subcommand, its fields read from the command line."""

    def run(self) -> None:
        """Do it; what it finds goes to standard output.

        Raises:
            MyriadError: it can't be done; the sentence goes to standard error, and the exit code is
                2.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Train:
    """Train an agent, evaluating on the way.

    A hyperparameter or a figure of the environment is given by its dotted name, such as
    --agent.learning-rate 1e-3 or --env.gravity 3.7.
    """

    env: str | None = None
    """Environment: a name that `myriad envs` lists, or package.module:Name for one of your own."""

    agent: str | None = None
    """Agent: a name that `myriad agents` lists."""

    config: Path | None = None
    """A configuration in TOML, such as a run's config.toml; what is given beside it wins over it."""

    resume: Path | None = None
    """Go on with the run in this folder instead."""

    run_folder: Path | None = None
    """Folder of the run (default: a new one under runs/)."""

    num_envs: int | None = None
    """Environments in parallel (default: the agent's)."""

    steps_per_env: int | None = None
    """Steps of every environment in the whole training."""

    scan_chunk_size: int | None = None
    """Steps of every environment in one compiled call."""

    rollout_steps: int | None = None
    """Steps of every environment between two updates of an on-policy agent."""

    buffer_size: int | None = None
    """Transitions that a replay buffer holds."""

    batch_size: int | None = None
    """Transitions in one gradient step."""

    eval_frequency: int | None = None
    """Steps of every environment between two evaluations (default: 100)."""

    eval_rollouts: int | None = None
    """Episodes in one evaluation (default: 32)."""

    target_return: float | None = None
    """Stop as soon as an evaluation's mean return reaches this."""

    seed: int | None = None
    """Every random number follows from it (default: 0)."""

    auto_tune: bool = False
    """Have the autotuner choose the chunk size first."""

    log_to: tuple[str, ...] = ()
    """Trackers beside the run's folder: tensorboard, wandb."""

    quiet: bool = False
    """Show no progress."""

    options: tyro.conf.Suppress[dict[str, Any]] = dataclasses.field(default_factory=dict)
    """What was given by dotted name."""

    def run(self) -> None:
        """Train, and say what came of it."""
        from myriad.api import resume, train_and_evaluate

        if self.resume is not None:
            given = [*self._given(besides=("resume", "quiet")), *self.options]
            if given:
                flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
                raise InvalidArgumentError(
                    f"--resume goes on as the run began, so {flags} can't be given."
                )
            results = resume(self.resume, quiet=self.quiet)
        else:
            results = train_and_evaluate(self._config(), self.run_folder, quiet=self.quiet)
        last, timings = results.evaluations[-1], results.timings
        reached = "; stopped at the target" if results.stopped == "target" else ""
        print(f"return {last['return']:.1f} after {last['steps']:,} steps{reached}")
        speed = (
            f"trained at {timings.steps_per_s:,.0f} steps/s"
            if timings.train_s
            else "nothing was left to train"
        )
        print(f"{speed}, {timings.total_s:.1f} s in all; {results.run_folder}")

    def _given(self, besides: tuple[str, ...]) -> dict[str, Any]:
        """Return the flags that were set, those in `besides` left out."""
        flags = [f for f in dataclasses.fields(self) if f.name not in ("options", *besides)]
        return {f.name: value for f in flags if (value := getattr(self, f.name)) != f.default}

    def _config(self) -> Any:
        from myriad.api import create_config
        from myriad.training.config import TrainingConfig

        fields: dict[str, Any] = {}
        if self.config is not None:
            try:
                text = self.config.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
                raise InvalidArgumentError(
                    f"config {self.config} can't be read: {reason}."
                ) from error
            fields = TrainingConfig.from_toml(text).model_dump()
        fields |= self._given(besides=("config", "run_folder", "quiet"))
        for name in ("env", "agent"):
            if name not in fields:
                raise InvalidArgumentError(
                    f"--{name} is missing; `myriad {name}s` lists the names."
                )
        return create_config(**fields, **self.options)


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Evaluate the agent of a run: whole greedy episodes."""

    run_folder: tyro.conf.Positional[Path]
    """Folder of the run."""

    episodes: int = 128
    """How many episodes."""

    seed: int = 0
    """Seed of the episodes."""

    def run(self) -> None:
        """Print the mean return and how far the episodes are spread."""
        import numpy as np

        from myriad.api import evaluate_run

        returns = np.asarray(evaluate_run(self.run_folder, self.episodes, self.seed), np.float64)
        error = returns.std(ddof=1) / len(returns) ** 0.5 if len(returns) > 1 else float("nan")
        print(
            f"return {returns.mean():.2f} +/- {error:.2f} (standard error, {len(returns)} episodes)"
        )


@dataclasses.dataclass(frozen=True)
class Render:
    """Write a moving picture of one episode, a GIF or an MP4."""

    output: Path
    """File to write; its ending, .gif or .mp4, says which kind."""

    env: str | None = None
    """Environment: a name that `myriad envs` lists, or package.module:Name for one of your own."""

    agent: str = "random"
    """Agent that needs no training: random, bangbang, pid."""

    run_folder: Path | None = None
    """Show the trained agent of this run, in its environment."""

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
        from myriad.rendering.video import record

        if self.run_folder is not None:
            from myriad.api import load_agent

            _, env, agent = load_agent(self.run_folder)
        elif self.env is None:
            raise InvalidArgumentError("--env or --run-folder is missing: what is to be shown?")
        else:
            env = make_env(self.env)
            agent = make_agent(self.agent, env)
        if hasattr(agent, "update"):
            raise InvalidArgumentError(
                f"{self.agent} must be trained before it acts: name its --run-folder."
            )
        recording = record(
            env, agent, self.output, num_steps=self.steps, seed=self.seed, fps=self.fps
        )
        print(
            f"{recording.path}: {recording.num_steps} steps, return {recording.episode_return:g}, {recording.end}"
        )


@dataclasses.dataclass(frozen=True)
class Autotune:
    """Choose the chunk size of a training on this machine, or look after what was found before."""

    env: str | None = None
    """Environment: a name that `myriad envs` lists."""

    agent: str | None = None
    """Agent: a name that `myriad agents` lists."""

    num_envs: int | None = None
    """Environments in parallel (default: the agent's)."""

    buffer_size: int | None = None
    """Transitions that a replay buffer holds."""

    memory_limit: int | None = None
    """Bytes that may be used (default: what the machine has left)."""

    force: bool = False
    """Measure again what is known."""

    show: bool = False
    """Print what was found before, and measure nothing."""

    clear: bool = False
    """Forget what was found before."""

    export: Path | None = None
    """Copy what was found before to this file."""

    def run(self) -> None:
        """Tune, or do what was asked with the cache."""
        from myriad.autotune import ProfileCache, autotune
        from myriad.training.config import make_config

        cache = ProfileCache()
        if self.show or self.clear or self.export is not None:
            self._keep_house(cache)
            return
        if self.env is None or self.agent is None:
            raise InvalidArgumentError(
                "--env and --agent say what to tune; --show, --clear and --export need neither."
            )
        config = make_config(
            self.env, self.agent, self.num_envs, 10_000, buffer_size=self.buffer_size
        )
        autotune(config, force_revalidate=self.force, memory_limit=self.memory_limit)

    def _keep_house(self, cache: Any) -> None:
        if self.export is not None:
            cache.export(self.export)
            print(f"{cache.path} copied to {self.export}")
        if self.show:
            print(cache.table())
        if self.clear:
            cache.clear()
            print(f"{cache.path} cleared")


@dataclasses.dataclass(frozen=True)
class Cite:
    """Print what reporting a result needs: machine, configuration, versions, commit, figures and the command."""

    results: tyro.conf.Positional[Path]
    """CSV file that a benchmark wrote."""

    def run(self) -> None:
        """Print the block."""
        from myriad.citation import cite

        print(cite(self.results))


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


COMMANDS: dict[str, type[Command]] = {
    "train": Train,
    "autotune": Autotune,
    "evaluate": Evaluate,
    "render": Render,
    "cite": Cite,
    "envs": Envs,
    "agents": Agents,
}


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
        SystemExit: help was asked for, and printed.
    """
    if not argv:
        raise InvalidArgumentError(
            f"myriad needs a command, one of {', '.join(COMMANDS)}; see `myriad --help`."
        )
    if argv[0].startswith("--tyro-") and (len(argv) < 2 or argv[1] not in ("bash", "zsh", "fish")):
        raise InvalidArgumentError(
            f"{argv[0]} needs bash, zsh or fish, but got {' '.join(argv[1:]) or 'nothing'}."
        )
    if not argv[0].startswith("-") and argv[0] not in COMMANDS:
        raise UnknownNameError("command", argv[0], COMMANDS)
    argv, options = _without_dotted(argv)
    # tyro draws a box about what it can't use.
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            command: Any = tyro.extras.subcommand_cli_from_dict(
                COMMANDS, prog="myriad", description=_DESCRIPTION, args=argv
            )
    except SystemExit as end:
        if not end.code:
            raise
        program = f"myriad {argv[0]}" if argv[0] in COMMANDS else "myriad"
        raise InvalidArgumentError(
            f"{_sentence(said.getvalue(), argv[0])} (`{program} --help` tells more)"
        ) from end
    if not options:
        return command
    if not isinstance(command, Train):
        raise InvalidArgumentError(
            f"only `myriad train` takes dotted names, but got --{next(iter(options))}."
        )
    return dataclasses.replace(command, options=options)


def _without_dotted(argv: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Take `--agent.name value` and `--env.name=value` out: which names there are depends on the agent's name."""
    rest, options, arguments = [], {}, iter(argv)
    for argument in arguments:
        dotted = re.fullmatch(r"--((?:agent|env)\.[\w-]+)(?:=(.*))?", argument)
        if dotted is None:
            rest.append(argument)
            continue
        text = dotted[2] if dotted[2] is not None else next(arguments, None)
        if text is None:
            raise InvalidArgumentError(f"--{dotted[1]} needs a value.")
        options[dotted[1].replace("-", "_")] = _value(text)
    return rest, options


def _value(text: str) -> Any:
    """Read a value as TOML does; what is none of its numbers, truths and lists is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _sentence(box: str, command: str) -> str:
    """Take from tyro's box what is wrong and the options that it names; leave out their help."""
    rows = [re.sub(r"\x1b\[[\d;]*m", "", row).strip("│| ") for row in box.splitlines()[1:-1]]
    # Rules part what is wrong from what may have been meant and from where help is.
    parts = re.split(r"^[─-]{3,}$", "\n".join(rows), flags=re.MULTILINE)
    wrong, *hints = filter(str.strip, parts)
    statement = " ".join(re.split(r"^--", wrong, maxsplit=1, flags=re.MULTILINE)[0].split())
    fields = dataclasses.fields(COMMANDS[command]) if command in COMMANDS else ()  # pyright: ignore[reportArgumentType]
    own = {f"--{field.name.replace('_', '-')}" for field in fields}  # tyro looks in every command
    meant = [name for hint in hints if "meant" in hint for name in _options(hint) if name in own]
    unknown = [name for hint in hints if "Unrecognized" in hint for name in _options(hint)]
    named = " ".join([statement, ", ".join(_options(wrong))]).rstrip(". ")
    named += f"; unknown: {', '.join(unknown)}" if unknown else ""
    return f"{named}; did you mean {' or '.join(meant)}?" if meant else named


def _options(rows: str) -> list[str]:
    return re.findall(r"^--[\w-]+", rows, flags=re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main())
