"""Settings outside a command: environment variables, and the file `.env` of a folder.

`Settings` is the table of them. The command line reads it, and so do `configure(distributed=True)`
and the report of a tuning campaign. Other functions get their values from your arguments, so that
they don't depend on the current folder. The environment is always asked for the folders where
Myriad keeps things, at the end of this module, and for XLA's options to leave out.
"""

import contextlib
import dataclasses
import io
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from myriad.errors import InvalidArgumentError, closest
from myriad.files import read_text, user_path
from myriad.ranges import Integer, range_in, require

OFF = ("off", "0", "false", "no", "")
_SWITCHES = {"true": True, "1": True, "yes": True, "on": True} | dict.fromkeys(OFF[:-1], False)
_PREFIX = "MYRIAD_"
LEFT_OUT = "MYRIAD_WITHOUT_XLA_OPTIONS"
VECTOR_MATH = "MYRIAD_VECTOR_MATH"
# Variables with this prefix that the benchmarks and the tests read.
_OF_OTHERS = ("MYRIAD_TIER", "MYRIAD_CI", "MYRIAD_KILLS")
_FILE = ".env"


# An empty name counts as not set. Names have commas between them.
_Name = Annotated[str, "name"] | None
_Names = Annotated[tuple[str, ...], "names"] | None
_Positive = Annotated[int, Integer(1)] | None


