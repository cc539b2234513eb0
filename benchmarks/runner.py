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

from benchmarks.harness.registry import SuiteError
from benchmarks.harness.results import (
    ResultsFile,
    Row,
    commit,
    machine_columns,
    make_folder,
    provenance,
    require_new,
    samples_beside,
    write_csv,
)
from benchmarks.harness.worker import ChildError

# Environment variables that affect measurements.
_SETTINGS = (
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
        exclusive: groups of flags that exclude each other.
        mode: returns the flag that decides what is measured; empty if none of them is given.
        goes_with: the modes that a flag goes with, if those are not all.
        suite: the first word of its CSV file's name. Empty if it opens its file itself.
        writes: a folder of results (""), or what a row of its own table is about.
    """

    name: str
    document: str | None
    measure: Callable[["Run"], bool | None]
    flags: Mapping[str, Flag] = field(default_factory=dict)
    exclusive: Sequence[Sequence[str]] = ()
    mode: Callable[[argparse.Namespace], str] = lambda options: ""
    goes_with: Mapping[str, Sequence[str]] = field(default_factory=dict)
    suite: str = ""
    writes: str = ""

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
            InvalidArgumentError: the file of `--output` exists, or its folder can't be created.
        """
        from myriad.files import user_path

        parser = _Parser(
            prog=f"python benchmarks/{self.name}.py",
            description=str(self.document).split("\n")[0],
            allow_abbrev=False,
        )
        owners = {}
        for flags in self.exclusive:
            owners |= dict.fromkeys(flags, parser.add_mutually_exclusive_group())
        for flag, options in self.flags.items():
            owners.get(flag, parser).add_argument(flag, **options)
        has_rows = "--output" not in self.flags
        if has_rows:
            says = "CSV file or folder (default: results/csv)"
            if self.writes:
                says = f"CSV file, with a row per {self.writes}"
            parser.add_argument("--output", type=Path, metavar="PATH", help=says)
            force = switch("replace the file of --output if it exists")
            parser.add_argument("--force", **force)
        options = parser.parse_args(argv)
        for flag, value in vars(options).items():
            if isinstance(value, Path):
                setattr(options, flag, user_path(value))
        if has_rows and options.output is not None:
            require_new(options.output, force=options.force)
            if self.writes:
                make_folder(options.output.parent)
        self._check(parser, options)
        return options

    def _check(self, parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
        """Refuse a folder for a table of rows, and a flag that does not go with the mode."""
        if self.writes and options.output is not None and options.output.is_dir():
            parser.error(f"--output must be a file, but {options.output} is a folder")
        mode = self.mode(options)
        for flag, modes in self.goes_with.items():
            if getattr(options, flag[2:].replace("-", "_")) and mode not in modes:
                needed = " or ".join(filter(None, modes))
                parser.error(f"{flag} {f'does not go with {mode}' if mode else f'needs {needed}'}")


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence and exit code 2."""

    def error(self, message: str) -> Any:
        raise SuiteError(f"{message}; --help lists the flags.")


class Run:
    """One invocation of a script."""

    file: Any = None  # its file of results, once it is open

    def __init__(self, script: Script, options: Any, command: str):
        self.script = script
        self.options = options
        self.command = command
        self._rows: list[Row] = []
        if script.suite:
            self.open(script.suite)

    def open(self, suite: str) -> None:
        """Open the file of results."""
        self.file = ResultsFile(suite, self.options.output, self.command)

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
        rows = self.file.rows if self.file else []
        measured = [row for row in rows if row["status"] == "ok"]
        for row in rows:
            if row["status"] != "ok":
                where = ", ".join([row["library"], row["suite"], _configuration(row)])
                print(f"{where}: {row['status']}: {row['reason']}", file=sys.stderr)
        described = measured
        if self._rows:
            described = [machine_columns() | {"commit": commit()}]
        lines: list[tuple[str, Any]] = []
        if described:
            lines += zip(("hardware", "versions"), provenance(described), strict=True)
        lines += [("configuration", each) for each in dict.fromkeys(map(_configuration, measured))]
        if self.file:
            path = self.file.path
            lines += [("rows", path), ("raw samples", samples_beside(path))]
        if self.file or self._rows:
            print("", *(f"{name + ':':15} {shown}" for name, shown in lines), sep="\n")
            print(f"reproduce with: {self.command}")
        return len(measured) == len(rows)


_SIZES = {"num_envs": "{:,} environments", "scan_chunk_size": "chunk {:,}"}


def _configuration(row: Row) -> str:
    sizes = [shape.format(row[name]) for name, shape in _SIZES.items() if row[name] != ""]
    return ", ".join([f"{row['env']} with {row['agent']}", *sizes])


def command_of(path: str, argv: Sequence[str]) -> str:
    """Return the command that repeats a run, with the environment variables that affect it."""
    settings = [
        f"{name}={shlex.quote(os.environ[name])}" for name in _SETTINGS if os.environ.get(name)
    ]
    return " ".join([*settings, f"python {path}", shlex.join(argv)]).strip()
