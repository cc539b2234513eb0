"""Run every script of this folder: flags, exit codes, child processes, rows, tables and plots.

A script describes itself as a `Script`, whose `measure` gets a `Run`:

    main = Script("scan_chunk", __doc__, _measure, {"--full": switch("measure everything")}).main
"""

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.alternation import Outcome
from benchmarks.harness.registry import SuiteError
from benchmarks.harness.results import (
    ResultsFile,
    Row,
    commit,
    machine_columns,
    provenance,
    require_new,
    samples_beside,
    write_csv,
)
from benchmarks.harness.worker import ChildError

# Environment variables that affect measurements.
SETTINGS = (
    *("JAX_PLATFORM_NAME", "JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES", "JAX_DEFAULT_MATMUL_PRECISION"),
    *("JAX_ENABLE_X64", "XLA_FLAGS", "MYRIAD_TIER", "MYRIAD_WITHOUT_XLA_OPTIONS"),
)
Flag = Mapping[str, Any]  # what `add_argument` takes


def count(text: str) -> int:
    """Parse a flag that is a whole number of at least 1."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, but got {text!r}")
    return value


def writable(text: str) -> Path:
    """Parse a flag that names a file, and check before hours of work that it can be written."""
    from myriad.files import user_path

    path = user_path(text)
    try:
        path.open("a").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} can't be written: {error.strerror}") from error
    return path


def environment(name: str) -> str:
    """Parse a flag that names an environment: `cartpole` is `cartpole-control`."""
    from myriad.envs import ENVIRONMENTS

    return name if ":" in name else _resolved(ENVIRONMENTS, name)


def agent(name: str) -> str:
    """Parse a flag that names an agent."""
    from myriad.agents import AGENTS

    return _resolved(AGENTS, name)


def _resolved(registry: Any, name: str) -> str:
    from myriad.errors import UnknownNameError

    try:
        return registry.resolve(name)
    except UnknownNameError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def switch(says: str) -> Flag:
    """Describe a flag without a value."""
    return {"action": "store_true", "help": says}


def text(says: str, default: Any = None, **more: Any) -> Flag:
    """Describe a flag with a text."""
    return {"help": says, "default": default, **more}


def whole(says: str, default: int | None = None, **more: Any) -> Flag:
    """Describe a flag with a whole number of at least 1."""
    return text(says, default, type=count, metavar="N", **more)


ENV = text("environment, or package.module:Class (default: suite.toml's)", type=environment)
AGENT = text("agent (default: suite.toml's)", type=agent)
NUM_ENVS = whole("number of parallel environments (default: suite.toml's)")


@dataclass(frozen=True)
class Script:
    """The description of a script.

    Attributes:
        name: its file's name without the ending.
        document: its docstring, whose first line describes the command.
        measure: measures, and says whether the exit code is 0. With None it is 0 if every row is
            ok.
        flags: its flags, besides `--output` and `--force` for the file of its rows.
        exclusive: flags that exclude each other.
        suite: the first word of its CSV file's name. Empty if it opens its files itself.
        writes: a folder of results (""), or what a row of its own table is about.
        refuses: says what is wrong with a combination of flags, or returns None.
    """

    name: str
    document: str | None
    measure: Callable[["Run"], bool | None]
    flags: Mapping[str, Flag] = field(default_factory=dict)
    exclusive: Sequence[str] = ()
    suite: str = ""
    writes: str = ""
    refuses: Callable[[argparse.Namespace], str | None] = lambda options: None

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run the command line, and return the exit code.

        The code is 0 if the script succeeded, 1 if not, 2 for bad input and 130 for Ctrl-C.
        """
        from myriad.errors import MyriadError

        argv = sys.argv[1:] if argv is None else list(argv)
        try:
            running = Run(self, self.parse(argv), command_of(f"benchmarks/{self.name}.py", argv))
            succeeded = self.measure(running)
            every_row_is_ok = running.report()
        except (MyriadError, SuiteError, ChildError) as error:
            print(error, file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("stopped; all measurements so far are saved", file=sys.stderr)
            return 130
        return 0 if (every_row_is_ok if succeeded is None else succeeded) else 1

    def parse(self, argv: Sequence[str]) -> Any:
        """Parse the flags.

        Raises:
            SuiteError: they are wrong.
            InvalidArgumentError: the file of `--output` exists.
        """
        from myriad.files import user_path

        parser = _Parser(
            prog=f"python benchmarks/{self.name}.py",
            description=str(self.document).split("\n")[0],
            allow_abbrev=False,
        )
        # argparse can't write the help of an empty group.
        group = parser.add_mutually_exclusive_group() if self.exclusive else parser
        for flag, options in self.flags.items():
            owner = group if flag in self.exclusive else parser
            owner.add_argument(flag, **options)
        has_rows = "--output" not in self.flags
        if has_rows:
            kind, says = Path, "CSV file or folder (default: results/csv)"
            if self.writes:
                kind, says = writable, f"CSV file, with a row per {self.writes}"
            parser.add_argument("--output", type=kind, metavar="PATH", help=says)
            force = switch("replace the file of --output if it exists")
            parser.add_argument("--force", **force)
        options = parser.parse_args(argv)
        for flag, value in vars(options).items():
            if isinstance(value, Path):
                setattr(options, flag, user_path(value))
        if has_rows and options.output is not None:
            require_new(options.output, force=options.force)
        if wrong := self.refuses(options):
            parser.error(wrong)
        return options


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence and exit code 2."""

    def error(self, message: str) -> Any:
        raise SuiteError(f"{message}; --help lists the flags.")


class Run:
    """One invocation of a script.

    Attributes:
        options: the values of its flags.
        command: the command that repeats it.
        files: the files of results that it has opened. Rows are added to the last one.
    """

    def __init__(self, script: Script, options: Any, command: str):
        self.script = script
        self.options = options
        self.command = command
        self.files: list[ResultsFile] = []
        self._rows: list[Row] = []
        if script.suite:
            self.open(script.suite, options.output)

    def open(self, suite: str, output: Path | None) -> None:
        """Open a file of results."""
        self.files.append(ResultsFile(suite, output, self.command))

    @property
    def file(self) -> ResultsFile:
        """The file of results that rows are added to."""
        return self.files[-1]

    def save(self, *rows: Row) -> None:
        """Add rows to the script's own table, and write all of it."""
        self._rows += rows
        if self.options.output is not None:
            write_csv(self.options.output, rows[0], self._rows)

    def report(self) -> bool:
        """Print failures, and what belongs to a figure: machine, versions, sizes, files, command.

        Returns:
            whether all rows are ok.
        """
        rows = [row for file in self.files for row in file.rows]
        measured = [row for row in rows if row["status"] == "ok"]
        for row in rows:
            if row["status"] != "ok":
                print(f"{_where(row)}: {row['status']}: {row['reason']}", file=sys.stderr)
        described = measured
        if self._rows:
            described = [machine_columns() | {"commit": commit()}]
        lines: list[tuple[str, Any]] = []
        if described:
            lines += zip(("hardware", "versions"), provenance(described), strict=True)
        lines += [("configuration", each) for each in dict.fromkeys(map(_configuration, measured))]
        for file in self.files:
            lines += [("rows", file.path), ("raw samples", samples_beside(file.path))]
        if self.files or self._rows:
            print("", *(f"{name + ':':15} {shown}" for name, shown in lines), sep="\n")
            print(f"reproduce with: {self.command}")
        return len(measured) == len(rows)


_SIZES = {"num_envs": "{:,} environments", "scan_chunk_size": "chunk {:,}"}


def _configuration(row: Row) -> str:
    sizes = [shape.format(row[name]) for name, shape in _SIZES.items() if row[name] != ""]
    return ", ".join([f"{row['env']} with {row['agent']}", *sizes])


def _where(row: Row) -> str:
    return ", ".join(filter(None, [row["library"], row["suite"], _configuration(row)]))


def command_of(path: str, argv: Sequence[str]) -> str:
    """Return the command that repeats a run, with the environment variables that affect it."""
    settings = [
        f"{name}={shlex.quote(os.environ[name])}" for name in SETTINGS if os.environ.get(name)
    ]
    return " ".join([*settings, f"python {path}", shlex.join(argv)]).strip()


def say(event: str, outcomes: Sequence[Outcome]) -> None:
    """Print the progress of an alternation: a line for each program that compiles."""
    if event.startswith("compiling"):
        workload = outcomes[0].case.workload
        print(f"{workload.num_envs:,} of {workload.env}: {event}", file=sys.stderr, flush=True)
