"""From arguments to a command, or to one sentence that says what is wrong with them."""

import contextlib
import dataclasses
import io
import re
import tomllib
from collections.abc import Sequence
from typing import Any

import tyro

from myriad import __version__
from myriad.cli.commands import Agents, Autotune, Cite, Command, Envs, Evaluate, Presets, Render
from myriad.cli.doctor import Doctor
from myriad.cli.switches import spelled_out, switches_of
from myriad.cli.train import Train, TrainingFlags, with_effective_defaults
from myriad.cli.tune import Tune
from myriad.errors import InvalidArgumentError, UnknownNameError, closest, shown
from myriad.ranges import ranges_of, require_ranges

_DESCRIPTION = (
    "Massively parallel reinforcement-learning environments on JAX. "
    "`myriad --version` prints the version."
)

# Characters of a value that a sentence repeats.
_LONG = 60

COMMANDS: dict[str, Any] = {
    "train": Train,
    "tune": Tune,
    "autotune": Autotune,
    "evaluate": Evaluate,
    "render": Render,
    "cite": Cite,
    "envs": Envs,
    "agents": Agents,
    "presets": Presets,
    "doctor": Doctor,
    "settings": Doctor,
}


def parse(argv: Sequence[str]) -> Command:
    """Turn arguments into a command.

    Raises:
        InvalidArgumentError: they can't be used.
        SystemExit: you asked for help or the version, and it was printed.
    """
    if argv and argv[0] == "--version":
        print(f"myriad {__version__}")
        raise SystemExit
    if not argv:
        raise InvalidArgumentError(
            f"myriad needs a command, one of {', '.join(COMMANDS)}; see `myriad --help`."
        )
    if argv[0].startswith("--tyro-") and (len(argv) < 2 or argv[1] not in ("bash", "zsh", "fish")):
        raise InvalidArgumentError(
            f"{argv[0]} needs bash, zsh or fish, but got {' '.join(argv[1:]) or 'nothing'}."
        )
    if argv[0] not in COMMANDS and not re.match("(-h|--help|--tyro-.*)$", argv[0]):
        later = [word for word in argv[1:] if word in COMMANDS]
        if later and closest(argv[0], COMMANDS) is None:
            raise InvalidArgumentError(
                f"the command comes first: write {later[0]} before {shown(argv[0])}."
            )
        raise UnknownNameError("command", argv[0], COMMANDS)
    words, options = _without_dotted(_with_default_file(argv))
    _require_known(words)
    if words[0] in COMMANDS:
        words = spelled_out(words, COMMANDS[words[0]])
    _require_no_empty(argv)
    commands = COMMANDS
    if words[0] == "train" and {"-h", "--help"} & set(words):
        commands = COMMANDS | {"train": with_effective_defaults(words, options)}
    command = _parsed(words, commands)
    require_ranges(command)
    return _with_options(command, words, options)


def _with_options(command: Any, words: Sequence[str], options: dict[str, Any]) -> Any:
    """Return the command with what was given by dotted name, or refuse that."""
    if isinstance(command, TrainingFlags):
        given = frozenset(flags_by_name(words))
        return dataclasses.replace(command, options=options, given=given)
    if isinstance(command, Tune):
        return dataclasses.replace(command, options=options)
    if options:
        raise InvalidArgumentError(
            "only `myriad train`, `myriad tune` and `myriad doctor` take dotted names, but got "
            f"--{next(iter(options))}."
        )
    return command


def flags_by_name(argv: Sequence[str]) -> dict[str, str]:
    """Return the flags in the arguments by what Python calls them, which errors begin with."""
    flags = (word.partition("=")[0] for word in argv if word.startswith("--"))
    return {flag.removeprefix("--").replace("-", "_"): flag for flag in flags}


def _require_known(words: Sequence[str]) -> None:
    """Refuse options that the command doesn't have. tyro would suggest those of other commands."""
    command = COMMANDS.get(words[0])
    if command is None:
        return  # You asked for help.
    options = [option for option in dataclasses.fields(command) if _has_flag(option)]
    names = [option.name.replace("_", "-") for option in options]
    switches = [name for name, option in zip(names, options, strict=True) if option.type is bool]
    switches += switches_of(command)
    known = {f"--{name}" for name in [*names, *(f"no-{switch}" for switch in switches), "help"]}
    for word in words:
        flag = word.partition("=")[0].replace("_", "-")
        is_flag = re.match("--|-[a-zA-Z]", word) and not _is_number(word)
        if not is_flag or flag in known or flag == "-h":
            continue
        close = closest(flag.strip("-"), names)
        meant = f"; did you mean --{close}?" if close else ""
        if not close and issubclass(command, TrainingFlags):
            meant = "; those of an agent or an environment begin with --agent. or --env."
        raise InvalidArgumentError(
            f"`myriad {words[0]}` has no option {_short(flag)}{meant} "
            f"(`myriad {words[0]} --help` lists them)."
        )


