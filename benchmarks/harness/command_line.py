"""The shared parts of all suites' command lines: flags, exit codes, progress, final report."""

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.files import require_free
from benchmarks.harness.interleave import OnEvent, Outcome
from benchmarks.harness.process.failures import ChildError
from benchmarks.harness.results import ResultsFile, last_rate
from benchmarks.harness.workloads import SuiteError

# Environment variables that affect measurements.
SETTINGS = (
    "JAX_PLATFORM_NAME",
    "JAX_PLATFORMS",
    "JAX_NUM_CPU_DEVICES",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "JAX_ENABLE_X64",
    "XLA_FLAGS",
    "MYRIAD_TIER",
)
_DECLARED = "suite.toml's"  # the words in --help for the declared workloads' defaults
_SIZES = {"num_envs": "{:,} environments", "scan_chunk_size": "chunk {:,}"}


class Parser(argparse.ArgumentParser):
    """The flags of one command. A mistake in them gives one sentence and exit code 2.

    Args:
        script: the command's name, such as `benchmarks/throughput.py`.
        document: the module's docstring, whose first line describes the command.
    """

    def __init__(self, script: str, document: str | None):
        super().__init__(
            prog=f"python {script}", description=str(document).split("\n")[0], allow_abbrev=False
        )
        self.add_argument(
            "--without-xla-option",
            action=_LeaveOut,
            metavar="NAME",
            help="leave out one of the XLA options that Myriad sets (repeatable)",
        )

    def error(self, message: str) -> Any:
        """Refuse the given flags.

        Raises:
            SuiteError: always.
        """
        raise SuiteError(f"{message}; --help lists the flags.")

    def parse_args(self, *args: Any, **named: Any) -> Any:
        """Parse the flags, and refuse an empty name and an `--output` that exists."""
        options = super().parse_args(*args, **named)
        for name, value in vars(options).items():
            if "" in (value if isinstance(value, list) else [value]):
                self.error(f"--{name.replace('_', '-')} must not be empty")
        if "force" in options and options.output is not None:
            require_free(options.output, force=options.force)
        return options

    def add_output(self, row: str | None = None) -> None:
        """Add `--output`, the place of the CSV file, and `--force`, which replaces the file.

        Args:
            row: what a row is about, of a suite that has no folder of results.
        """
        kind, metavar, shown = Path, "PATH", "CSV file or folder (default: results/csv)"
        if row is not None:
            kind, metavar, shown = writable, "FILE", f"CSV file, with a row per {row}"
        self.add_argument("--output", type=kind, metavar=metavar, help=shown)
        self.add_argument(
            "--force", action="store_true", help="replace the file of --output if it exists"
        )

    def add_env(self, default: str | None) -> None:
        """Add `--env`, the environment. A default of None means suite.toml's."""
        self.add_argument(
            "--env",
            default=default,
            help=f"environment, or package.module:Class (default: {default or _DECLARED})",
        )

    def add_agent(self, default: str | None) -> None:
        """Add `--agent`. A default of None means suite.toml's."""
        self.add_argument(
            "--agent", default=default, help=f"agent (default: {default or _DECLARED})"
        )

    def add_num_envs(self, default: int | None = None, group: Any = None) -> None:
        """Add `--num-envs`, to `group` if given, whose flags exclude each other."""
        shown = _DECLARED if default is None else f"{default:,}"
        (group or self).add_argument(
            "--num-envs",
            type=count,
            default=default,
            metavar="N",
            help=f"number of parallel environments (default: {shown})",
        )


class _LeaveOut(argparse.Action):
    """Leaves out an XLA option, in this process and in all that it starts."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        from myriad import settings
        from myriad.hardware import XLA_CPU_OPTIONS

        if values not in XLA_CPU_OPTIONS:
            parser.error(
                f"--without-xla-option must be one of {', '.join(XLA_CPU_OPTIONS)}, "
                f"but got {values!r}"
            )
        settings.leave_out_xla_options([*settings.left_out_xla_options(), values])


def count(text: str) -> int:
    """Parse a flag that is a whole number of at least 1."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, but got {text!r}")
    return value


def writable(text: str) -> Path:
    """Parse a flag that names a file, and check before hours of work that it can be written."""
    path = Path(text)
    try:
        path.open("a").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} can't be written: {error.strerror}") from error
    return path


def resolved_env(env: str) -> str:
    """Return the full name of an environment: `cartpole-control` for `cartpole`.

    Raises:
        UnknownNameError: there is none of that name.
    """
    from myriad.envs import ENVIRONMENTS

    return env if ":" in env else ENVIRONMENTS.resolve(env)


def resolved_agent(agent: str) -> str:
    """Return the full name of an agent.

    Raises:
        UnknownNameError: there is none of that name.
    """
    from myriad.agents import AGENTS

    return AGENTS.resolve(agent)


def command_of(script: str, argv: Sequence[str]) -> str:
    """Return the command that repeats a run, with the environment variables that affect it."""
    settings = [
        f"{name}={shlex.quote(os.environ[name])}" for name in SETTINGS if os.environ.get(name)
    ]
    return " ".join([*settings, f"python {script}", shlex.join(argv)]).strip()


def guarded(run: Callable[[list[str]], bool], argv: Sequence[str] | None) -> int:
    """Call `run(argv)` and return the exit code.

    The code is 0 if `run` succeeded, 1 if not, 2 for bad input and 130 for Ctrl-C.
    """
    from myriad.errors import MyriadError

    try:
        return 0 if run(sys.argv[1:] if argv is None else list(argv)) else 1
    except (MyriadError, SuiteError, ChildError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; all measurements so far are saved", file=sys.stderr)
        return 130


def readable(num_bytes: int | None) -> str:
    """Write a number of bytes in a fitting unit, or a dash if XLA does not state it."""
    if not num_bytes:
        return "-"
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes} B"


def print_files(file: ResultsFile) -> None:
    """Print the files, and the command that repeats the run."""
    print(f"\nrows:           {file.path}")
    print(f"raw samples:    {file.samples_path}")
    print(f"reproduce with: {file.command}")


def report(file: ResultsFile) -> bool:
    """Print failures, the files and the command that repeats the run. Return whether all is ok."""
    for row in file.rows:
        if row["status"] != "ok":
            sizes = [shape.format(row[name]) for name, shape in _SIZES.items() if row[name] != ""]
            where = ", ".join([row["suite"], f"{row['env']} with {row['agent']}", *sizes])
            print(f"{where}: {row['status']}: {row['reason']}", file=sys.stderr)
    print_files(file)
    return all(row["status"] == "ok" for row in file.rows)


@contextlib.contextmanager
def progress(num_alternations: int) -> Iterator[OnEvent]:
    """Show live progress if stderr is a terminal, and otherwise a line for each compilation."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        BarColumn(bar_width=12),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as progress:
        task = progress.add_task("starting", total=num_alternations)

        def show(event: str, outcomes: Sequence[Outcome]) -> None:
            workload = outcomes[0].case.workload
            size = f"{workload.num_envs:,} of {workload.env}"
            rates = [
                f"{outcome.case.side} {rate}"
                for outcome in outcomes
                if (rate := last_rate(outcome))
            ]
            described = ", ".join(
                [size, *rates, f"M steps/s ({event})"] if rates else [size, event]
            )
            progress.update(task, advance=event == "done", description=described)
            if not console.is_terminal and not rates and event not in ("importing", "done"):
                print(described, file=sys.stderr, flush=True)

        yield show
