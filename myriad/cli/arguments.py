"""Parse arguments into a command. tyro says what is wrong with them."""

import dataclasses
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from myriad import __version__
from myriad.cli.flags import option_flag
from myriad.errors import InvalidArgumentError, UnknownNameError, without_passwords
from myriad.files import user_path
from myriad.ranges import require_ranges
from myriad.registry import Registry

_DESCRIPTION = (
    "Massively parallel reinforcement-learning environments on JAX. "
    "`myriad --version` prints the version."
)


# A command is imported only when you give it, since importing all of them takes a while.
COMMANDS: dict[str, str] = {
    "train": "myriad.cli.train:Train",
    "tune": "myriad.cli.tune:Tune",
    "autotune": "myriad.cli.autotune:Autotune",
    "evaluate": "myriad.cli.runs:Evaluate",
    "render": "myriad.cli.runs:Render",
    "plot": "myriad.cli.runs:Plot",
    "export": "myriad.cli.runs:Export",
    "envs": "myriad.cli.lists:Envs",
    "agents": "myriad.cli.lists:Agents",
    "presets": "myriad.cli.lists:Presets",
    "doctor": "myriad.cli.doctor:Doctor",
    "settings": "myriad.cli.doctor:Doctor",
}
# Returns the dataclass of a command.
load_command = Registry("command", COMMANDS).load


def parse(argv: Sequence[str]) -> Any:
    """Turn arguments into a command.

    Raises:
        InvalidArgumentError: the command is unknown, or an argument is empty or out of its range.
        SystemExit: you asked for help or the version, and it was printed; or tyro found a mistake,
            and has said so.
    """
    if list(argv[:1]) == ["--version"]:
        print(f"myriad {__version__}")
        raise SystemExit
    if not argv or argv[0].startswith("-"):
        tyro.extras.subcommand_cli_from_dict(
            {name: load_command(name) for name in COMMANDS},
            prog="myriad",
            description=_DESCRIPTION,
            args=argv,
        )
    name, *words = argv
    if name not in COMMANDS:
        raise UnknownNameError("command", name, COMMANDS)
    for i, (flag, value) in enumerate(itertools.pairwise([*words, "--"])):
        if not flag or not value or re.fullmatch("--[^=]+=", flag):
            # As a path it would mean the current folder.
            name = flag.rstrip("=") or "an argument"
            raise InvalidArgumentError(f"{name} is empty; check that your variable is set.")
        if flag == "--write-env" and value.startswith("--"):
            words[i] = "--write-env=.env"
        if flag == "--target-return" and value == "none":
            words[i + 1] = "None"
    kind = load_command(name)
    others = [word for word in words if word not in ("-h", "--help")]
    if len(others) < len(words):
        if hasattr(kind, "with_effective_defaults"):
            kind = _command(name, others, kind).with_effective_defaults()
        tyro.cli(kind, prog=f"myriad {name}", args=words)  # It prints the help and ends.
    command = _command(name, words, kind)
    require_ranges(command)
    return command


def _command(name: str, words: Sequence[str], kind: Any) -> Any:
    """Have tyro parse the words. If it finds a mistake, it prints it and raises SystemExit."""
    known = [field.name for field in dataclasses.fields(kind)]
    given = {
        name.removeprefix("no_") if name.removeprefix("no_") in known else name: flag
        for name, flag in flags_by_name(words).items()
    }
    # Any option of an agent or an environment is a flag. Its name is checked later.
    dotted = [name for name in given if "." in name] if "options" in known else []
    flags = [(f"option_{i}", option_flag(name), None) for i, name in enumerate(dotted)]
    bases: dict[str, Any] = {"bases": (kind,), "namespace": {"__doc__": kind.__doc__}}
    whole: Any = dataclasses.make_dataclass(kind.__name__, flags, frozen=True, **bases)
    try:
        parsed = tyro.cli(whole, args=words, console_outputs=False)
    except SystemExit:
        # It quotes what you wrote, so it gets that without passwords to print what is wrong.
        tyro.cli(whole, prog=f"myriad {name}", args=[without_passwords(word) for word in words])
        raise
    values = {field: getattr(parsed, field) for field in known}
    options = {name: getattr(parsed, f"option_{i}") for i, name in enumerate(dotted)}
    ours = {"options": options, "given": given}
    values |= {field: ours[field] for field in ours.keys() & known}
    return kind(**{field: _expanded(value) for field, value in values.items()})


def _expanded(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_expanded, value))
    return user_path(value) if isinstance(value, Path) else value


def flags_by_name(argv: Sequence[str]) -> dict[str, str]:
    """Return the given flags by their names in Python, which errors have."""
    flags = (word.partition("=")[0] for word in argv if word.startswith("--"))
    return {flag.removeprefix("--").replace("-", "_"): flag for flag in flags}