def _setting(variable: str, flag: str, meaning: str, *aliases: str) -> Any:
    metadata = {"setting": Setting(variable, flag, meaning, aliases)}
    return dataclasses.field(default=None, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Setting:
    """The names of a setting.

    Attributes:
        variable: its environment variable.
        flag: the flag that overrides it; empty if there is none.
        meaning: one sentence that says what it does.
        aliases: other names of the variable.
    """

    variable: str
    flag: str
    meaning: str
    aliases: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of the variable."""
        return (self.variable, *self.aliases)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The values that environment variables and a `.env` file set. All others are None.

    Attributes:
        sources: where each value comes from, such as "OPTIMAL_BATCH_SIZE of .env", by field.
    """

    batch_size: _Positive = _setting(
        "OPTIMAL_BATCH_SIZE", "--batch-size", "Rows of a gradient step."
    )
    compile: bool | None = _setting(
        "USE_COMPILE", "--compile", "Compile the training.", "USE_TORCH_COMPILE"
    )
    flash_attention: bool | None = _setting(
        "USE_FLASH_ATTENTION",
        "--flash-attention",
        "Compute attention by cuDNN's kernel where a GPU has it.",
    )
    bf16: bool | None = _setting("USE_BF16", "--bf16", "Compute networks in bfloat16.")
    home: str | None = _setting("MYRIAD_HOME", "", "Folder of files that are kept between runs.")
    compilation_cache: str | None = _setting(
        "MYRIAD_COMPILATION_CACHE", "", "Folder of compiled programs, or off."
    )
    without_xla_options: str | None = _setting(
        LEFT_OUT, "--without-xla-option", "XLA's options to leave out, with commas between them."
    )
    vector_math: bool | None = _setting(
        VECTOR_MATH, "", "Compute functions such as the sine in a form of vectors."
    )
    coordinator: _Name = _setting(
        "MYRIAD_COORDINATOR", "--coordinator", "Host and port of process 0."
    )
    num_processes: _Positive = _setting(
        "MYRIAD_NUM_PROCESSES", "--num-processes", "Number of processes that train together."
    )
    process_id: Annotated[int, Integer(0)] | None = _setting(
        "MYRIAD_PROCESS_ID", "--process-id", "Number of this process, from 0."
    )
    start_timeout_s: _Positive = _setting(
        "MYRIAD_START_TIMEOUT_S", "", "Seconds that processes wait for each other at the start."
    )
    heartbeat_timeout_s: _Positive = _setting(
        "MYRIAD_HEARTBEAT_TIMEOUT_S",
        "",
        "Seconds of silence after which a process is lost, and all end.",
    )
    wandb_project: _Name = _setting(
        "WANDB_PROJECT", "--wandb-project", "Project of Weights & Biases."
    )
    wandb_name: _Name = _setting(
        "WANDB_NAME", "--wandb-name", "Name of the run in Weights & Biases."
    )
    wandb_tags: _Names = _setting(
        "WANDB_TAGS", "--wandb-tags", "Tags of the run there, with commas between them."
    )
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def table(cls) -> dict[str, Setting]:
        """Return the settings by the names of their fields."""
        return {
            field.name: field.metadata["setting"]
            for field in dataclasses.fields(cls)
            if "setting" in field.metadata
        }

    @classmethod
    def read(
        cls,
        folder: Path | None = Path(),
        environ: Mapping[str, str] | None = None,
        *,
        only: Collection[str] | None = None,
    ) -> Self:
        """Read the environment, and for settings that it lacks also `.env` in a folder.

        Args:
            folder: the folder of the `.env`, if there is one; None reads no file.
            environ: the variables; by default those of this process.
            only: the fields to read; by default all.

        Raises:
            InvalidArgumentError: a value can't be used, the file can't be read, or a name that
                begins as Myriad's own is misspelt.
        """
        environ = os.environ if environ is None else environ
        of_file: Mapping[str, str] = {}
        if folder is not None:
            file = folder / _FILE
            of_file = variables_in(read_text(file) if os.path.lexists(file) else "", file)
        values: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for given, where in ((of_file, f" of {_FILE}"), (environ, "")):
            _require_known(given, where)
            for field in dataclasses.fields(cls):
                name, setting = field.name, field.metadata.get("setting")
                if setting is None or (only is not None and name not in only):
                    continue
                for variable in reversed(setting.names):  # The main name overrides aliases.
                    if variable not in given:
                        continue
                    source = variable + where
                    value = _value(field.type, given[variable])
                    if value is not None:
                        require(source, value, field.type)
                        values[name] = value
                        sources[name] = source
        return cls(**values, sources=sources)

    def export(self) -> None:
        """Copy the file's settings of places to the environment, also for child processes."""
        for name in PLACES:
            value = getattr(self, name)
            variable = self.table()[name].variable
            if value is not None and variable not in os.environ:
                os.environ[variable] = str(value)


# The settings of folders and of compiling, which every command uses.
PLACES = ("home", "compilation_cache", "without_xla_options", "vector_math")


def variables_in(text: str, file: object) -> dict[str, str]:
    """Return the variables that a `.env` file sets, as python-dotenv reads it.

    Args:
        text: the content of the file.
        file: the file's name, for errors.

    Raises:
        InvalidArgumentError: a line is not a statement, or there is a null character, which no
            variable can hold. The message names the line but doesn't repeat it, since it may hold
            a secret.
    """
    from dotenv import dotenv_values
    from dotenv.parser import parse_stream

    for statement in parse_stream(io.StringIO(text)):
        # python-dotenv would only log that it skips an error.
        if statement.error or "\0" in statement.original.string:
            where = f"from line {statement.original.line} on"
            raise InvalidArgumentError(f"{file} must hold NAME=value or a comment {where}.")
    values = dotenv_values(stream=io.StringIO(text))
    return {name: value for name, value in values.items() if value is not None}


def _value(kind: Any, text: str) -> Any:
    """Return the value that a text stands for: None if it is not set, the text if for none."""
    if range_in(kind) is not None:
        with contextlib.suppress(ValueError):
            return int(text)
    if kind == bool | None:
        return _SWITCHES.get(text.lower(), text)
    if kind == _Names:
        return tuple(name.strip() for name in text.split(",") if name.strip()) or None
    return text or None if kind == _Name else text


def _require_known(given: Iterable[str], where: str) -> None:
    """Refuse a misspelt name. One that resembles none of ours may belong to another program."""
    ours = [variable for setting in Settings.table().values() for variable in setting.names]
    known = [name for name in (*ours, *_OF_OTHERS) if name.startswith(_PREFIX)]
    for name in given:
        if not name.startswith(_PREFIX) or name in known:
            continue
        # Compare without the prefix, which alone would make all names similar.
        close = closest(name.removeprefix(_PREFIX), [each.removeprefix(_PREFIX) for each in known])
        if close is not None:
            says = f"{name}{where} is not a setting; did you mean {_PREFIX}{close}?"
            raise InvalidArgumentError(says)


def home() -> Path:
    """Return the folder of files that are kept between runs: `MYRIAD_HOME`, or `~/.myriad`.

    Raises:
        InvalidArgumentError: `MYRIAD_HOME` is not set, and the user has no home folder.
    """
    if named := os.environ.get("MYRIAD_HOME"):
        return user_path(named)
    if (user := _user_home()) is None:
        raise InvalidArgumentError("this user has no home folder; set MYRIAD_HOME to a folder.")
    return user / ".myriad"


def compilation_cache() -> Path | None:
    """Return the folder of compiled programs, or None if you turned it off.

    `MYRIAD_COMPILATION_CACHE` names the folder. off, 0, false, no or an empty value turns it off.
    The default is `$XDG_CACHE_HOME/myriad/xla`, or `~/.cache/myriad/xla` without that variable. A
    user without a home folder has no default.
    """
    value = os.environ.get("MYRIAD_COMPILATION_CACHE")
    if value is not None:
        return None if value.lower() in OFF else user_path(value)
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if caches.is_absolute():  # The XDG standard says to ignore relative paths.
        return caches / "myriad" / "xla"
    user = _user_home()
    return None if user is None else user / ".cache" / "myriad" / "xla"


def _user_home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # A container may run under a user that is unknown inside.
        return None


def xla_flags() -> list[str]:
    """Return the options in `XLA_FLAGS`, sorted, since their order doesn't matter."""
    return sorted(os.environ.get("XLA_FLAGS", "").split())


def wandb_names() -> dict[str, str | None]:
    """Return the fields of a training that `WANDB_PROJECT` and `WANDB_NAME` set, or None."""
    return {name: os.environ.get(name.upper()) or None for name in ("wandb_project", "wandb_name")}