def _has_flag(option: dataclasses.Field[Any]) -> bool:
    """Return whether tyro makes a flag of a field: not if it is positional, or ours to fill in."""
    markers = getattr(option.type, "__metadata__", ())
    return tyro.conf.Positional not in markers and tyro.conf.Suppress not in markers


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _with_default_file(argv: Sequence[str]) -> list[str]:
    """Give `--write-env` its default file where no other follows."""
    words = []
    for word, following in zip(argv, [*argv[1:], "--"], strict=True):
        names_none = word == "--write-env" and following.startswith("--")
        words += [word, ".env"] if names_none else [word]
    return words


def _require_no_empty(argv: Sequence[str]) -> None:
    """Refuse an empty argument. As a path it would stand for the current folder."""
    for i, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if word == "" or (flag.startswith("--") and equals and not value):
            flag = flag or (argv[i - 1] if argv[i - 1].startswith("--") else "an argument")
            raise InvalidArgumentError(
                f"{flag} is empty; if you gave a variable, check that it is set."
            )


def _without_dotted(argv: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Take `--agent.name value` and `--env.name=value` out.

    The names that there are depend on the agent and the environment, so tyro can't know them.
    """
    rest: list[str] = []
    options: dict[str, Any] = {}
    arguments = iter(argv)
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
    """Read a value as TOML does. Anything that TOML can't read is a string."""
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return table["value"] if len(table) == 1 else text


def _parsed(argv: Sequence[str], commands: dict[str, Any]) -> Any:
    """Have tyro parse the arguments, and turn what it says of a mistake into a sentence."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.extras.subcommand_cli_from_dict(
                commands, prog="myriad", description=_DESCRIPTION, args=argv
            )
    except SystemExit as end:
        if not end.code:
            raise
        program = f"myriad {argv[0]}" if argv[0] in COMMANDS else "myriad"
        raise InvalidArgumentError(
            f"{_sentence(said.getvalue(), argv[0])} (`{program} --help` tells more)."
        ) from end


def _sentence(box: str, command: str) -> str:
    """Take from tyro's box what is wrong, without its hints and the options' help."""
    rows = [re.sub(r"\x1b\[[\d;]*m", "", row).strip("│| ") for row in box.splitlines()[1:-1]]
    # Rules separate what is wrong from what you may have meant and from where help is.
    parts = re.split(r"^[─-]{3,}$", "\n".join(rows), flags=re.MULTILINE)
    wrong = next(filter(None, map(str.strip, parts)))
    statement = re.split(r"^--", wrong, maxsplit=1, flags=re.MULTILINE)[0]
    if statement.startswith("Missing from ") and (flags := re.findall(r"(?m)^--[\w-]+", wrong)):
        return f"`myriad {command}` needs {' and '.join(flags)}"
    return _in_words(" ".join(statement.split()), command).rstrip(". ")


def _in_words(statement: str, command: str) -> str:
    """Say what a value must be, where tyro repeats what Python's conversions raised."""
    ranges = ranges_of(COMMANDS[command]) if command in COMMANDS else {}
    kinds = {"int": "an integer", "float": "a number"}
    reports = (
        r"no type matching \{None\}\|(?P<kind>\w+) could be .* from \[(?P<value>.*?)\]\. .*",
        r"invalid literal for (?P<kind>int)\(\) with base 10: (?P<value>.*)",
        r"could not convert string to (?P<kind>float): (?P<value>.*)",
    )
    for report in reports:
        found = re.fullmatch(rf"Error parsing (?P<flag>--[\w-]+): {report}", statement)
        if found and found["kind"].lower() in kinds:
            name = found["flag"].removeprefix("--").replace("-", "_")
            rule = ranges.get(name, kinds[found["kind"].lower()])
            return f"{found['flag']} must be {rule}, but got {_short(found['value'])}"
    choice = r"invalid choice (?P<value>.*) for argument '(?P<flag>--[\w-]+)'\. Expected one of "
    if found := re.fullmatch(rf"{choice}\((?P<allowed>.*)\)\.?", statement):
        allowed = sorted(set(re.findall(r"'([^']*)'", found["allowed"])) - {"None"})
        return (
            f"{found['flag']} must be one of {', '.join(allowed)}, but got {_short(found['value'])}"
        )
    if found := re.match(r"Unrecognized (?:or misplaced )?options: (.+)", statement):
        program = f"myriad {command}" if command in COMMANDS else "myriad"
        return f"`{program}` does not take {_short(found[1])}"
    if found := re.fullmatch(r"Missing from myriad \w+: (\w+) (.*?)(?: \(required\))?", statement):
        return f"`myriad {command}` needs a {found[1]}: {found[2]}"
    return re.sub(r" \(required\)$|\.? Expected 1 values\.?$", "", statement)


def _short(quoted: str) -> str:
    """Return a long value shortened. tyro has broken it into lines."""
    end = "'" if quoted.startswith("'") else ""
    return quoted if len(quoted) <= _LONG else f"{quoted[:_LONG]}...{end}"
