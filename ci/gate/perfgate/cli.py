"""The command `perfgate`. Without a subcommand it compares two commits.

Each command loads its own modules, so that `comment` runs on the standard library alone.
"""

import argparse
import importlib
import re
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from perfgate.errors import UsageError, closest
from perfgate.options import DEFAULT_OUTPUT, Parser, add_suite_config, guarded
from perfgate.source.git import WORKING_TREE

COMMANDS = {
    "accept": "perfgate.accept",
    "history": "perfgate.history.benchmark_history",
    "comment": "perfgate.report.comment",
}
_EPILOG = """
other commands; each has its own --help:
  perfgate accept BENCHMARK           print what to paste into accepted.toml
  perfgate history                    print when main became slower or faster
  perfgate comment                    print a report as a comment that is safe to post

exit codes:
  0  no regression
  1  a regression
  2  wrong usage
  3  a benchmark could not be measured or reached, or looks slower without enough evidence
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if sys.platform == "win32":
        print("perfgate needs Linux or macOS; on Windows, run it in WSL.", file=sys.stderr)
        return 2
    if argv and argv[0] in COMMANDS:
        return importlib.import_module(COMMANDS[argv[0]]).main(argv[1:])
    return guarded(lambda: _compare(argv), "stopped")


def _compare(argv: Sequence[str]) -> int:
    if argv and not argv[0].startswith("-"):
        raise UsageError(f"perfgate has no command {argv[0]!r}; {closest(argv[0], COMMANDS)}")
    options = _parser().parse_args(argv)
    if options.pytest_args and not options.pytest_benchmark:
        raise UsageError("--pytest-args needs --pytest-benchmark, which names the tests.")
    return importlib.import_module("perfgate.compare").compare(options)


def _parser() -> Parser:
    parser = Parser(
        "perfgate",
        "Does this change make a benchmark slower? Compares two commits of a repository that has "
        "an asv suite.",
        _EPILOG,
    )
    installed = (each.version for each in metadata.distributions(name="perfgate"))
    version = next(installed, "of a folder that is not installed")
    parser.add_argument("--version", action="version", version=f"perfgate {version}")
    parser.add_argument(
        "--base",
        required=True,
        metavar="REF",
        help="branch or commit; its merge base with head is compared",
    )
    parser.add_argument(
        "--head",
        default=WORKING_TREE,
        metavar="REF",
        help="branch or commit to judge (default: the working tree)",
    )
    add_suite_config(parser)
    parser.add_argument(
        "--python",
        type=_program,
        default=sys.executable,
        metavar="FILE",
        help="the Python that has what the suite imports (default: the one that runs perfgate)",
    )
    parser.add_argument(
        "--pytest-benchmark",
        type=Path,
        metavar="PATH",
        help="instead of an asv suite, run the tests in a folder or a file that use "
        "pytest-benchmark's fixture",
    )
    parser.add_argument(
        "--pytest-args",
        default=[],
        type=_words,
        metavar="WORDS",
        help="arguments for pytest, such as '-p no:randomly -k fast' (one word: --pytest-args=-x)",
    )
    parser.add_argument(
        "--bench",
        default="",
        type=_regex,
        metavar="REGEX",
        help="only benchmarks whose name matches REGEX (default: all)",
    )
    parser.add_argument(
        "--shard",
        default=(1, 1),
        type=_shard,
        metavar="K/N",
        help="run only the K-th of N parts of the benchmarks, to spread a run over N machines",
    )
    parser.add_argument(
        "--no-timing",
        dest="timing",
        action="store_false",
        help="don't time calls; compare all other metrics",
    )
    parser.add_argument(
        "--time-identical",
        action="store_true",
        help="also time what is the same code or program on both sides, to test the statistics",
    )
    parser.add_argument(
        "--budget",
        type=_seconds,
        metavar="SECONDS",
        help="seconds for all paired timing (default: gate.toml's, or 300)",
    )
    parser.add_argument(
        "--rules",
        type=Path,
        metavar="FILE",
        help="file of rules (default: head's ci/gate.toml or gate.toml, else perfgate's own)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=DEFAULT_OUTPUT,
        metavar="DIR",
        help="where the report is saved (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=time.time_ns() % 2**32,
        help="seed for every random order (default: taken from the clock)",
    )
    parser.add_argument(
        "--undecided",
        choices=("stop", "suspected", "warn"),
        help="end with exit code 3 if any row stays undecided (stop), if one of them looks worse "
        "(suspected), or for none (warn) (default: gate.toml's, or suspected)",
    )
    parser.add_argument(
        "--report-only",
        action="store_true",
        help="write the report and end with exit code 0, whatever the report says",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    return parser


def _program(text: str) -> str:
    found = shutil.which(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a program")
    return str(Path(found).absolute())  # its links must stay: a virtual environment is one


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a valid regular expression: {error}"
        ) from None
    return text


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} can't be split into words: {error}") from None


def _shard(text: str) -> tuple[int, int]:
    number, slash, count = text.partition("/")
    is_pair = slash and number.isdecimal() and count.isdecimal()
    if not is_pair or not 1 <= int(number) <= int(count):
        raise argparse.ArgumentTypeError(f"must be K/N such as 2/8, but got {text!r}")
    return int(number), int(count)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be seconds of at least 0, but got {text!r}")
    return value
