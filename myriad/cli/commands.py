"""The smaller subcommands of `myriad`: evaluate, render, autotune, cite and the lists."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import tyro

from myriad.cli.flags import XlaFlags, config_flags
from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.files import require_free
from myriad.ranges import Bytes, FramesPerSecond, Integer, Seed, VideoSteps


class Command(Protocol):
    """A subcommand, whose fields come from the command line."""

    without_xla_option: tuple[str, ...]

    def run(self) -> int | None:
        """Do the work and print the result on standard output.

        Returns:
            the exit code. None means 0.

        Raises:
            MyriadError: the command can't do its work. `main` prints the sentence on standard
                error and returns 2.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Evaluate(XlaFlags):
    """Evaluate the agent of a run over whole greedy episodes."""

    run_folder: tyro.conf.Positional[Path]
    """Folder of the run."""

    episodes: Annotated[int, Integer(1)] = 128
    """Episodes to play."""

    seed: Seed = 0
    """Seed of the episodes."""

    train_seed: Seed | None = None
    """Seed of the training, in a run of many seeds."""

    trust: bool = False
    """Import code that the run names as module:Class."""

    def run(self) -> None:
        """Print the mean return and its standard error."""
        import numpy as np

        from myriad.api import evaluate_run

        found = evaluate_run(
            self.run_folder, self.episodes, self.seed, self.train_seed, trust=self.trust
        )
        returns = np.asarray(found, np.float64)
        error = float("nan")
        if len(returns) > 1:
            error = returns.std(ddof=1) / len(returns) ** 0.5
        print(
            f"return {returns.mean():.2f} +/- {error:.2f} (standard error, {len(returns)} episodes)"
        )


@dataclasses.dataclass(frozen=True)
class Render(config_flags("env"), XlaFlags):
    """Write a video of one episode, a GIF or an MP4."""

    output: Path = dataclasses.field(kw_only=True)
    """File to write, ending in .gif or .mp4."""

    agent: str | None = None
    """Agent that needs no training: random, bangbang or pid. By default random."""

    run_folder: Path | None = None
    """Show the trained agent of this run in its environment."""

    train_seed: Seed | None = None
    """Seed of the training, in a run of many seeds."""

    trust: bool = False
    """Import code that the run names as module:Class."""

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
        from myriad.agents import Learner, make_agent
        from myriad.envs import make_env
        from myriad.files import announced
        from myriad.rendering.video import record, require_recordable

        require_free(self.output, force=self.force)
        if self.run_folder is not None:
            _refuse(self, ("env", "agent"), "beside --run-folder, which says what to show")
            from myriad.api import load_training

            _, env, agent = load_training(self.run_folder, self.train_seed, trust=self.trust)
        elif self.env is None:
            raise InvalidArgumentError(
                "--env or --run-folder is missing: give one of them to say what to show."
            )
        else:
            _refuse(self, ("train_seed", "trust"), "without --run-folder")
            env = make_env(self.env)
            agent = make_agent(self.agent or "random", env)
        if isinstance(agent, Learner):
            raise InvalidArgumentError(
                f"{self.agent} must be trained before it acts: name its --run-folder."
            )
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
class Autotune(config_flags("env", "agent", "num_envs", "buffer_size"), XlaFlags):
    """Choose the chunk size or the batch of a training on this machine.

    You can also show, export or clear the chunk sizes that it found before.
    """

    tune: Literal["chunk", "batch"] = "chunk"
    """What to choose: the steps of a compiled call, or the rows of a gradient step."""

    write_env: Path | None = None
    """Write the batch as OPTIMAL_BATCH_SIZE to this file, or to .env if you name no file."""

    memory_limit: Bytes | None = None
    """Bytes of memory that may be used. By default all that the machine has free."""

    force: bool = False
    """Measure again, even if the result is already known. Replace the file of --export."""

    show: bool = False
    """Print the chunk sizes found before, without measuring anything."""

    clear: bool = False
    """Delete the chunk sizes found before."""

    export: Path | None = None
    """Copy the chunk sizes found before to this file."""

    def run(self) -> None:
        """Tune, or manage the cache as the flags say."""
        from myriad.autotune import ProfileCache, autotune
        from myriad.autotune.tuner import STEPS_PER_ENV
        from myriad.training.config import make_config

        cache = ProfileCache()
        if self.show or self.clear or self.export is not None:
            self._manage(cache)
            return
        if self.env is None or self.agent is None:
            raise InvalidArgumentError(
                "--env and --agent say what to tune; --show, --clear and --export need neither."
            )
        if self.tune == "batch":
            self._tune_batch()
            return
        if self.write_env is not None:
            raise InvalidArgumentError("--write-env writes a batch, so it needs --tune batch.")
        config = make_config(
            self.env, self.agent, self.num_envs, STEPS_PER_ENV, buffer_size=self.buffer_size
        )
        autotune(config, force_revalidate=self.force, memory_limit=self.memory_limit)

    def _tune_batch(self) -> None:
        from myriad.autotune.batch import (
            SIZES,
            measure_batches,
            smallest_near_best,
            with_batch,
            write_batch_size,
        )
        from myriad.dotenv import variables_in
        from myriad.files import read_text, say, write_errors_explained
        from myriad.training.config import make_config

        config = make_config(self.env, self.agent, self.num_envs, buffer_size=self.buffer_size)
        with_batch(config, SIZES[0])  # refuses an agent without gradient steps
        if self.write_env is not None:
            with write_errors_explained(self.write_env):
                self.write_env.open("a").close()  # before minutes of measuring
            # Nothing is added to a file of another kind.
            variables_in(read_text(self.write_env), self.write_env)
        rates = measure_batches(config, memory_limit=self.memory_limit, on_size=print)
        chosen = smallest_near_best(rates)
        for rate in rates:
            mark = "  <- chosen" if rate is chosen else ""
            shown = rate.refused
            if rate.rows_per_s is not None:
                shown = f"{rate.rows_per_s:,.0f} rows/s ({rate.low:,.0f} to {rate.high:,.0f})"
            print(f"{rate.batch_size:>7,} rows: {shown}{mark}")
        if self.write_env is not None:
            warning = write_batch_size(self.write_env, chosen.batch_size, config)
            if warning is not None:
                say(warning)
            print(f"OPTIMAL_BATCH_SIZE={chosen.batch_size} written to {self.write_env}")

    def _manage(self, cache: Any) -> None:
        measuring = ("env", "agent", "num_envs", "buffer_size", "tune", "write_env", "memory_limit")
        unused = measuring if self.export is not None else (*measuring, "force")
        _refuse(self, unused, "beside --show, --clear or --export, which measure nothing")
        if self.export is not None:
            require_free(self.export, force=self.force)
            cache.export(self.export)
            print(f"{cache.path} copied to {self.export}")
        if self.show:
            print(cache.table())
        if self.clear:
            cache.clear()
            print(f"{cache.path} cleared")


