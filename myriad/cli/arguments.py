"""Parse arguments into a command, or say in one sentence what is wrong with them."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Protocol, get_args

import tyro

from myriad import __version__
from myriad.cli.flags import option_flag
from myriad.errors import InvalidArgumentError, UnknownNameError, closest, shown
from myriad.ranges import require_ranges
from myriad.registry import Registry

_DESCRIPTION = (
    "Massively parallel reinforcement-learning environments on JAX. "
    "`myriad --version` prints the version."
)


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


# A command is imported only when you give it, since importing all of them takes a while.
COMMANDS: dict[str, str] = {
    "train": "myriad.cli.train:Train",
    "tune": "myriad.cli.tune:Tune",
    "autotune": "myriad.cli.autotune:Autotune",
    "evaluate": "myriad.cli.evaluate:Evaluate",
    "render": "myriad.cli.render:Render",
    "export": "myriad.cli.export:Export",
    "cite": "myriad.cli.cite:Cite",
    "envs": "myriad.cli.lists:Envs",
    "agents": "myriad.cli.lists:Agents",
    "presets": "myriad.cli.presets:Presets",
    "doctor": "myriad.cli.doctor:Doctor",
    "settings": "myriad.cli.doctor:DoctorAlias",
}
# Returns the dataclass of a command.
load_command = Registry("command", COMMANDS).load


def parse(argv: Sequence[str]) -> Command:
    """Turn arguments into a command.

    Raises:
        InvalidArgumentError: an argument is wrong or missing.
        SystemExit: you asked for help or the version, and it was printed; or tyro found a mistake,
            and has said so.
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
    words = _as_tyro_reads(argv)
    if words[0] not in COMMANDS:  # you asked for help
        _require_no_empty(argv)
        return _parsed(words, {name: load_command(name) for name in COMMANDS})
    kind = load_command(words[0])
    _require_known(words, kind)
    _require_no_empty(argv)
    asks = {"-h", "--help"}
    if asks & set(words):
        if hasattr(kind, "with_effective_defaults"):
            others = [word for word in words if word not in asks]
            kind = _command(others, kind).with_effective_defaults()
        return _parsed(words, {words[0]: kind})
    command = _command(words, kind)
    require_ranges(command)
    return command


def _command(words: Sequence[str], kind: Any) -> Any:
    """Return the command. tyro reads only the flags that are given: each one slows it down."""
    switches = {field.name for field in dataclasses.fields(kind) if _is_switch(field)}
    given = {
        name.removeprefix("no_") if name.removeprefix("no_") in switches else name: flag
        for name, flag in flags_by_name(words).items()
    }
    fields = [
        (field.name, field.type, _copied(field))
        for field in dataclasses.fields(kind)
        if field.name in given or _is_needed(field)
    ]
    dotted = {f"option_{i}": name for i, name in enumerate(name for name in given if "." in name)}
    fields += [(option, option_flag(name), None) for option, name in dotted.items()]
    values = vars(_parsed(words, {words[0]: dataclasses.make_dataclass(kind.__name__, fields)}))
    options = {name: values.pop(option) for option, name in dotted.items()}
    known = {field.name for field in dataclasses.fields(kind)}
    for name, value in (("options", options), ("given", given)):
        if name in known:
            values[name] = value
    return kind(**values)


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    has_default = {field.default, field.default_factory} != {dataclasses.MISSING}
    return not has_default or tyro.conf.Positional in getattr(field.type, "__metadata__", ())


def _copied(field: dataclasses.Field[Any]) -> Any:
    """Return an equal field for another class: a `Field` can belong to one class only."""
    defaults = {"default": field.default, "default_factory": field.default_factory}
    return dataclasses.field(kw_only=field.kw_only, **defaults)


def flags_by_name(argv: Sequence[str]) -> dict[str, str]:
    """Return the given flags by their names in Python, which errors have."""
    flags = (word.partition("=")[0] for word in argv if word.startswith("--"))
    return {flag.removeprefix("--").replace("-", "_"): flag for flag in flags}


def _require_known(words: Sequence[str], command: Any) -> None:
    """Refuse options that the command lacks, and both positions of a switch.

    tyro would suggest options of other commands, and take the last position.
    """
    fields = dataclasses.fields(command)
    options = [option for option in fields if _has_flag(option)]
    names = [option.name.replace("_", "-") for option in options]
    switches = [option.name.replace("_", "-") for option in options if _is_switch(option)]
    known = {f"--{name}" for name in [*names, *(f"no-{switch}" for switch in switches), "help"]}
    takes_options = any(field.name == "options" for field in fields)
    flags = [word.partition("=")[0].replace("_", "-") for word in words]
    for word, flag in zip(words, flags, strict=True):
        is_flag = re.match("--|-[a-zA-Z]", word) and not _is_number(word)
        is_option = takes_options and re.fullmatch(r"--(agent|env)\.[\w-]+", flag)
        if not is_flag or is_option or flag in known or flag == "-h":
            continue
        close = closest(flag.strip("-"), names)
        meant = f"; did you mean --{close}?" if close else ""
        if not close and takes_options:
            meant = "; options of an agent or an environment begin with --agent. or --env."
        raise InvalidArgumentError(
            f"`myriad {words[0]}` has no option {flag:.60}{meant} "
            f"(`myriad {words[0]} --help` lists them)."
        )
    for switch in switches:
        positions = f"--{switch}", f"--no-{switch}"
        for word, flag in zip(words, flags, strict=True):
            if flag in positions and "=" in word:
                raise InvalidArgumentError(
                    f"{flag} takes no value: write {' or '.join(positions)}, but got {shown(word)}."
                )
        if {*positions} <= {*flags}:
            raise InvalidArgumentError(
                f"{' and '.join(positions)} contradict each other: give one of them."
            )


def _is_switch(option: dataclasses.Field[Any]) -> bool:
    return option.type is bool or get_args(option.type)[:1] == (bool,)


def _has_flag(option: dataclasses.Field[Any]) -> bool:
    """Return whether a field is a flag: it isn't if it is positional or if Myriad fills it in."""
    markers = getattr(option.type, "__metadata__", ())
    return tyro.conf.Positional not in markers and tyro.conf.Suppress not in markers


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _as_tyro_reads(argv: Sequence[str]) -> list[str]:
    """Give `--write-env` its default file if no file follows, and write None as Python does."""
    argv = [re.sub("^(--target[-_]return=)none$", r"\1None", word) for word in argv]
    words: list[str] = []
    for word, following in zip(argv, [*argv[1:], "--"], strict=True):
        names_none = word == "--write-env" and following.startswith("--")
        is_none = word == "none" and words[-1:] in (["--target-return"], ["--target_return"])
        words += [word, ".env"] if names_none else ["None" if is_none else word]
    return words


def _require_no_empty(argv: Sequence[str]) -> None:
    """Refuse an empty argument. As a path it would mean the current folder."""
    for i, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if word == "" or (flag.startswith("--") and equals and not value):
            flag = flag or (argv[i - 1] if argv[i - 1].startswith("--") else "an argument")
            raise InvalidArgumentError(
                f"{flag} is empty; if you gave a variable, check that it is set."
            )


def _parsed(argv: Sequence[str], commands: dict[str, Any]) -> Any:
    """Have tyro parse the arguments. It reports a mistake itself, and raises SystemExit."""
    return tyro.extras.subcommand_cli_from_dict(
        commands, prog="myriad", description=_DESCRIPTION, args=argv
    )