def _refuse(command: Any, names: Sequence[str], why: str) -> None:
    """Refuse flags that would be ignored. One that has its default passes."""
    defaults = {field.name: field.default for field in dataclasses.fields(command)}
    given = [name for name in names if getattr(command, name) != defaults[name]]
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InvalidArgumentError(f"{flags} can't be given {why}.")


@dataclasses.dataclass(frozen=True)
class Cite(XlaFlags):
    """Print what to report with a result: machine, versions, commit, figures and the command."""

    results: tyro.conf.Positional[Path]
    """CSV file that a benchmark wrote."""

    def run(self) -> None:
        """Print the block."""
        from myriad.citation import cite

        print(cite(self.results))


@dataclasses.dataclass(frozen=True)
class Envs(XlaFlags):
    """List the environments, one name per line."""

    def run(self) -> None:
        """Print the names."""
        from myriad.envs import list_envs

        print("\n".join(list_envs()))


@dataclasses.dataclass(frozen=True)
class Agents(XlaFlags):
    """List the agents, one name per line."""

    def run(self) -> None:
        """Print the names."""
        from myriad.agents import list_agents

        print("\n".join(list_agents()))


@dataclasses.dataclass(frozen=True)
class Presets(config_flags("env", "agent"), XlaFlags):
    """List the presets and the values that each sets, next to those of the baseline."""

    def run(self) -> None:
        """Print a table for each agent."""
        from myriad.presets import list_presets

        presets = list_presets(self.agent)
        agents = sorted({preset.agent for preset in presets})
        if not agents:
            known = sorted({preset.agent for preset in list_presets()})
            raise UnknownNameError("agent with presets", self.agent, known)
        env = self.env or _SHOWN_ENV
        print("\n\n".join(_table_or_reason(agent, env) for agent in agents))


# Effective values depend on the environment as well, and every agent can act in this one.
_SHOWN_ENV = "cartpole-control"


def _table_or_reason(agent: str, env: str) -> str:
    """Return the table of an agent, or why it can't act in the environment."""
    from myriad.agents import make_agent
    from myriad.envs import make_env

    made = make_env(env)
    try:
        make_agent(agent, made)
    except InvalidArgumentError as error:
        return f"{agent} on {env}: {error}"
    return _table_of_presets(agent, env)


def _table_of_presets(agent: str, env: str) -> str:
    """Return a line for each field that a preset of the agent sets, a column for each preset."""
    from myriad.presets import list_presets, load_preset
    from myriad.training.config import make_config

    every = list_presets(agent)
    here = [preset for preset in every if preset.env in (None, env)]
    names = list(dict.fromkeys(preset.name for preset in here))
    fields = list(dict.fromkeys(field for preset in here for field in preset.fields))
    columns = [["field", *fields, "auto_tune"]]
    for name in names:
        config = make_config(env, agent, preset=name)
        tunes = load_preset(name, agent, env).auto_tune
        values = [str(config.value_of(field)) for field in fields]
        columns.append([name, *values, str(tunes).lower()])
    widths = [max(map(len, column)) for column in columns]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in zip(*columns, strict=True)
    ]
    elsewhere = [
        f"{preset.name} has values of its own for {preset.env}: `--env {preset.env}` shows them"
        for preset in every
        if preset not in here
    ]
    return "\n".join([f"{agent} on {env}", *lines, *elsewhere])
